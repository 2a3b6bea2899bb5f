"""Extractions on pretended GPUs: the rows of any other extraction, each document asked once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from test_extractions_at_once import tables

from rlfocal.jobs.runner import default_jobs, extract_pool
from rlfocal.pool import load_pool
from rlfocal.pool.specs import PoolSpec

EXTRACTION = """
import json, sys
from pathlib import Path
from rlfocal.jobs import runner
from rlfocal.pool.specs import PoolSpec

pool = PoolSpec.model_validate_json(Path(sys.argv[1]).read_text())
runner.PRELOADED = {"hf": (*runner.PRELOADED["hf"], "counted_engine")}
print("ready", flush=True)
sys.stdin.readline()
report = runner.extract_pool(sys.argv[2], pool, limit=8)
models, reasons = [c.model for c in report.committed], [gap.reason for gap in report.missing]
print(json.dumps([models, reasons, report.n_skipped]))
"""


@pytest.fixture
def pool() -> PoolSpec:
    """Two models and six partitions of the embedded pool; one model takes two GPUs."""
    chosen = load_pool("lab").choose(["lab-llama-small", "lab-gemma-small"], ["lab-musr"])
    wide, narrow = chosen.models
    return chosen.model_copy(update={"models": (wide.model_copy(update={"tensor_parallel": 2}), narrow)})


def box(folder: Path, name: str, gpus: str, pool: PoolSpec, warehouse: Path) -> subprocess.Popen[str]:
    """An extraction on a machine of its own, which waits for a line."""
    spec = folder / "pool.json"
    spec.write_text(pool.model_dump_json())
    paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    own = {
        "RLFOCAL_GPUS": gpus,
        "RLFOCAL_LEASES": str(folder / name),
        "COUNTED": str(folder / "counted"),
        "PYTHONPATH": paths,
        "OMP_NUM_THREADS": "1",
    }
    return subprocess.Popen(
        [sys.executable, "-c", EXTRACTION, str(spec), str(warehouse)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | own,
    )


@pytest.mark.slow
def test_machines_share_a_warehouse(tmp_path: Path, pool: PoolSpec) -> None:
    """Two boxes: one set of work, with the rows of an extraction without GPUs."""
    boxes = [box(tmp_path, name, gpus, pool, tmp_path / "w") for name, gpus in (("a", "0,1"), ("b", "0,1"))]
    for one in boxes:
        assert one.stdout is not None
        assert one.stdout.readline() == "ready\n"
    for one in boxes:
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    said = [one.communicate()[0] for one in boxes]
    reports = [json.loads(line) for line in said]
    assert [missing for _, missing, _ in reports] == [[], []]
    committed = [model for models, _, _ in reports for model in models]
    assert Counter(committed) == {model.model: 3 for model in pool.models}
    assert [len(models) + skipped for models, _, skipped in reports] == [6, 6]
    assert all(models for models, _, _ in reports), "both had something to do"
    assert set(Counter((tmp_path / "counted").read_text().splitlines()).values()) == {1}
    assert not extract_pool(tmp_path / "cpu", pool, limit=8).missing
    assert tables(str(tmp_path / "w")) == tables(str(tmp_path / "cpu"))


def test_how_many_models_run_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLFOCAL_GPUS", "0,1,2,3,4,5,6,7")
    assert [default_jobs(backend) for backend in ("hf", "vllm", "openai")] == [8, 8, 2]
    monkeypatch.setenv("RLFOCAL_GPUS", "")
    assert [default_jobs(backend) for backend in ("hf", "vllm", "openai")] == [2, 1, 2]
