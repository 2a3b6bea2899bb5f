"""What the live view shows of a warehouse, read anew at each call: what others commit appears at the next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rlfocal.base.wording import counted
from rlfocal.evaluation.comparable import answering
from rlfocal.evaluation.leaderboard import Board, leaderboard
from rlfocal.evaluation.verdicts import title
from rlfocal.exchange.sql import sandbox
from rlfocal.report.figures import Figure
from warehouse import Warehouse, open_warehouse
from warehouse.scripts import script

Rows = list[dict[str, Any]]
SHOWN = 10_000
"""The most rows of a query's result."""


@dataclass(frozen=True)
class Overview:
    """Which warehouse, and what is in it."""

    name: str
    snapshot: int
    benchmarks: tuple[str, ...]


@dataclass(frozen=True)
class Benchmark:
    """All that is shown of one."""

    models: tuple[str, ...]
    """By falling accuracy where they were evaluated."""
    boards: tuple[tuple[str, Rows, tuple[str, ...]], ...]
    """Title, methods and verdicts of each."""
    pools: Figure | None
    coverage: Figure | None
    missing: Rows
    """Models and tasks without all answers."""


def overview() -> Overview:
    """Its name, its newest snapshot and the benchmarks that models have answered."""
    with _opened() as warehouse:
        found = warehouse.rows("SELECT DISTINCT benchmark FROM extractions ORDER BY ALL")
        return Overview(warehouse.location.name, warehouse.snapshot(), tuple(name for (name,) in found))


def benchmark(name: str) -> Benchmark:
    """Its boards, pools and gaps; without an evaluation, the pools and gaps of all models that answered."""
    from rlfocal.report.figures.models import coverage
    from rlfocal.report.figures.pools import every_pool

    with _opened() as warehouse:
        boards = leaderboard(warehouse, [name])
        ranked = [single.model for board in boards for single in board.singles]
        models = tuple(dict.fromkeys([*ranked, *sorted(answering(warehouse, name))]))
        runs = [run.run_id for board in boards for standing in board.ours for run in standing.runs]
        gaps = [
            {"model": model, "task": task, "answered": n, "documents": documents}
            for model, task, n, documents, _ in warehouse.rows(
                script("queries/coverage"), [name, list(models)]
            )
            if n < documents
        ]
        return Benchmark(
            models,
            tuple((title(board), _methods(board), tuple(map(str, board.verdicts))) for board in boards),
            every_pool(warehouse, name, runs, models),
            coverage(warehouse, name, models),
            gaps,
        )


def pool_statistics(name: str, models: Sequence[str]) -> Rows:
    """The macro `pool_diversity` on test documents; nothing of fewer than two models."""
    if len(models) < 2:
        return []
    with _opened() as warehouse:
        sql = "SELECT * FROM pool_diversity(?, ?, split := 'test')"
        [row] = warehouse.query(sql, (name, list(models))).to_pylist()
        return [{key: round(of, 4) if isinstance(of, float) else of for key, of in row.items()}]


def query(statement: str) -> tuple[Rows, str]:
    """The first rows of a read-only statement, and how many there are in words.

    Raises InputError as `rlfocal.exchange.sql.run_sql`.
    """
    with sandbox(None) as select:
        names, rows = select(statement)
    apart = [name if name not in names[:at] else f"{name}:{at + 1}" for at, name in enumerate(names)]
    shown = [dict(zip(apart, row, strict=True)) for row in rows[:SHOWN]]
    first = f", of which the first {SHOWN:,} are shown" if len(rows) > SHOWN else ""
    return shown, f"{counted(len(rows), 'row')}{first}"


def _methods(board: Board) -> Rows:
    """A row a method, numbers as numbers: percents, points and cents per 1,000 queries."""
    return [
        {
            "method": s.method,
            "accuracy %": round(100 * s.accuracy, 2),
            "± docs": round(100 * s.stderr_docs, 2),
            "models asked": round(s.mean_pool_size, 2),
            "¢ / 1,000": None if s.cost is None else round(s.cost, 3),
            f"above {board.baseline}": None if (d := s.against_baseline) is None else round(100 * d.mean, 2),
            "from": None if d is None else round(100 * d.low, 2),
            "to": None if d is None else round(100 * d.high, 2),
        }
        for s in board.standings
    ]


@contextmanager
def _opened() -> Iterator[Warehouse]:
    """The warehouse that $RLFOCAL_WAREHOUSE names."""
    with open_warehouse(read_only=True) as warehouse:
        yield warehouse
