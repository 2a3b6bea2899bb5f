"""Exports the report as files: figures as SVG and PNG, tables as CSV, Markdown and LaTeX."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from rlfocal.base.atomic import write_file
from rlfocal.base.errors import InputError, unknown_name
from rlfocal.base.tables import Table
from rlfocal.evaluation.comparable import BoardKey, ComparableRuns
from rlfocal.evaluation.leaderboard import comparable_boards, make_board
from rlfocal.report.figures import Figure
from rlfocal.report.sections import draw_side_by_side, every_method_table
from rlfocal.report.tables import results_table
from warehouse import Warehouse

MAX_FOLDER_NAME = 60
"""The most characters of a folder's name."""


def export_report(
    warehouse: Warehouse,
    folder: str | Path,
    *,
    benchmarks: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    on_progress: Callable[[float], None] | None = None,
) -> list[Path]:
    """Writes a folder of figures and tables for each leaderboard; returns the paths of all files.

    `methods`, `columns`: only these rows and columns of the tables of methods. Raises InputError if the
    folder is a file, for an unknown method or column, and if nothing was evaluated.
    """
    target = Path(folder)
    if target.exists() and not target.is_dir():
        raise InputError(f"--export {target} is a file; give a folder")
    comparable = comparable_boards(warehouse, benchmarks)
    if not comparable:
        raise InputError("the warehouse holds no evaluation; run `rlfocal evaluate` first")
    check_chosen(warehouse, comparable, methods or (), columns or ())
    shown = draw_side_by_side(warehouse, comparable, confidential=False, on_progress=on_progress)
    overview = every_method_table([section.board for section in shown]).select(methods, None)
    written = _write_table(target / "overview", overview)
    taken: set[str] = set()
    for section in shown:
        place = target / _make_unique(file_name(section.title), taken)
        for name, table in section.tables.items():
            chosen = table.select(methods, columns) if name == "results" else table
            written += _write_table(place / name, chosen, section.title)
        for name, figure in section.figures.items():
            written += _write_figure(place / name, figure)
    return written


def check_chosen(
    warehouse: Warehouse,
    comparable: Mapping[BoardKey, ComparableRuns],
    methods: Iterable[str],
    columns: Sequence[str],
) -> None:
    """Checks chosen methods and columns before any figure is drawn.

    Raises InputError for a method that was not evaluated on any of these leaderboards, and for a column that
    the table of one of them lacks.
    """
    evaluated = {name for runs in comparable.values() for name in runs.methods}
    for name in methods:
        if name not in evaluated:
            raise unknown_name("method", name, evaluated, "what was evaluated")
    for key, runs in comparable.items() if columns else ():
        results_table(make_board(warehouse, key, runs)).select((), columns)


def file_name(title: str) -> str:
    """A title as the name of a file or folder, valid on every system; a digest tells changed titles apart.

    >>> file_name("lab-mmlu (online, per task)"), file_name("../a b")
    ('lab-mmlu-online-per-task', 'a-b-2d3c9b6a')
    """
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "-", title).strip("-.")[:MAX_FOLDER_NAME]
    is_told_apart = (
        re.fullmatch(r"[A-Za-z0-9_.()\-, =]+", title) and len(title) <= MAX_FOLDER_NAME and ".." not in title
    )
    return (
        plain if plain and is_told_apart else f"{plain}-{sha256(title.encode()).hexdigest()[:8]}".strip("-")
    )


def _make_unique(name: str, taken: set[str]) -> str:
    names: Iterator[str] = (f"{name}-{number}" if number else name for number in range(len(taken) + 1))
    free = next(candidate for candidate in names if candidate.lower() not in taken)
    taken.add(free.lower())
    return free


def _write_table(stem: Path, table: Table, title: str = "") -> list[Path]:
    latex = table.latex(f"{file_name(title)}-{stem.name}" if title else stem.name, title)
    texts = {".csv": table.csv(), ".md": "\n".join([*table.markdown(), ""]), ".tex": latex}
    return [_write(stem, ending, text) for ending, text in texts.items()]


def _write_figure(stem: Path, figure: Figure) -> list[Path]:
    from rlfocal.report.figures import style

    spec = figure.spec
    return [_write(stem, ".svg", style.svg(spec)), _write(stem, ".png", style.png(spec))]


def _write(stem: Path, ending: str, content: str | bytes) -> Path:
    path = stem.with_name(stem.name + ending)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, content)
    return path
