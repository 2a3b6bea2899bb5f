"""A regeneration that finds other answers than before: marked, shown, and kept from training if asked."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from support.prefect_pool import write_pool
from support.tiny_models import save_model, write_tasks

from flows.drift import DriftLimits, rows_to_train_on
from rlfocal.upkeep.drift import drift_since
from warehouse import open_warehouse
from warehouse.store import Committed, PartitionKey


def run_ids(summary: Any) -> set[str]:
    return {row.run_id for row in summary.evaluations}


@pytest.mark.slow
def test_a_model_that_answers_otherwise_marks_the_run(prefect: None, tmp_path: Path) -> None:
    from prefect.client.orchestration import get_client

    from flows.regenerate import regenerate

    write_tasks(tmp_path / "tasks")
    for name in ("llama", "gpt2"):
        save_model(tmp_path / name, name)
    asked: dict[str, Any] = {
        "pool": str(write_pool(tmp_path, {name: tmp_path / name for name in ("llama", "gpt2")})),
        "warehouse": str(tmp_path / "warehouse"),
        "report": str(tmp_path / "report.html"),
        "seeds": 1,
    }
    first: Any = regenerate(**asked, return_state=True)
    assert first.name == "Completed"
    with open_warehouse(asked["warehouse"]) as warehouse:
        before = warehouse.snapshot()
    shutil.rmtree(tmp_path / "llama")
    save_model(tmp_path / "llama", "llama", seed=1)
    given: dict[str, Any] = asked | {"drift": DriftLimits(keep_training=True)}
    state: Any = regenerate(**given, return_state=True)
    assert (state.name, state.is_completed()) == ("Drifted", True)
    assert "llama drifted on 2 tasks" in str(state.message)
    summary: Any = state.result()
    assert {(row.model, row.benchmark) for row in summary.drift.beyond} == {("llama", "tiny")}
    runs = run_ids(summary)
    assert runs == run_ids(first.result())  # nothing was trained on what drifted
    assert "llama drifted on 2 tasks" in (tmp_path / "report.html").read_text("utf-8")
    with open_warehouse(asked["warehouse"]) as warehouse:
        assert len(drift_since(warehouse, before).beyond) == 2
    with get_client(sync_client=True) as client:
        shown = [a for a in client.read_artifacts() if a.key == "regenerate-drift"]
    assert len(shown) == 1
    assert "| llama | tiny/plain |" in str(shown[0].data)
    again: Any = regenerate(**asked, return_state=True)
    assert again.name == "Completed"
    assert run_ids(again.result()).isdisjoint(runs)


def test_training_keeps_to_the_models_that_had_answered_all() -> None:
    from types import SimpleNamespace

    keys = [("m", "b", "s"), ("m", "b", "t"), ("half", "b", "s"), ("m", "c", "u")]
    before = {PartitionKey(*key): Committed("", "", 1) for key in keys}
    drift: Any = SimpleNamespace(beyond=(SimpleNamespace(benchmark="b"),), before=7)
    keep = DriftLimits(keep_training=True)
    assert rows_to_train_on(drift, keep, "b", before) == (7, {"m"})
    assert rows_to_train_on(drift, keep, "c", before) == (None, None)
    assert rows_to_train_on(drift, DriftLimits(), "b", before) == (None, None)
    assert rows_to_train_on(None, keep, "b", before) == (None, None)
