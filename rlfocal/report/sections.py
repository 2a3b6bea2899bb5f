"""Draws the sections of a page, one per leaderboard, in several processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from rlfocal.base.errors import RunError
from rlfocal.base.tables import Table
from rlfocal.evaluation.comparable import BoardKey, ComparableRuns
from rlfocal.evaluation.leaderboard import Board, make_board
from rlfocal.evaluation.verdicts import known_table, title
from rlfocal.extraction.running.processes import Send, run_each, start_fork_server
from rlfocal.extraction.running.runner import cores
from rlfocal.report.boards import documents, labels_table, models_table, pools_table
from rlfocal.report.explained import make_explanation_tables
from rlfocal.report.figures import Figure, figures_of
from rlfocal.report.tables import results_table
from warehouse import Warehouse, open_warehouse
from warehouse.locations import Location
from warehouse.opening import BenchmarkCopy

DRAWING_MODULES = ("altair", "pandas", "rlfocal.report.sections")
"""The modules that drawing needs, imported once for all processes."""


@dataclass(frozen=True)
class Section:
    """The tables, figures and documents of one leaderboard, for the page and the export."""

    title: str
    board: Board
    tables: Mapping[str, Table]
    figures: Mapping[str, Figure]
    explanations: tuple[tuple[str, tuple[Table, ...]], ...]
    """Pairs of a heading and tables on what a method of RL-Focal's learned."""
    documents: dict[str, Any] | None
    """The decided documents that the page shows one by one; None if there are none."""


def draw_side_by_side(
    warehouse: Warehouse,
    comparable: Mapping[BoardKey, ComparableRuns],
    *,
    confidential: bool,
    on_progress: Callable[[float], None] | None = None,
) -> list[Section]:
    """The sections of these leaderboards in their order, as of one snapshot, drawn in a process per core.

    `on_progress` is called with the share of boards that are drawn. Raises RunError if a process fails.
    """
    drawn: dict[BoardKey, Section] = {}

    def on_event(_: str, event: tuple[BoardKey, Section]) -> None:
        key, drawn[key] = event
        if on_progress is not None:
            on_progress(len(drawn) / len(keys))

    keys = list(comparable)
    about = warehouse.location, warehouse.snapshot(), len(keys), confidential
    at_once = min(cores(), len(keys))
    if at_once < 2:
        _draw_some(partial(on_event, ""), *about, comparable)
    else:
        parts = _deal(comparable, at_once)
        jobs = {f"drawing {n}": (*about, part) for n, part in enumerate(parts)}
        ended = run_each(_draw_some, jobs, at_once=at_once, on_event=on_event, preload=DRAWING_MODULES)
        if failed := [reason for reason in ended.values() if reason is not None]:
            raise RunError(failed[0])
    return [drawn[key] for key in keys]


def begin_to_import() -> None:
    """Starts a process that imports the modules for drawing, while the caller goes on."""
    start_fork_server(DRAWING_MODULES)


def _deal(
    comparable: Mapping[BoardKey, ComparableRuns], n_parts: int
) -> list[dict[BoardKey, ComparableRuns]]:
    """The leaderboards in parts of similar work: the largest first, each to the part with the least work."""
    parts: list[dict[BoardKey, ComparableRuns]] = [{} for _ in range(n_parts)]
    for key in sorted(comparable, key=lambda key: (-comparable[key].n, key)):
        least = min(parts, key=lambda part: sum(1000 + of.n for of in part.values()))
        least[key] = comparable[key]
    return parts


def _draw(
    warehouse: Warehouse, key: BoardKey, comparable: ComparableRuns, boards: int, confidential: bool
) -> Section:
    board = make_board(warehouse, key, comparable)
    tables = {
        "verdicts": known_table(board),
        "results": results_table(board),
        "models": models_table(warehouse, board),
        "pools": pools_table(warehouse, board),
        "labels": labels_table(warehouse, board, confidential=confidential),
    }
    return Section(
        title(board),
        board,
        {name: table for name, table in tables.items() if table.rows},
        figures_of(warehouse, board),
        tuple(make_explanation_tables(warehouse, board)),
        documents(warehouse, board, boards, confidential=confidential),
    )


def _draw_some(
    send: Send,
    location: Location,
    snapshot: int,
    boards: int,
    confidential: bool,
    comparable: Mapping[BoardKey, ComparableRuns],
) -> None:
    """Draws some leaderboards in a process of its own, and sends a pair of key and section for each."""
    with open_warehouse(location, snapshot=snapshot) as warehouse:
        in_memory = BenchmarkCopy(warehouse)
        for key, runs in comparable.items():
            in_memory.copy(key.benchmark)
            send((key, _draw(warehouse, key, runs, boards, confidential)))
