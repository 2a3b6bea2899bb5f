"""A regeneration that finds other answers than before: marked and shown."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from prefect import get_client
from prefect.events.filters import EventFilter, EventNameFilter
from prefect.settings import PREFECT_API_URL
from support.killing import kill_tree
from support.night import ROOT
from support.prefect_pool import asked_for
from support.tiny_models import save_model, write_tasks

from rlfocal.base.wording import points
from rlfocal.evaluation.promising import stored_promises
from rlfocal.extraction import extract
from rlfocal.pool import load_pool
from rlfocal.upkeep.drift import drift_since
from warehouse import Warehouse, open_warehouse


def run_ids(summary: Any) -> set[str]:
    return {row.run_id for row in summary.evaluations}


KILLED = """
import json, sys, time
from flows import regenerate as module

def wait(*_):
    print("committed", flush=True)
    time.sleep(600)

if __name__ == "__main__":
    module.look_at_promises = wait
    module.regenerate(**json.loads(sys.argv[1]))
"""
"""A regeneration that stands still once all partitions are committed."""


def killed_after_its_commits(script: Path, asked: dict[str, Any]) -> None:
    """A regeneration, on the same server, that gets SIGKILL before it looks at promises and drift."""
    script.write_text(KILLED)
    environment = os.environ | {"PREFECT_API_URL": str(PREFECT_API_URL.value()), "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, str(script), json.dumps(asked)],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment,
    )  # fmt: skip
    assert process.stdout is not None
    assert "committed\n" in process.stdout
    kill_tree(process)


def events(name: str, n: int) -> int:
    """How many of these events the server has, once it has n."""
    asked = EventFilter(event=EventNameFilter(name=[f"prefect.flow-run.{name}"]))
    end = time.monotonic() + 60
    with get_client(sync_client=True) as client:
        while (found := len(client.read_events(asked, limit=50).events)) < n and time.monotonic() < end:
            time.sleep(0.5)
    return found


@pytest.mark.slow
def test_promises_and_drift_are_looked_at_whoever_changed_the_answers(prefect: None, tmp_path: Path) -> None:
    """A run that was killed after its commits, an extraction of its own, and a run that ends too soon."""
    from flows import regenerate as module

    regenerate = module.regenerate
    write_tasks(tmp_path / "tasks")
    for name in ("llama", "gpt2"):
        save_model(tmp_path / name, name)
    asked = asked_for(tmp_path, "llama", "gpt2", place=tmp_path)
    first: Any = regenerate(**asked, return_state=True)
    assert first.name == "Completed"
    with open_warehouse(asked["warehouse"]) as warehouse:
        before = warehouse.snapshot()
        promise_too_much(warehouse, "soft_vote")
    shutil.rmtree(tmp_path / "llama")
    save_model(tmp_path / "llama", "llama", seed=1)
    killed_after_its_commits(tmp_path / "killed.py", asked)
    with open_warehouse(asked["warehouse"]) as warehouse:
        assert len(drift_since(warehouse, before).exceeded_limits) == 2
        assert [one.state for one in stored_promises(warehouse)] == ["not tested"]

    broken: Any = regenerate(**asked, return_state=True)
    assert (broken.name, broken.is_completed()) == ("Withdrawn", True)
    assert "soft_vote on tiny" in str(broken.message)
    summary: Any = broken.result()
    assert (summary.extracted, len(summary.withdrawn)) == (0, 1)
    assert {(key.model, key.benchmark) for key in summary.drift.exceeded_limits} == {("llama", "tiny")}
    assert run_ids(summary).isdisjoint(run_ids(first.result())), "all is trained anew on the new answers"
    assert events("Withdrawn", 1) == 1
    pages = shown_pages()
    assert "| withdrawn |" in pages["regenerate-promises"]
    assert "| llama on tiny/plain |" in pages["regenerate-drift"]
    again: Any = regenerate(**asked, return_state=True)
    assert (again.name, again.result().drift) == ("Completed", None)
    assert run_ids(again.result()) == run_ids(summary)

    shutil.rmtree(tmp_path / "gpt2")
    save_model(tmp_path / "gpt2", "gpt2", seed=2)
    assert extract(load_pool(asked["pool"]), asked["warehouse"]).committed
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "report_all", die)  # all is looked at by then
        with pytest.raises(KeyboardInterrupt):
            regenerate(**asked)
    drifted: Any = regenerate(**asked, return_state=True)
    assert (drifted.name, drifted.is_completed()) == ("Drifted", True)
    assert "gpt2 on tiny/plain" in str(drifted.message)
    assert {key.model for key in drifted.result().drift.exceeded_limits} == {"gpt2"}
    assert events("Drifted", 1) == 1


def die(*_: Any, **__: Any) -> Any:
    raise KeyboardInterrupt


def shown_pages() -> dict[str, str]:
    """The artifacts' texts by key."""
    with get_client(sync_client=True) as client:
        return {str(made.key): str(made.data) for made in client.read_artifacts()}


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
    return {row[rows[0].index("method")]: row[rows[0].index("change↑")] for row in rows[2:]}


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
        return {one.method: one.accuracy for board in summary.boards for one in board.rows}

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
