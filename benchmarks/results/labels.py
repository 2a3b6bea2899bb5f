"""Results by number of labels: each method's gain over the best single model."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.results.evaluations import rounded
from benchmarks.results.revisions import revision
from rlfocal.base.arrays import Floats
from rlfocal.base.names import START_METHOD
from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import Fitted, decide
from rlfocal.evaluation.advising import Room, room
from rlfocal.evaluation.planning import read_dataset
from rlfocal.methods import RLFocal, make_method
from rlfocal.methods.rl_focal.agents import PoolAgents
from rlfocal.scenarios.scenario import keep_labels
from rlfocal.statistics.intervals import mean_over_units, paired_by_seed
from warehouse import Warehouse

SINGLE = "best_single"
METHODS = (START_METHOD, "log_linear", "rl_focal", "rl_focal_sequential")
LABELS = (10, 20, 50, 120, 300)
COMMAND = "make results DATA=DIR ONLY=labels"


@dataclass(frozen=True)
class Outcome:
    """The results of a fitted policy on T test documents."""

    right: Floats
    """(T,) 1 where the policy's answer is right"""
    n_asked: float
    """The mean number of models asked per document"""


@dataclass(frozen=True)
class LabelTable:
    """Results of every method on one benchmark, fitted to random draws of n train documents and to all."""

    benchmark: str
    labels: tuple[int, ...] = LABELS
    draws: int = 5
    fits_of_all: int = 1
    """The number of fits to all train documents, which differ in their training seed alone."""
    command: str = COMMAND

    @property
    def about(self) -> dict[str, Any]:
        return _describe_board(self.benchmark, "labels")

    def rows(self, warehouse: Warehouse, at_once: int = 1) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        data, started = read_dataset(warehouse, self.benchmark, None).hide_tasks(), time.process_time()
        n_train = int(data.is_train.sum())
        made = [
            row for n in self.labels if n < n_train for row in self._measure_labels(data, n, f"{n} labels")
        ]
        made += self._measure_labels(data, n_train, "all labels")
        about = {
            "models": len(data.models),
            "documents": len(data.test),
            "train": n_train,
            "data": data.fingerprint()[:12],
            "seconds": round(time.process_time() - started, 1),
        }
        return about, made

    def _measure_labels(self, data: Dataset, n: int, label: str) -> Iterator[dict[str, Any]]:
        """Yields each method's row with n labels; gains are over the best single model of the same draw."""
        draws = self.draws if n < data.is_train.sum() else self.fits_of_all
        outcomes = [outcomes_of(data, keep_labels(data, n, draw).train, draw) for draw in range(draws)]
        single = np.stack([one[SINGLE].right for one in outcomes])
        for name in (SINGLE, *METHODS):
            right = np.stack([one[name].right for one in outcomes])
            yield {
                "method": name,
                "label": label,
                "x": n,
                "seeds": draws,
                "budget": None,
                "accuracy": round(float(right.mean()), 6),
                "mean_pool_size": round(float(np.mean([one[name].n_asked for one in outcomes])), 4),
                "above": {} if name == SINGLE else {SINGLE: rounded(paired_by_seed(right, single))},
                "revision": revision(name, (), "frozen"),
            }


@dataclass(frozen=True)
class SmallPoolTable:
    """Results on small pools drawn at random from each benchmark's models, by thirds of the pools. Pools are
    sorted into thirds by each measure of `Room`, which says how much a pool can gain."""

    sizes: tuple[tuple[str, int], ...]
    """Pairs of a benchmark and the number of models in its pools."""
    labels: tuple[int, ...] = (20, 120, 1_000)
    pools: int = 5
    """The number of pools of each benchmark; every pool has its own draw of labels."""
    command: str = COMMAND

    @property
    def about(self) -> dict[str, Any]:
        return _describe_board("small pools", "small pools")

    def rows(self, warehouse: Warehouse, at_once: int = 1) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        rooms: list[Room] = []
        gains: list[dict[tuple[int, str], float]] = []
        started, n_test = time.process_time(), 0
        for benchmark, size in self.sizes:
            whole = read_dataset(warehouse, benchmark, None).hide_tasks()
            n_test += len(whole.test)
            for seed in range(self.pools):
                members = np.random.default_rng(seed).choice(len(whole.models), size, replace=False)
                data = whole.reorder(np.sort(members))
                rooms.append(room(data.correct))
                gains.append(self._measure_gains(data, seed))
        sizes = sorted({size for _, size in self.sizes})
        about = {
            "models": " or ".join(map(str, sizes)),
            "documents": n_test,
            "seconds": round(time.process_time() - started, 1),
        }
        return about, list(self._summarise_thirds(rooms, gains))

    def _measure_gains(self, data: Dataset, seed: int) -> dict[tuple[int, str], float]:
        """By number of labels and method, the method's accuracy minus the best single model's."""
        found = {}
        for n in self.labels:
            outcomes = outcomes_of(data, keep_labels(data, n, seed).train, seed)
            for name in METHODS:
                found[n, name] = float(outcomes[name].right.mean() - outcomes[SINGLE].right.mean())
        return found

    def _summarise_thirds(
        self, rooms: Sequence[Room], gains: Sequence[Mapping[tuple[int, str], float]]
    ) -> Iterator[dict[str, Any]]:
        for measure in Room._fields:
            values = np.array([getattr(one, measure) for one in rooms])
            for part in np.array_split(np.argsort(values, kind="stable"), 3):
                for n, name in gains[0]:
                    found = mean_over_units(np.array([gains[at][n, name] for at in part]))
                    yield {
                        "method": name,
                        "measure": measure,
                        "from": round(float(values[part].min()), 4),
                        "to": round(float(values[part].max()), 4),
                        "pools": len(part),
                        "label": f"{n:,} labels",
                        "x": n,
                        "seeds": 1,
                        "above": {SINGLE: rounded(found)},
                        "revision": revision(name, (), "frozen"),
                    }


def outcomes_of(data: Dataset, train: Dataset, seed: int) -> Mapping[str, Outcome]:
    """By method, the outcome on test documents after a fit to `train`. `rl_focal`'s start comes from the same
    fit as `rl_focal`."""
    [agents] = RLFocal().fit(train, [seed])
    assert isinstance(agents, PoolAgents)
    fitted: dict[str, Fitted] = {START_METHOD: agents.restore_start(), "rl_focal": agents}
    for name in (SINGLE, "log_linear", "rl_focal_sequential"):
        [fitted[name]] = make_method(name).fit(train, [seed])
    return {name: _measure_outcome(policy, data.test) for name, policy in fitted.items()}


def _measure_outcome(policy: Fitted, test: Dataset) -> Outcome:
    decided = decide(policy, test.hide_labels())
    right = test.is_right(decided.predictions).astype(np.float64)
    return Outcome(right, float(decided.pools.sum(axis=1).mean()))


def _describe_board(benchmark: str, study: str) -> dict[str, Any]:
    return {
        "benchmark": benchmark,
        "per": "benchmark",
        "protocol": "frozen",
        "study": study,
        "settings": [],
    }
