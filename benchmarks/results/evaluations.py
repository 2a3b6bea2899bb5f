"""Evaluations of methods on a benchmark, as rows of a results file."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from statistics import fmean, stdev
from typing import Any

import numpy as np

from benchmarks.results.revisions import revision
from rlfocal.base.arrays import Floats, Texts
from rlfocal.base.names import Protocol
from rlfocal.evaluation import Evaluation, evaluate
from rlfocal.evaluation.leaderboard import correct_by_document
from rlfocal.evaluation.planning import TRIALS_KEY, Per, read_dataset
from rlfocal.statistics.intervals import (
    Difference,
    paired_by_seed,
    paired_difference,
    paired_over_tasks,
)
from warehouse import Warehouse
from warehouse.scripts import script

Key = tuple[str, str | None]
"""A method and its budget; None: no budget."""


@dataclass(frozen=True)
class EvaluationTable:
    """An evaluation on one benchmark. Fitted per task, every figure is the unweighted mean over tasks."""

    benchmark: str
    methods: tuple[str, ...] = ()
    """The methods that are evaluated; empty: the default ones."""
    seeds: int = 3
    per: Per = "benchmark"
    protocol: Protocol = "frozen"
    split: str = "given"
    budgets: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    tune: int = 0
    """The number of trials by which settings are chosen; 0: the default settings."""
    label: str = ""
    """A phrase that tells the evaluation from others of its file; empty where none is needed."""
    above: tuple[str, ...] = ("best_single",)
    """The methods from which differences are measured, at the same budget where they have one."""
    base: EvaluationTable | None = None
    """An evaluation of the same methods, from which differences in decisions and accuracy are measured."""

    @property
    def command(self) -> str:
        said = ["rlfocal", "evaluate", "-b", self.benchmark]
        said += ["--methods", ",".join(self.methods)] if self.methods else []
        said += ["--seeds", str(self.seeds)]
        said += ["--per", self.per] if self.per != "benchmark" else []
        said += ["--protocol", self.protocol] if self.protocol != "frozen" else []
        said += ["--split", self.split] if self.split != "given" else []
        said += ["--models", ",".join(self.models)] if self.models else []
        said += ["--budgets", ",".join(self.budgets)] if self.budgets else []
        said += ["--tune", str(self.tune)] if self.tune else []
        return shlex.join([*said, *(part for one in self.settings for part in ("--set", one))])

    @property
    def about(self) -> dict[str, Any]:
        return {
            "benchmark": self.benchmark,
            "per": self.per,
            "protocol": self.protocol,
            "split": self.split,
            "label": self.label,
            "settings": list(self.settings),
        }

    def digest_data(self, warehouse: Warehouse) -> str:
        """The first twelve digits of the fingerprint of what is evaluated."""
        data = read_dataset(warehouse, self.benchmark, self.models or None, split=self.split)
        return data.fingerprint()[:12]

    def evaluate(self, warehouse: Warehouse, at_once: int = 1) -> _Runs:
        report = evaluate(
            warehouse,
            self.benchmark,
            methods=self.methods or None,
            models=self.models or None,
            seeds=self.seeds,
            per=self.per,
            protocol=self.protocol,
            split=self.split,
            budgets=self.budgets,
            at_once=at_once,
            settings=self.settings,
            tune=self.tune,
        )
        return _Runs(warehouse, self.benchmark, self.per, report.rows)

    def rows(self, warehouse: Warehouse, at_once: int = 1) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        runs = self.evaluate(warehouse, at_once)
        base = self.base.evaluate(warehouse) if self.base else None
        rows = [runs.row(key, self.above) for key in runs.seeds]
        for row in rows:
            row["revision"] = revision(row["method"], self.settings, self.protocol)
            if self.tune:
                row["chosen"] = runs.list_chosen_settings(row["method"])
            if base and (row["method"], None) in base.seeds:
                row["changed"] = _measure_changes(runs, base, row["method"])
                row["above_base"] = {"": _compare_with_base(runs, base, row["method"])}
        first = runs.pooled[0]
        data = {
            "models": len(first.models),
            "documents": first.n,
            "tasks": len(runs.tasks),
            "data": first.data[:12],
        }
        return data | {"seconds": round(runs.seconds, 1)}, rows


def step_of(block: Mapping[str, Any], row: Mapping[str, Any]) -> EvaluationTable:
    """The evaluation that computes one row of a results file's block anew."""
    return EvaluationTable(
        block["benchmark"],
        (row["method"],),
        seeds=row["seeds"] or 1,
        per=block["per"],
        protocol=block["protocol"],
        split=block["split"],
        budgets=(row["budget"],) if row["budget"] else (),
        settings=tuple(block["settings"]),
        above=(),
    )


@dataclass(frozen=True)
class _Runs:
    """The stored runs of an evaluation."""

    warehouse: Warehouse
    benchmark: str
    per: str
    stored: tuple[Evaluation, ...]

    @cached_property
    def pooled(self) -> list[Evaluation]:
        return [row for row in self.stored if row.task == "*"]

    @property
    def tasks(self) -> set[str]:
        return {row.task for row in self.stored} - {"*"}

    @property
    def seconds(self) -> float:
        """The seconds to fit and decide, summed over methods and seeds; runs with a budget do not count."""
        return sum(row.seconds for row in self.pooled if row.budget is None)

    @cached_property
    def seeds(self) -> dict[Key, list[Evaluation]]:
        """The runs over all tasks, one per seed, of each method at each budget."""
        found: dict[Key, list[Evaluation]] = {}
        for row in self.pooled:
            found.setdefault((row.method, row.budget), []).append(row)
        return found

    def list_chosen_settings(self, method: str) -> dict[str, Any]:
        """The method's settings that a search chose and that differ from the defaults."""
        settings = self.seeds[method, None][0].settings
        return {name: value for name, value in sorted(settings.items()) if name != TRIALS_KEY}

    def row(self, key: Key, above: tuple[str, ...]) -> dict[str, Any]:
        method, budget = key
        seeds = self.seeds[key]
        accuracies = [self._mean(one, "accuracy") for one in seeds]
        costs = [self._mean(one, "cost") for one in seeds]
        cost = fmean(costs)
        others = {name: other for name in above if (other := self._find_key(name, budget)) and other != key}
        return {
            "method": method,
            "budget": budget,
            "seeds": len(seeds) if seeds[0].seed is not None else None,
            "accuracy": round(fmean(accuracies), 6),
            "stderr_seeds": round(stdev(accuracies) / sqrt(len(seeds)), 6) if len(seeds) > 1 else None,
            "stderr_docs": round(fmean(map(self._stderr, seeds)), 6),
            "mean_pool_size": round(fmean(self._mean(one, "mean_pool_size") for one in seeds), 4),
            "mean_rounds": round(fmean(self._mean(one, "mean_rounds") for one in seeds), 4),
            "cost": None if np.isnan(cost) else round(cost, 6),
            "seconds": round(sum(one.seconds for one in seeds), 1),
            "above": {name: self._difference(key, other) for name, other in others.items()},
            "above_tasks": {name: self._difference(key, other, whole=True) for name, other in others.items()}
            if len(self.tasks) > 1
            else {},
            "date": max(one.created_at for one in seeds).date().isoformat(),
        }

    def _find_key(self, method: str, budget: str | None) -> Key | None:
        return next((key for key in ((method, budget), (method, None)) if key in self.seeds), None)

    def _select_task_rows(self, one: Evaluation) -> list[Evaluation]:
        rows = [row for row in self.stored if row.run_id == one.run_id and row.task != "*"]
        return rows if self.per == "task" else [one]

    def _mean(self, one: Evaluation, figure: str) -> float:
        values = [getattr(row, figure) for row in self._select_task_rows(one)]
        return fmean(np.nan if value is None else value for value in values)

    def _stderr(self, one: Evaluation) -> float:
        rows = self._select_task_rows(one)
        return sqrt(sum(row.accuracy * (1 - row.accuracy) / row.n for row in rows)) / len(rows)

    @cached_property
    def _hits(self) -> dict[str, Any]:
        runs = [row.run_id for row in self.pooled]
        return correct_by_document(self.warehouse, self.benchmark, runs)

    @cached_property
    def _tasks_of_documents(self) -> Texts:
        about = (self.benchmark, list(self._hits))
        tasks = self.warehouse.query(script("queries/tasks_of_documents"), about)["task"]
        return np.asarray(tasks.to_numpy().astype(np.str_))

    def _difference(self, key: Key, other: Key, whole: bool = False) -> list[float]:
        """The mean difference in accuracy as a fraction, its 95 % interval and its p-value. The interval is
        over seeds and documents, or over seeds and `whole` tasks."""
        one, two = (np.stack([self._hits[row.run_id] for row in self.seeds[k]]) for k in (key, other))
        if self.per == "task":
            found = paired_over_tasks(one, two, self._tasks_of_documents, whole=whole)
        else:
            found = paired_difference(one, two, clusters=self._tasks_of_documents if whole else None)
        return rounded(found)

    def hits(self, method: str) -> Floats:
        """(K, T) 1 where the method's run with seed k and no budget is right on document t."""
        return np.stack([self._hits[row.run_id] for row in self.seeds[method, None]])


def rounded(difference: Difference) -> list[float]:
    """The mean, its interval's ends and the p-value, rounded as in results files."""
    return [round(v, 6) for v in (difference.mean, difference.low, difference.high, difference.p_value)]


def _compare_with_base(runs: _Runs, base: _Runs, method: str) -> list[float]:
    """The method's accuracy minus the base's, paired by document and seed."""
    return rounded(paired_by_seed(runs.hits(method), base.hits(method)))


def _measure_changes(runs: _Runs, base: _Runs, method: str) -> dict[str, float]:
    """The shares of decisions, paired by seed, with another answer and with other models asked."""
    pairs = zip(runs.seeds[method, None], base.seeds[method, None], strict=True)
    shares = [
        runs.warehouse.rows(
            "SELECT avg((a.prediction IS DISTINCT FROM b.prediction)::INT), "
            "avg((list_sort(a.pool) IS DISTINCT FROM list_sort(b.pool))::INT) "
            "FROM decisions a JOIN decisions b USING (benchmark, task, doc_id) "
            "WHERE a.run_id = ? AND b.run_id = ?",
            [one.run_id, other.run_id],
        )[0]
        for one, other in pairs
    ]
    answers, pools = np.mean(shares, axis=0).tolist()
    return {"answers": round(answers, 4), "pools": round(pools, 4)}
