"""A warehouse of generated answers and decisions, for leaderboards and reports."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from io import StringIO
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from warehouse import Warehouse, open_warehouse

if TYPE_CHECKING:
    from rlfocal.evaluation.leaderboard import Board

MODELS = ("ada", "bert", "cato", "dora", "emil", "<fritz>")
PRICES = (60.0, 20.0, 5.0, 30.0, 12.0, 8.0)
SKILLS = (0.8, 0.7, 0.6, 0.7, 0.65, 0.5)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@dataclass
class Lab:
    """A warehouse that knows what was put into it: test documents × models that are right."""

    warehouse: Warehouse
    models: tuple[str, ...] = MODELS
    right: dict[str, NDArray[np.bool_]] = field(default_factory=dict)
    tasks: dict[str, NDArray[np.str_]] = field(default_factory=dict)
    clock: Iterator[int] = field(default_factory=count)

    def add_benchmark(
        self, name: str, tasks: tuple[str, ...], n: int, skills: tuple[float, ...], seed: int
    ) -> None:
        """n documents a task, the first half train; model i answers right with probability skills[i]."""
        rng = np.random.default_rng(seed)
        total = n * len(tasks)
        task, doc_id = np.repeat(tasks, n), np.tile(np.arange(n), len(tasks))
        label = rng.integers(0, 4, total)
        right = rng.random((total, len(self.models))) < np.array(skills)
        said = np.where(right, label[:, None], (label[:, None] + rng.integers(1, 4, right.shape)) % 4)
        logprob = np.where(np.arange(4) == said[..., None], -0.5, -3.0)
        split = np.where(doc_id < n // 2, "train", "test")
        docs = {"benchmark": [name] * total, "task": task, "doc_id": doc_id, "label": label, "split": split}
        docs["choices"] = [list("abcd")] * total
        t, m, c = (axis.ravel() for axis in np.indices(logprob.shape))
        scores = {"benchmark": [name] * t.size, "task": task[t], "doc_id": doc_id[t]}
        scores |= {"model": np.array(self.models)[m], "choice": c, "logprob": logprob.ravel()}
        owner = {"benchmark": name, "extraction_id": "made", "n_docs": n}
        partitions = [owner | {"task": t, "model": model} for t in tasks for model in self.models]
        with self.warehouse.transaction("answers"):
            self.warehouse.append("extractions", pa.Table.from_pylist(partitions))
            self.warehouse.append("docs", pa.table(docs))
            self.warehouse.append("choice_logprobs", pa.table(scores))
        self.right[name], self.tasks[name] = right[split == "test"], task[split == "test"]

    def evaluate(
        self,
        method: str,
        correct: int | NDArray[np.bool_],
        pools: int | list[int] | NDArray[np.bool_] | None = None,
        *,
        benchmark: str = "facts",
        seed: int | None = None,
        protocol: str = "frozen",
        data: str = "first",
        models: tuple[str, ...] | None = None,
        prices: tuple[float | None, ...] = PRICES,
    ) -> str:
        """Store one run's evaluations and decisions, as `rlfocal evaluate` does.

        The first `correct` documents are answered right; asked are the first `pools` models, those of a list,
        or all.
        """
        task, moment = self.tasks[benchmark], next(self.clock)
        n, at = len(task), np.arange(len(self.models))
        if isinstance(correct, int):
            correct = np.arange(n) < correct
        if not isinstance(pools, np.ndarray):
            asked = list(range(len(at) if pools is None else pools)) if not isinstance(pools, list) else pools
            pools = np.tile(np.isin(at, asked), (n, 1))
        run = {"run_id": f"{benchmark}-{method}-{seed}-{moment}", "benchmark": benchmark}
        shared: dict[str, Any] = run | {"method": method, "settings": "{}", "seed": seed}
        shared |= {"protocol": protocol, "split": "test", "per": "benchmark", "seconds": 1.0, "snapshot": 3}
        shared |= {"models": list(models or self.models), "data": data}
        shared["created_at"] = NOON + timedelta(minutes=moment)
        known = np.array([*prices, *[1.0] * len(at)][: len(at)], dtype=float)
        cost = np.where(pools, known, 0.0).sum(1)
        tasks = {name: task == name for name in dict.fromkeys(task.tolist())}
        rows = [
            shared
            | {"task": name, "n": int(mask.sum()), "accuracy": float(correct[mask].mean())}
            | {
                "mean_pool_size": float(pools[mask].sum(1).mean()),
                "cost": None if np.isnan(cost).any() else float(cost[mask].mean()),
            }
            for name, mask in {"*": np.ones(n, bool), **tasks}.items()
        ]
        decisions: dict[str, Any] = {name: [value] * n for name, value in run.items()}
        decisions |= {"task": task, "correct": correct}
        sizes = [int(mask.sum()) for mask in tasks.values()]
        decisions["doc_id"] = np.concatenate([np.arange(size, 2 * size) for size in sizes])
        decisions["pool"] = [[m for m, asks in zip(self.models, pool, strict=True) if asks] for pool in pools]
        with self.warehouse.transaction("evaluate"):
            self.warehouse.append("evaluations", pa.Table.from_pylist(rows))
            self.warehouse.append("decisions", pa.table(decisions))
        return run["run_id"]

    def evaluate_all(self, benchmark: str) -> None:
        right = self.right[benchmark]
        n = len(right)
        self.evaluate("best_single", right[:, 0], 1, benchmark=benchmark)
        self.evaluate("plurality", np.asarray(right.sum(1) >= 3), benchmark=benchmark)
        self.evaluate("oracle", np.asarray(right.any(1)), benchmark=benchmark)
        self.evaluate("constant_choice", np.asarray(np.arange(n) % 4 == 0), 0, benchmark=benchmark)
        for seed in range(3):
            rng = np.random.default_rng(seed)
            pools = np.where(rng.random((n, 1)) < 0.7, [[1, 0, 1, 0, 1, 1]], [[1, 1, 1, 0, 0, 0]]) > 0
            pools[0] = np.arange(6) == 0
            correct = (right & pools).sum(1) >= 2
            self.evaluate("rl_focal", correct, pools, benchmark=benchmark, seed=seed)


def printed(boards: list[Board], width: int) -> str:
    """The table of boards on a terminal of this width."""
    from rich.console import Console

    from rlfocal.report import print_table

    out = StringIO()
    print_table(boards, Console(file=out, width=width))
    return out.getvalue()


@pytest.fixture
def small_lab(warehouse: Warehouse) -> Lab:
    """20 test documents and no evaluation yet."""
    lab = Lab(warehouse)
    lab.add_benchmark("facts", ("birds",), 40, SKILLS, seed=1)
    return lab


@pytest.fixture(scope="session")
def evaluated_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Two benchmarks with decisions of five methods, to read."""
    with open_warehouse(tmp_path_factory.mktemp("report") / "warehouse") as warehouse:
        lab = Lab(warehouse)
        with warehouse.transaction("models"):
            warehouse.append("models", pa.table({"model": MODELS, "price": PRICES}))
        lab.add_benchmark("facts", ("birds", "cities", "stones"), 200, SKILLS, seed=1)
        lab.add_benchmark("riddles", ("all",), 200, (0.9, 0.5, 0.4, 0.4, 0.4, 0.3), seed=2)
        for name in ("facts", "riddles"):
            lab.evaluate_all(name)
        yield lab


@pytest.fixture(scope="session")
def boards(evaluated_lab: Lab) -> list[Board]:
    from rlfocal.evaluation.leaderboard import leaderboard

    return leaderboard(evaluated_lab.warehouse)
