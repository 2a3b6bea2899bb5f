"""Extractions on pretended GPUs: the rows of any other extraction, each document asked once."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import current_thread

import pytest
from support.killing import commits, tables

from rlfocal.extraction.running import runner
from rlfocal.extraction.running.runner import default_jobs, extract_pool
from rlfocal.extraction.tasks import load_tasks
from rlfocal.pool import load_pool
from warehouse import open_warehouse


@pytest.mark.slow
def test_machines_share_a_warehouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two machines of two GPUs: one set of work, with the rows of an extraction without GPUs."""
    chosen = load_pool("lab").choose(["lab-llama-small", "lab-gemma-small"], ["lab-musr"])
    wide, narrow = chosen.models
    pool = chosen.model_copy(update={"models": (wide.model_copy(update={"tensor_parallel": 2}), narrow)})

    def leases() -> Path:
        folder = tmp_path / current_thread().name
        folder.mkdir(exist_ok=True)
        return folder

    tasks = load_tasks(pool.benchmarks, 8)
    monkeypatch.setattr(runner, "load_tasks", lambda *_: tasks)  # no two threads may build prompts at once
    monkeypatch.setattr(runner, "lease_folder", leases)
    monkeypatch.setenv("RLFOCAL_GPUS", "0,1")
    open_warehouse(tmp_path / "w").close()
    with ThreadPoolExecutor(2, "machine") as machines:
        calls = [machines.submit(extract_pool, tmp_path / "w", pool, limit=8) for _ in range(2)]
    reports = [call.result() for call in calls]
    assert [report.missing for report in reports] == [[], []]
    assert Counter(c.model for r in reports for c in r.committed) == {model.model: 3 for model in pool.models}
    assert [len(r.committed) + r.n_skipped for r in reports] == [6, 6]
    assert len(commits(str(tmp_path / "w"))) == 6
    assert {path.name for path in tmp_path.glob("machine*")} == {"machine_0", "machine_1"}
    monkeypatch.delenv("RLFOCAL_GPUS")
    assert not extract_pool(tmp_path / "cpu", pool, limit=8).missing
    assert tables(str(tmp_path / "w")) == tables(str(tmp_path / "cpu"))


def test_how_many_models_run_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLFOCAL_GPUS", "0,1,2,3,4,5,6,7")
    assert [default_jobs(backend) for backend in ("hf", "vllm", "openai")] == [8, 8, 2]
    monkeypatch.setenv("RLFOCAL_GPUS", "")
    assert [default_jobs(backend) for backend in ("hf", "vllm", "openai")] == [2, 1, 2]
