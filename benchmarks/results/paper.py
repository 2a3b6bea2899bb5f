"""Prints the paper's tables and the numbers of its figures beside ours, and the commands that compute ours.

python -m benchmarks.results.paper [--warehouse PATH|URI]
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from benchmarks.studies.study import Point, load
from rlfocal.base.errors import InputError
from rlfocal.base.tables import Table
from rlfocal.base.wording import MISSING_CELL
from rlfocal.evaluation.comparable import GIVEN_ROWS, SINGLE_PREFIX
from rlfocal.evaluation.leaderboard import Board, leaderboard
from rlfocal.methods import entry_of
from rlfocal.pool.reading import read_yaml
from warehouse import Warehouse, open_warehouse
from warehouse.scripts import script

PRINTED_RESULTS = Path(__file__).with_name("paper.yaml")
Ours = Mapping[tuple[str, str], float]
"""Our figures, by a row's key and a column's name."""


@dataclass(frozen=True)
class Cell:
    """The paper's figure and ours, in the unit of their column."""

    column: str
    theirs: float | None
    """The paper's figure; None if it is not known."""
    ours: float | None
    """Our figure; None if the warehouse has no run for it."""


@dataclass(frozen=True)
class PaperRow:
    label: str
    cells: tuple[Cell, ...]
    note: str
    command: str
    """The command that computes our figures of the row."""


@dataclass(frozen=True)
class PaperPart:
    """A table of the paper, or the numbers that one of its figures shows."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[PaperRow, ...]
    note: str

    @property
    def table(self) -> Table:
        """The table: the paper's figure under each column's name, and ours beside it."""
        titles = (title for column in self.columns for title in (column, "ours"))
        table = Table("", *titles, wraps=False)
        for row in self.rows:
            table.add(row.label, *(_format_figure(v) for cell in row.cells for v in (cell.theirs, cell.ours)))
        return table

    @property
    def notes(self) -> list[str]:
        """Sentences that say what to mind when comparing the figures, such as artefacts."""
        return [f"{row.label}: {row.note}." for row in self.rows if row.note] + [self.note] * bool(self.note)

    @property
    def commands(self) -> list[str]:
        """The commands that compute our figures, each once."""
        return list(dict.fromkeys(row.command for row in self.rows))

    @property
    def missing(self) -> list[str]:
        """The commands that compute those of our figures that are missing, each once."""
        return list(dict.fromkeys(r.command for r in self.rows if any(cell.ours is None for cell in r.cells)))


def paper_parts(warehouse: Warehouse) -> tuple[PaperPart, ...]:
    """The paper's tables 1 to 8 and figures 2 to 6, with our figures beside them. Ours are means over seeds,
    of frozen policies fitted once for a benchmark."""
    boards = {
        board.benchmark: board
        for board in leaderboard(warehouse)
        if board.key[1:] == ("frozen", "benchmark", GIVEN_ROWS, False, 0, ())
    }
    return tuple(
        _make_part(warehouse, described, boards) for described in read_yaml(PRINTED_RESULTS)["parts"]
    )


def print_paper(parts: Sequence[PaperPart], console: Console | None = None) -> None:
    """Prints every part, and under it the commands that compute its missing figures."""
    console = console or Console()
    for part in parts:
        console.print(Text(part.title, style="bold"))
        if part.rows:
            console.print(part.table)
        fill = [f"To fill what is missing: {'; '.join(part.missing)}"] * bool(part.missing)
        for note in [*part.notes, *fill]:
            console.print(Text(note, style="dim"), width=min(console.width, 100))
        console.print()


def _make_part(warehouse: Warehouse, described: Mapping[str, Any], boards: Mapping[str, Board]) -> PaperPart:
    source, columns = described.get("source", "boards"), tuple(described["columns"])
    ours = _read_our_figures(warehouse, source, described.get("benchmark", ""), boards)
    rows = []
    for row in described["rows"]:
        theirs, key = row.get("theirs", {}), row.get("method", row.get("point", row["label"]))
        members = row.get("members", {})
        cells = tuple(Cell(c, theirs.get(c), ours.get((members.get(c, key), c))) for c in columns)
        rows.append(PaperRow(row["label"], cells, row.get("note", ""), _write_command(described, row)))
    return PaperPart(described["name"], described["title"], columns, tuple(rows), described.get("note", ""))


def _read_our_figures(warehouse: Warehouse, source: str, benchmark: str, boards: Mapping[str, Board]) -> Ours:
    if source == "boards":
        return {key: value for board in boards.values() for key, value in _read_board_figures(board).items()}
    if source == "prices":
        prices = warehouse.rows("SELECT model, price FROM models WHERE price IS NOT NULL")
        return {(model, "price"): price for model, price in prices}
    board = boards.get(benchmark)
    runs = {run.run_id: s.method for s in board.rows for run in s.runs} if board else {}
    if source == "times":
        taken = "SELECT method, avg(seconds) / 3600 FROM runs WHERE list_contains(?, run_id) GROUP BY method"
        return {(method, "training hours"): hours for method, hours in warehouse.rows(taken, [list(runs)])}
    if source == "learning":
        return _read_learning(warehouse, [run for run, method in runs.items() if method == "rl_focal"])
    path = warehouse.location.studies / f"{source}-{benchmark}-rl_focal.json"
    try:
        points = load(path).points if path.exists() else ()
    except InputError:
        return {}
    return {key: value for point in points for key, value in _read_point_figures(point).items()}


def _read_board_figures(board: Board) -> Ours:
    alone = {(f"{SINGLE_PREFIX}{one.model}", board.benchmark): 100 * one.accuracy for one in board.singles}
    return alone | {(s.method, board.benchmark): 100 * s.accuracy for s in board.rows}


def _read_learning(warehouse: Warehouse, runs: Sequence[str]) -> Ours:
    found: dict[tuple[str, str], float] = {}
    for phase, _, accuracy, *_ in warehouse.rows(script("queries/learning_curve"), [list(runs)]):
        found.setdefault((f"{phase.title()}, first episode", "accuracy %"), 100 * accuracy)
        found[f"{phase.title()}, last episode", "accuracy %"] = 100 * accuracy
    return found


def _read_point_figures(point: Point) -> Ours:
    known = {
        "accuracy %": 100 * point.accuracy,
        "¢ / 1,000": point.cost,
        "seconds": point.seconds,
        "inferences": None if point.mean_pool_size is None else point.mean_pool_size * point.n,
    }
    is_ours = point.series == "RL-Focal"
    keys = (f"{point.series}, {point.label}", *([point.label] if is_ours or point.x is None else []))
    return {(key, column): value for key in keys for column, value in known.items() if value is not None}


def _write_command(described: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    if "command" in described:
        return str(described["command"])
    method = "rl_focal" if row["method"].startswith(SINGLE_PREFIX) else row["method"]
    missing = described["columns"][0] if len(described["columns"]) == 1 else "B"
    needed = entry_of(method).needs_setting
    setting = f" --set {method}.{needed}=..." if needed else ""
    return f"rlfocal evaluate --benchmark {missing} --methods {method} --seeds 5{setting}"


def _format_figure(value: float | None) -> str:
    """A figure with as many digits as its size needs; a dash for None.

    >>> _format_figure(72.7), _format_figure(4737.0), _format_figure(0.014), _format_figure(None)
    ('72.70', '4,737', '0.014', '–')
    """
    if value is None:
        return MISSING_CELL
    return f"{value:,.0f}" if abs(value) >= 300 else f"{value:.2f}" if abs(value) >= 1 else f"{value:.3g}"


def main() -> None:
    parser = ArgumentParser(prog="python -m benchmarks.results.paper", description=__doc__)
    parser.add_argument("--warehouse", metavar="PATH|URI")
    with open_warehouse(parser.parse_args().warehouse, read_only=True) as warehouse:
        print_paper(paper_parts(warehouse))


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
