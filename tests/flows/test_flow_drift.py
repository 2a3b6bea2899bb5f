"""A regeneration that finds other answers than before: marked and shown."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from prefect import get_client
from support.prefect_pool import asked_for
from support.tiny_models import save_model, write_tasks

from rlfocal.base.wording import points
from rlfocal.upkeep.drift import drift_since
from warehouse import Warehouse, open_warehouse


def run_ids(summary: Any) -> set[str]:
    return {row.run_id for row in summary.evaluations}


@pytest.mark.slow
def test_a_model_that_answers_otherwise_marks_the_run(prefect: None, tmp_path: Path) -> None:
    from flows.regenerate import regenerate

    write_tasks(tmp_path / "tasks")
    for name in ("llama", "gpt2"):
        save_model(tmp_path / name, name)
    asked = asked_for(tmp_path, "llama", "gpt2", place=tmp_path)
    first: Any = regenerate(**asked, return_state=True)
    assert first.name == "Completed"
    with open_warehouse(asked["warehouse"]) as warehouse:
        before = warehouse.snapshot()
    shutil.rmtree(tmp_path / "llama")
    save_model(tmp_path / "llama", "llama", seed=1)
    state: Any = regenerate(**asked, return_state=True)
    assert (state.name, state.is_completed()) == ("Drifted", True)
    assert "llama on tiny/plain" in str(state.message)
    summary: Any = state.result()
    assert {(key.model, key.benchmark) for key in summary.drift.beyond} == {("llama", "tiny")}
    runs = run_ids(summary)
    assert runs.isdisjoint(run_ids(first.result()))  # all was trained anew on what the models say now
    with open_warehouse(asked["warehouse"]) as warehouse:
        assert len(drift_since(warehouse, before).beyond) == 2
    with get_client(sync_client=True) as client:
        shown = [a for a in client.read_artifacts() if a.key == "regenerate-drift"]
    assert len(shown) == 1
    assert "| llama on tiny/plain |" in str(shown[0].data)
    again: Any = regenerate(**asked, return_state=True)
    assert again.name == "Completed"
    assert run_ids(again.result()) == runs
    with open_warehouse(asked["warehouse"]) as warehouse:
        promise_too_much(warehouse, "soft_vote")
    shutil.rmtree(tmp_path / "gpt2")
    save_model(tmp_path / "gpt2", "gpt2", seed=2)
    broken: Any = regenerate(**asked, return_state=True)
    assert (broken.name, broken.is_completed()) == ("Withdrawn", True)
    assert "soft_vote on tiny" in str(broken.message)
    with get_client(sync_client=True) as client:
        [page] = [a for a in client.read_artifacts() if a.key == "regenerate-promises"]
    assert "| withdrawn |" in str(page.data)


def promise_too_much(warehouse: Warehouse, method: str) -> None:
    """That one answer in a thousand is wrong, however unsure: of models that guess."""
    with warehouse.transaction("promise"):
        warehouse.connection.execute(
            "INSERT INTO promise_looks BY NAME SELECT run_id, benchmark, method, seed, 0.001 AS target, "
            "0 AS look, 0.0 AS threshold, 100 AS n, 100 AS answered, 0 AS wrong, 'train' AS data, snapshot, "
            "now() AS looked_at FROM runs WHERE method = ? ORDER BY created_at DESC LIMIT 1",
            [method],
        )


def shown_changes(key: str = "regenerate-accuracy") -> dict[str, str]:
    """The column of changes, by method, of the newest page."""
    with get_client(sync_client=True) as client:
        pages = sorted((a.created, str(a.data)) for a in client.read_artifacts() if a.key == key)
    rows = [
        [cell.strip(" *`") for cell in line.split("|")]
        for line in pages[-1][1].splitlines()
        if line.startswith("|")
    ]
    return {row[rows[0].index("method")]: row[rows[0].index("change")] for row in rows[2:]}


@pytest.mark.slow
def test_changes_are_those_since_the_last_run_that_came_to_its_end(
    prefect: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flows import regenerate as module

    write_tasks(tmp_path / "tasks")
    for name in ("llama", "gpt2"):
        save_model(tmp_path / name, name, seed=1)
    asked = asked_for(tmp_path, "llama", "gpt2", place=tmp_path)

    def accuracies(summary: Any) -> dict[str, float]:
        return {one.method: one.accuracy for board in summary.boards for one in board.standings}

    def die(*given: Any, **more: Any) -> Any:
        raise KeyboardInterrupt

    first = accuracies(module.regenerate(**asked))
    assert set(shown_changes().values()) == {"new"}
    for name in ("llama", "gpt2"):
        shutil.rmtree(tmp_path / name)
        save_model(tmp_path / name, name, seed=4)
    with monkeypatch.context() as killed:
        killed.setattr(module, "report_all", die)  # all is evaluated by then
        with pytest.raises(KeyboardInterrupt):
            module.regenerate(**asked)
    last = accuracies(module.regenerate(**asked))
    shown = shown_changes()
    assert shown == {method: points(last[method] - first[method]) for method in shown}
    assert shown["rl_focal"] != points(0.0), "its accuracy is as before: choose another seed"
