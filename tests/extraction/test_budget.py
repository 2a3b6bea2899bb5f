"""GPU-hours that a run may take: models stop in time, what they answered stays, and the next run goes on."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.probes import MODEL, ONE, TWO, WordEngine, job, running

from rlfocal import extract
from rlfocal.base.errors import InputError
from rlfocal.extraction import budget as budgets
from rlfocal.extraction.budget import GPUBudget
from rlfocal.extraction.engine import ChoiceScore, Document
from rlfocal.extraction.gpus import Device, Placement
from rlfocal.extraction.running.events import Progress
from rlfocal.extraction.running.processes import Send, run_each
from rlfocal.extraction.running.worker import extract_jobs
from warehouse import open_warehouse

BOX = [Device(str(i), f"budget-{i}") for i in range(2)]
STEPS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 8), st.booleans(), st.floats(0, 50)))


@given(STEPS, st.floats(1, 1000))
def test_hours_are_those_of_the_gpus_that_models_held(
    steps: list[tuple[str, int, bool, float]], seconds: float
) -> None:
    now, expected = 0.0, 0.0
    budget = GPUBudget(seconds / 3600, lambda: now)
    held: dict[str, int] = {}
    for model, gpus, begins, passes in steps:
        if begins:
            budget.begin(model, gpus)
            held.setdefault(model, gpus)
        else:
            budget.end(model)
            held.pop(model, None)
        was_ending = budget.is_ending
        now += passes
        expected += passes * sum(held.values())
        assert budget.hours == pytest.approx(expected / 3600)
        assert budget.is_ending or not (was_ending or budget.is_spent)
        if expected < 0.9 * seconds:
            assert not budget.is_ending
            assert not budget.is_spent
        if expected > 1.001 * seconds:
            assert budget.is_spent


@dataclass
class SlowEngine(WordEngine):
    """Takes a while for a document, and writes down on the disk what it was asked."""

    file: Path = Path()

    def score(self, documents: Sequence[Document]) -> Iterator[tuple[ChoiceScore, ...]]:
        for document in documents:
            time.sleep(0.03)
            with self.file.open("a") as asked:
                asked.write(f"{document.context}\n")
        return super().score(documents)


def answer(send: Send, location: str) -> None:
    with running(SlowEngine(file=Path(location).with_name("asked"))):
        extract_jobs(send, location, MODEL, "hf", [job(ONE), job(TWO)], 1)


def sleep(send: Send, seconds: float) -> None:
    time.sleep(seconds)


def committed(location: Path) -> set[str]:
    with open_warehouse(location, read_only=True) as warehouse:
        return {key.task for key in warehouse.committed_partitions()}


def test_a_model_stops_between_two_groups_of_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second passes at each group of two documents; a task has six."""
    monkeypatch.setattr(budgets, "SHARE_TO_STOP", 0.5)
    location = tmp_path / "w"
    events: list[Progress] = []
    open_warehouse(location).close()
    budget = GPUBudget(40 / 3600, lambda: float(len(events)))

    def note(_: str, event: Any) -> None:
        if isinstance(event, Progress):
            events.append(event)

    def run(budget: GPUBudget | None) -> str | None:
        placement = Placement(BOX, tmp_path, {"m": 2}, budget=budget)
        [reason] = run_each(
            answer, {"m": (str(location),)}, at_once=1, on_event=note, gpus=placement
        ).values()
        return reason

    assert run(budget) == budget.reason
    assert committed(location) == {"one"}
    assert 10 <= len(events) < 12
    assert 20 / 3600 <= budget.hours < 24 / 3600
    asked = (tmp_path / "asked").read_text().splitlines()
    assert len(asked) == 2 * len(events)
    assert run(None) is None
    assert committed(location) == {"one", "two"}
    asked = (tmp_path / "asked").read_text().splitlines()
    assert Counter(asked) == Counter(f"{task} {i}" for task in ("one", "two") for i in range(12))


def test_what_does_not_stop_is_ended_and_what_waits_does_not_begin(tmp_path: Path) -> None:
    """But a model that uses no GPU goes on."""
    budget = GPUBudget(2 / 3600)
    widths = {"hangs": 2, "waits": 1, "served": 0}
    jobs = {"hangs": (600.0,), "waits": (0.0,), "served": (6.0,)}
    started = time.monotonic()
    ended = run_each(
        sleep, jobs, at_once=2, on_event=print, gpus=Placement(BOX, tmp_path, widths, budget=budget)
    )
    assert ended == {"hangs": budget.reason, "waits": budget.reason, "served": None}
    assert time.monotonic() - started < 60


def test_where_no_gpu_is_counted_a_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLFOCAL_GPUS", "")
    for hours, reason in ((1.0, "limits the use of GPUs"), (0.0, "at least 0.001")):
        with pytest.raises(InputError, match=reason):
            extract("lab", tmp_path / "w", limit=1, gpu_hours=hours)
    assert not (tmp_path / "w").exists()
