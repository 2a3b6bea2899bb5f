"""The paper's accuracy tables: ours beside theirs, each row with the command that fills it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from rlfocal.base.errors import InputError
from rlfocal.base.tables import Table
from rlfocal.base.wording import percent
from rlfocal.evaluation.comparable import GIVEN_ROWS, SINGLE
from rlfocal.evaluation.leaderboard import Board, leaderboard
from rlfocal.evaluation.studies.findings import load
from rlfocal.methods import entry_of
from rlfocal.pool.reading import read_yaml
from warehouse import Warehouse

PRINTED = Path(__file__).with_name("paper.yaml")


@dataclass(frozen=True)
class Cell:
    """One figure of a table, as fractions."""

    benchmark: str
    theirs: float | None
    """None if the printed figure is not known."""
    ours: float | None
    """None if it was not evaluated."""


@dataclass(frozen=True)
class PaperRow:
    label: str
    cells: tuple[Cell, ...]
    note: str
    command: str
    """What fills ours."""


@dataclass(frozen=True)
class PaperTable:
    title: str
    benchmarks: tuple[str, ...]
    rows: tuple[PaperRow, ...]
    note: str


def paper_tables(warehouse: Warehouse) -> tuple[PaperTable, ...]:
    """Tables 1 to 6; ours are of the frozen protocol, fitted once for the benchmark, means over seeds."""
    boards = {
        board.benchmark: board
        for board in leaderboard(warehouse)
        if board.key[1:] == ("frozen", "benchmark", GIVEN_ROWS, False, 0)
    }
    return tuple(_table(warehouse, described, boards) for described in read_yaml(PRINTED)["tables"])


def print_paper(tables: Sequence[PaperTable], console: Console | None = None) -> None:
    """All tables, and under each the commands that fill what is missing."""
    console = console or Console()
    for table in tables:
        columns = [f"{benchmark} {whose}" for benchmark in table.benchmarks for whose in ("theirs", "ours")]
        listing = Table("", *columns, title=table.title)
        for row in table.rows:
            shown = [figure for cell in row.cells for figure in (cell.theirs, cell.ours)]
            listing.add(row.label, *map(percent, shown))
        console.print(listing if table.rows else Text(table.title, style="bold"))
        notes = [f"{row.label}: {row.note}." for row in table.rows if row.note]
        missing = [row.command for row in table.rows if any(cell.ours is None for cell in row.cells)]
        notes += [f"To fill what is missing: {'; '.join(dict.fromkeys(missing))}"] * bool(missing)
        for note in [*notes, *([table.note] if table.note else [])]:
            console.print(Text(note, style="dim"), width=min(console.width, 100))
        console.print()


def _table(warehouse: Warehouse, described: Mapping[str, Any], boards: Mapping[str, Board]) -> PaperTable:
    benchmarks = tuple(described["benchmarks"])
    found = {b: _ours(warehouse, described, b, boards.get(b)) for b in benchmarks}
    rows = []
    for row in described["rows"]:
        theirs = row.get("theirs", {})
        key = row.get("method", row["label"])
        cells = tuple(
            Cell(b, theirs[b] / 100 if b in theirs else None, found[b].get(key)) for b in benchmarks
        )
        rows.append(PaperRow(row["label"], cells, row.get("note", ""), _command(described, row)))
    return PaperTable(described["table"], benchmarks, tuple(rows), described.get("note", ""))


def _ours(
    warehouse: Warehouse, described: Mapping[str, Any], benchmark: str, board: Board | None
) -> dict[str, float]:
    """Our figures by method, by model alone, or by the label of a study's point."""
    if "study" in described:
        path = warehouse.location.studies / f"{described['study']}-{benchmark}-rl_focal.json"
        try:
            return {point.label: point.accuracy for point in load(path).points} if path.exists() else {}
        except InputError:
            return {}
    if board is None:
        return {}
    alone = {f"{SINGLE}{single.model}": single.accuracy for single in board.singles}
    return alone | {standing.method: standing.accuracy for standing in board.standings}


def _command(described: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    if "command" in described:
        return str(described["command"])
    method = "rl_focal" if row["method"].startswith(SINGLE) else row["method"]
    missing = described["benchmarks"][0] if len(described["benchmarks"]) == 1 else "B"
    needed = entry_of(method).needs_setting
    setting = f" --set {method}.{needed}=..." if needed else ""
    return f"rlfocal evaluate --benchmark {missing} --methods {method} --seeds 5{setting}"
