"""The study of what a diversity metric adds to choosing a team, given accuracies of team and members."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from benchmarks.studies.choosing import (
    MAX_TEAM_SIZE,
    Occasions,
    candidate_teams,
    describe,
    gains,
    log_linear_hits,
    vote_hits,
)
from benchmarks.studies.study import Conditions, Point, StudyResult, point
from rlfocal.base.arrays import Floats, Ints
from rlfocal.base.errors import InputError
from rlfocal.data.dataset import Dataset
from rlfocal.methods.checking import read_value
from rlfocal.statistics.intervals import Difference, holm, mean_over_units
from rlfocal.statistics.metrics import METRICS

LABEL_COUNTS = (10, 20, 50, 100, 250, 500)
MAX_CHOICE_LABELS = 100
"""The largest number of drawn labels from which a team is chosen; a window may be longer."""
DRAWS_OF_TRAIN, DRAWS = 100, 20
"""The number of draws of labels to fit a rule on, and of draws per task to choose a team from."""
STEP, MOST_STEPS = 10, 200
"""The number of documents that a window's team answers, and roughly the largest number of windows."""
PIECES, FEWEST_TASKS = 10, 5
"""Consecutive documents are cut into PIECES, in place of tasks, if test has fewer than FEWEST_TASKS."""
WITHOUT, NOISE, HINDSIGHT = "the accuracies alone", "noise", "best in hindsight"
Occasion = tuple[Floats, Floats, str, str]
"""Teams' features (P, F) and accuracies (P,), the group and the task of one occasion, as in `Occasions`."""


def diversity(conditions: Conditions, values: Sequence[Any]) -> StudyResult:
    """The gain of each metric over no metric, by number of labels, source of labels, and fusion."""
    counts = [_read_count(value) for value in values]
    data = cut(conditions.setup.dataset)
    if len(data.models) < 3:
        raise InputError(f"a team is chosen from 3 models or more; {data.benchmark!r} has {len(data.models)}")
    teams = candidate_teams(len(data.models))
    fusions = {"vote": vote_hits}
    if data.kind == "choices":
        fusions["log-linear"] = log_linear_hits
    points = []
    for fusion, answer in fusions.items():
        candidates = Candidates(data, teams, answer(data, teams))
        for way, occasions in LABEL_SOURCES.items():
            for n in counts if way != TRANSFER_SOURCE else counts[:1]:
                of_train, of_test = (occasions(candidates, is_train, n) for is_train in (True, False))
                if of_train and len({task for *_, task in of_test}) >= FEWEST_TASKS:
                    label = way if way == TRANSFER_SOURCE else f"{way}, {n}"
                    x = None if way == TRANSFER_SOURCE else float(n)
                    points += compare(
                        f"{label}; {fusion}",
                        x,
                        candidates,
                        _stack_occasions(of_train),
                        _stack_occasions(of_test),
                    )
    return StudyResult(
        _correct_p_values(points),
        [_summarise_gains(points), _describe_teams(conditions.setup.dataset, data, teams)],
    )


@dataclass(frozen=True)
class Candidates:
    """The candidate teams, and the documents on which each is right."""

    data: Dataset
    teams: np.ndarray[Any, Any]
    hits: Floats
    """(T, P) 1 where a team is right on a document"""

    @cached_property
    def rows(self) -> dict[tuple[bool, str], Ints]:
        """The rows of documents, by whether they are train documents, and by task."""
        return {
            (is_train, str(task)): np.flatnonzero(
                (self.data.is_train == is_train) & (self.data.tasks == task)
            )
            for is_train in (True, False)
            for task in np.unique(self.data.tasks[self.data.is_train == is_train])
        }

    def tasks(self, is_train: bool) -> dict[str, Ints]:
        return {task: rows for (of_train, task), rows in self.rows.items() if of_train == is_train}

    def describe(self, rows: Ints, draw: int) -> Floats:
        return describe(self.data.take(rows), self.teams, self.hits[rows], tuple(METRICS), draw)

    def measure_accuracy(self, rows: Ints) -> Floats:
        return np.asarray(self.hits[rows].mean(axis=0))


def draw_benchmark_occasions(candidates: Candidates, is_train: bool, n: int) -> list[Occasion]:
    """Occasions to choose a team by n train documents of any tasks. With `is_train`, the accuracies are those
    on other train documents, to fit a rule; else those on test."""
    rng, occasions = np.random.default_rng([n, is_train]), []
    train = np.flatnonzero(candidates.data.is_train)
    if n > min(MAX_CHOICE_LABELS, len(train) // 2):
        return []
    for task, rows in ({"": train} if is_train else candidates.tasks(False)).items():
        for draw in range(DRAWS_OF_TRAIN if is_train else DRAWS):
            order = rng.permutation(train)
            worth = candidates.measure_accuracy(order[n:] if is_train else rows)
            occasions.append((candidates.describe(order[:n], draw), worth, "" if is_train else "test", task))
    return occasions


def draw_task_occasions(candidates: Candidates, is_train: bool, n: int) -> list[Occasion]:
    """Occasions to choose a team for a task by n of its train documents; rules are fitted on other tasks."""
    rng, occasions = np.random.default_rng(n), []
    tests = candidates.tasks(False)
    for task, train in candidates.tasks(True).items():
        if task not in tests or n > min(MAX_CHOICE_LABELS, len(train) // 2):
            continue
        for draw in range(DRAWS):
            order = rng.permutation(train)
            worth = candidates.measure_accuracy(order[n:] if is_train else tests[task])
            occasions.append((candidates.describe(order[:n], draw), worth, task, task))
    return occasions


def draw_transfer_occasions(candidates: Candidates, is_train: bool, n: int) -> list[Occasion]:
    """Occasions to choose a team by all train documents of another task; rules come from other tasks."""
    trained = candidates.tasks(True)
    described = {
        task: candidates.describe(rows, number) for number, (task, rows) in enumerate(trained.items())
    }
    return [
        (features, worth, goal, goal)
        for goal, rows in candidates.tasks(is_train).items()
        for worth in [candidates.measure_accuracy(rows)]
        for task, features in described.items()
        if task != goal
    ]


def draw_window_occasions(candidates: Candidates, is_train: bool, n: int) -> list[Occasion]:
    """Occasions to choose a team by a stream's last n documents for the next; rules come from train's
    stream."""
    stream = np.flatnonzero(candidates.data.is_train == is_train)
    if n > len(stream) // 2:
        return []
    step = STEP * max(1, len(stream) // (STEP * MOST_STEPS))
    return [
        (
            candidates.describe(stream[start - n : start], start),
            candidates.measure_accuracy(stream[start : start + STEP]),
            "train" if is_train else "test",
            str(candidates.data.tasks[stream[start]]),
        )
        for start in range(n, len(stream) - STEP + 1, step)
    ]


TRANSFER_SOURCE = "another task's labels"
LABEL_SOURCES: dict[str, Callable[[Candidates, bool, int], list[Occasion]]] = {
    "any tasks' labels": draw_benchmark_occasions,
    "the task's labels": draw_task_occasions,
    TRANSFER_SOURCE: draw_transfer_occasions,
    "a window": draw_window_occasions,
}
"""By source of labels, the function that draws occasions from candidates, `is_train`, number of labels."""


def compare(
    label: str, x: float | None, on: Candidates, train_occasions: Occasions, occasions: Occasions
) -> list[Point]:
    """Points of teams chosen without a metric, with each, with noise, and in hindsight: means over tasks."""
    chosen = gains(train_occasions, occasions)
    chosen = {WITHOUT: chosen.pop("")} | chosen | {HINDSIGHT: _score_best_teams(on, occasions)}
    task_of = np.unique(occasions.tasks, return_inverse=True)[1]
    sizes = np.bincount(task_of)
    by_task = {name: np.bincount(task_of, worth) / sizes for name, worth in chosen.items()}
    documents = int((~on.data.is_train).sum())
    points = []
    for name, worth in by_task.items():
        gain = mean_over_units(worth - by_task[WITHOUT]) if name != WITHOUT else None
        more = {} if gain is None else _gain_fields(gain)
        points.append(point(name, label, x, documents, [float(worth.mean())], **more))
    return points


def _score_best_teams(on: Candidates, occasions: Occasions) -> Floats:
    """(E,) the accuracy of the best team in hindsight on the test documents of each occasion's task."""
    best = {task: float(on.measure_accuracy(rows).max()) for task, rows in on.tasks(False).items()}
    return np.array([best[task] for task in occasions.tasks.tolist()])


def cut(data: Dataset) -> Dataset:
    """The dataset; pieces of consecutive documents replace tasks if test has fewer than FEWEST_TASKS."""
    if len(np.unique(data.tasks[~data.is_train])) >= FEWEST_TASKS:
        return data
    tasks = np.empty(len(data), dtype="<U16")
    for name, rows in (("train", np.flatnonzero(data.is_train)), ("test", np.flatnonzero(~data.is_train))):
        tasks[rows] = [f"{name} {PIECES * row // len(rows)}" for row in range(len(rows))]
    return replace(data, tasks=tasks)


def _stack_occasions(occasions: Sequence[Occasion]) -> Occasions:
    features, worth, groups, tasks = zip(*occasions, strict=True)
    return Occasions(np.stack(features), np.stack(worth), np.array(groups), np.array(tasks))


def _gain_fields(gain: Difference) -> dict[str, Any]:
    return {"gain": (gain.mean, gain.low, gain.high), "p_value": gain.p_value}


def _metrics_of(points: Sequence[Point]) -> Iterator[int]:
    """Yields the positions of points of a metric that have a p-value."""
    return (place for place, p in enumerate(points) if p.series in METRICS and p.p_value is not None)


def _correct_p_values(points: list[Point]) -> list[Point]:
    """The points, with p-values of metrics adjusted by Holm's method over all metrics' points."""
    places = list(_metrics_of(points))
    adjusted = holm(np.array([points[i].p_value for i in places])).tolist() if places else []
    corrected = dict(zip(places, adjusted, strict=True))
    return [replace(p, p_value=corrected.get(i)) for i, p in enumerate(points)]


def _summarise_gains(points: Sequence[Point]) -> str:
    compared = [p for p in _correct_p_values(list(points)) if p.p_value is not None and p.gain is not None]
    if not compared:
        return "There are too few tasks, or too few documents, to compare anything."
    certain = [p for p in compared if p.p_value is not None and p.p_value < 0.05]
    better = sum(p.gain is not None and p.gain[0] > 0 for p in certain)
    focal = [p.gain for p in compared if p.series == "focal_diversity" and p.gain is not None]
    means, rooms = [100 * gain[0] for gain in focal], [p.gain for p in points if p.series == HINDSIGHT]
    room = 100 * float(np.mean([gain[0] for gain in rooms if gain is not None]))
    return (
        f"{len(compared)} comparisons of a metric with none, corrected by Holm's method: {better} certainly "
        f"better, {len(certain) - better} certainly worse. Focal diversity adds {min(means):+.2f} to "
        f"{max(means):+.2f} points (the highest upper limit: "
        f"{100 * max(gain[2] for gain in focal):+.2f}). The best team in hindsight is {room:.1f} points "
        "above the chosen one, on average, some of it luck."
    )


def _describe_teams(given: Dataset, data: Dataset, teams: np.ndarray[Any, Any]) -> str:
    tasks = (
        f"{len(np.unique(data.tasks[~data.is_train]))} tasks of test, each counting equally"
        if data is given
        else f"{PIECES} pieces of consecutive test documents, in place of tasks"
    )
    return (
        f"{len(teams):,} candidate teams of 2 to {min(MAX_TEAM_SIZE, len(data.models))} models; a linear "
        f"rule, fitted on train alone, chooses one. 95 % t-intervals over {tasks}."
    )


def _read_count(value: Any) -> int:
    count: int = read_value(str(value), 10, "number of labels")
    if count < 2:
        raise InputError(f"teams cannot be compared with {count} labels; give 2 or more")
    return count
