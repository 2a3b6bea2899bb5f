"""Writes tables and single figures from results files into README and docs, between markers.

A marker in a page is `<!-- results: NAME KEY=VALUE... -->`; the text from there to `<!-- end -->` is written.
Its words:

- `columns=a,b` makes a table with a line for each row. `rows=a by=b,c cell=d` makes a line for each a, and a
  column for each (b, c). `<!-- value: NAME cell=d KEY=VALUE... -->` writes a single cell, of a single row.
- `sort=accuracy`, with `by`, sorts lines by that figure, the highest first; else the file's order stays.
- `only=stacking,log_linear` shows these methods' rows alone, but Holm's method counts all selected rows.
- Any other word selects the rows with one of its values, as in `method=stacking,log_linear budget=none`.
  `block` is `shared`, `shared+task` or `per-task`.

A † marks rows by an earlier revision of their method, and a ‡ rows of a method that no longer exists.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from os.path import relpath
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from rlfocal.base.errors import InputError, unknown_name
from rlfocal.base.names import is_gone
from rlfocal.base.wording import points
from rlfocal.statistics.intervals import holm

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "results"
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md")))
OLD_MARK, GONE_MARK = "†", "‡"
_MARKED_BLOCK = re.compile(r"<!-- (results|value): (.*?) -->(.*?)<!-- end -->", re.DOTALL)
_LAYOUT_KEYS = ("columns", "rows", "by", "cell", "sort", "only")
Row = dict[str, Any]


def fill(page: str, folder: str = "results") -> str:
    """The page with the text between markers written anew. `folder`: the path from the page to the results.

    Raises InputError for a marker that selects no row, or that names an unknown file or column.
    """
    return _MARKED_BLOCK.sub(lambda match: _rewrite_marker(match, folder), page)


def fill_page(path: Path) -> str:
    """The text of this checkout's page at `path`, with the figures of results files written into it."""
    folder = Path(relpath(RESULTS, path.parent)).as_posix()
    return fill(path.read_text(encoding="utf-8"), folder)


def read_rows(path: Path) -> list[Row]:
    """The rows of a results file, each with the fields of its block, such as command and data.

    Raises InputError if there is no such file.
    """
    if not path.is_file():
        raise unknown_name("results", path.stem, [one.stem for one in sorted(path.parent.glob("*.json"))])
    return [
        {name: value for name, value in block.items() if name != "rows"} | row
        for block in json.loads(path.read_text(encoding="utf-8"))
        for row in block["rows"]
    ]


@dataclass(frozen=True)
class _Marker:
    name: str
    layout: dict[str, list[str]]
    conditions: dict[str, list[str]]

    @classmethod
    def parse(cls, text: str) -> _Marker:
        name, *words = shlex.split(text)
        given = {key: value.split(",") for key, _, value in (word.partition("=") for word in words)}
        layout = {key: value for key, value in given.items() if key in _LAYOUT_KEYS}
        return cls(name, layout, {key: value for key, value in given.items() if key not in _LAYOUT_KEYS})

    def rows(self) -> list[Row]:
        rows = [row for row in read_rows(RESULTS / f"{self.name}.json") if self._matches(row)]
        if not rows:
            raise InputError(f"no row of docs/results/{self.name}.json has {self.conditions}")
        return rows

    def _matches(self, row: Row) -> bool:
        return all(_read_field(key, row) in values for key, values in self.conditions.items())


def _read_field(key: str, row: Row) -> str:
    """The value of a row's field as a marker writes it; "none" for a missing or empty one."""
    if key == "block":
        return block(row)
    value = row.get(key)
    return "none" if value in (None, "") else str(value)


def _rewrite_marker(match: re.Match[str], folder: str) -> str:
    kind, text = match[1], match[2]
    marker = _Marker.parse(text)
    if kind == "value":
        rows = marker.rows()
        if len(rows) > 1:
            raise InputError(f"<!-- value: {text} --> selects {len(rows)} rows; select one by more words")
        said = _write_cell(marker.layout["cell"][0], rows[0]) + _mark(rows[0])
    else:
        said = "\n" + _write_table(marker, folder) + "\n"
    return f"<!-- {kind}: {text} -->{said}<!-- end -->"


def _write_table(marker: _Marker, folder: str) -> str:
    rows = marker.rows()
    compared = _mark_certain(rows, marker.layout.get("columns") or marker.layout.get("cell", []))
    place = "here"
    if only := marker.layout.get("only"):
        rows, place = [row for row in rows if row["method"] in only], "of the whole table"
    head, body = _make_pivot_table(marker, rows) if "by" in marker.layout else _make_flat_table(marker, rows)
    lines = [head, ["---"] * len(head), *body]
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return f"{table}\n\n{_write_caption(f'{folder}/{marker.name}.json', rows, compared, place)}"


def _mark_certain(rows: Sequence[Row], columns: Sequence[str]) -> int:
    """Marks, in `rows`, differences that are certain by Holm's method; returns how many were compared."""
    names = [name.partition(":")[::2] for name in columns if name.startswith("above")]
    shown = [(row, name) for row in rows for name in names if _find_difference(row, *name)]
    adjusted = holm(np.array([_find_p_value(_find_difference(row, *name)) for row, name in shown]))
    for (row, (kind, method)), p_value in zip(shown, adjusted.tolist(), strict=True):
        row.setdefault("certain", {})[f"{kind}:{method}"] = p_value < 0.05
    return len(shown)


def _find_difference(row: Row, kind: str, method: str) -> list[float]:
    """The row's difference from a method, its interval (fractions) and p-value; empty if it has none."""
    of = row.get(kind, {})
    found: list[float] = of.get(method) or next(
        (of[name] for name in of if name.partition(":")[0] == method), []
    )
    return found


def _find_p_value(found: Sequence[float]) -> float:
    """The stored p-value of a difference; if none is stored, that of a normal distribution."""
    if len(found) > 3:
        return float(found[3])
    mean, low, high = found
    return float(2 * ndtr(-abs(mean) / max((high - low) / (2 * ndtri(0.975)), 1e-12)))


def _make_flat_table(marker: _Marker, rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    columns = marker.layout["columns"]
    return [_write_head(name) for name in columns], [
        [_write_cell(name, row) + (_mark(row) if at == 0 else "") for at, name in enumerate(columns)]
        for row in rows
    ]


def _make_pivot_table(marker: _Marker, rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """The head and lines of a table with a line for each value of `rows`, and a column for each of `by`.
    `sort` sorts lines by the first column, ties by the next."""
    keys, by, [cell] = marker.layout["rows"], marker.layout["by"], marker.layout["cell"]
    at: dict[tuple[str, ...], dict[str, Row]] = {}
    for row in rows:
        column = " ".join(filter(None, (_write_cell(key, row) for key in by))) or "no limit"
        at.setdefault(tuple(_write_cell(key, row) for key in keys), {})[column] = row
    columns = list(dict.fromkeys(column for of_line in at.values() for column in of_line))
    lines = list(at)
    if "sort" in marker.layout:
        [figure] = marker.layout["sort"]
        lines.sort(key=lambda line: [-at[line][c][figure] if c in at[line] else inf for c in columns])
    body = [
        [
            *line,
            *(_write_cell(cell, at[line][c]) + _mark(at[line][c]) if c in at[line] else "–" for c in columns),
        ]
        for line in lines
    ]
    return [*map(_write_head, keys), *columns], body


def _write_caption(file: str, rows: Sequence[Row], compared: int = 0, place: str = "here") -> str:
    """The caption of a table: data, seeds, days and commands, and what bold and marks mean. `compared` is the
    number of differences that Holm's method compared, and `place` says where they are."""
    commands = list(dict.fromkeys(row["command"] for row in rows))
    said = f"`{commands[0]}`" if len(commands) == 1 else f"{len(commands)} commands"
    shapes = dict.fromkeys((row["benchmark"], row["models"], row["documents"]) for row in rows)
    data = "; ".join(
        f"{name}: {models} models, {documents:,} documents" for name, models, documents in shapes
    )
    seeds = sorted({row["seeds"] for row in rows if row.get("seeds")})
    count = f"{' or '.join(map(str, seeds))} seed{'s' if seeds[-1:] != [1] else ''}, " if seeds else ""
    days = sorted({row["date"] for row in rows})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    marks = {_mark(row) for row in rows}
    old = f" {OLD_MARK} an earlier revision of the method." if OLD_MARK in marks else ""
    old += f" {GONE_MARK} of a method that is gone, and not made anew." if GONE_MARK in marks else ""
    bold = f" Bold: certain by Holm's method among the {compared} differences {place}." if compared else ""
    return f"*{data}. {count}{when}; {said}: [{file.rpartition('/')[2]}]({file}).{bold}{old}*"


def _mark(row: Row) -> str:
    mark = GONE_MARK if is_gone(f"method {row['method']}") else OLD_MARK
    return mark if row.get("old") else ""


def block(row: Row) -> str:
    """A row's use of tasks: fitted "per-task", or to all, with their name ("shared+task") or without
    ("shared")."""
    if row.get("per") == "task":
        return "per-task"
    return "shared+task" if "+task" in row["method"] else "shared"


def _write_head(name: str) -> str:
    return _COLUMNS[_check_column(name)][0].format(*name.split(":")[1:])


def _write_cell(name: str, row: Row) -> str:
    show: Callable[..., str] = _COLUMNS[_check_column(name)][1]
    return show(row, *name.split(":")[1:]).replace("|", "\\|")


def _check_column(name: str) -> str:
    base = name.partition(":")[0]
    if base not in _COLUMNS:
        raise unknown_name("column", name, _COLUMNS)
    return base


def _percent(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{100 * value:.{digits}f}"


def _write_accuracy(row: Row) -> str:
    error = row.get("stderr_seeds")
    return _percent(row["accuracy"]) + ("" if error is None else f" ± {_percent(error)}")


def _write_pool_size(row: Row) -> str:
    size = row.get("mean_pool_size")
    return "–" if size is None else f"{size:.1f}"


def _write_difference(row: Row, method: str, kind: str = "above") -> str:
    """The difference in points and its 95 % interval; bold where Holm's method finds it certain."""
    found = _find_difference(row, kind, method)
    if not found:
        return "–"
    mean, low, high = map(points, found[:3])
    said = f"{mean} ({low} to {high})"
    return f"**{said}**" if row.get("certain", {}).get(f"{kind}:{method}") else said


def _write_budget(row: Row) -> str:
    return "" if row.get("budget") is None else f"≤ {row['budget']}"


def _write_at_budget(row: Row) -> str:
    """The accuracy in %; without a budget, also the mean number of models asked."""
    asked = f" ({_write_pool_size(row)})" if row.get("budget") is None else ""
    return _percent(row["accuracy"]) + asked


def _write_data(row: Row) -> str:
    return f"{row['benchmark']}{', per task' if row.get('per') == 'task' else ''}"


def _write_span(row: Row, name: str, digits: int) -> str:
    mean, low, high = (f"{100 * value:.{digits}f}".replace("-", "−") for value in row[name])
    return f"{mean} ({low} to {high})"


def _write_settings(row: Row) -> str:
    """The settings that a search chose; "the defaults" where it chose no others, or there was no search."""
    settings = row.get("chosen", {})
    return ", ".join(f"`{name}={value}`" for name, value in settings.items()) or "the defaults"


_BLOCKS = {
    "shared": "once for all tasks",
    "shared+task": "once, with the task's name",
    "per-task": "per task",
}
_COLUMNS: dict[str, tuple[str, Callable[..., str]]] = {
    "method": ("method", lambda row: f"`{row['method']}`"),
    "label": ("", lambda row: row.get("label") or "as it is"),
    "series": ("of", lambda row: row["series"]),
    "benchmark": ("data", lambda row: row["benchmark"]),
    "measure": ("by", lambda row: row["measure"]),
    "third": ("pools", lambda row: f"{_percent(row['from'], 0)} to {_percent(row['to'], 0)} points"),
    "chosen": ("settings", _write_settings),
    "data": ("data", _write_data),
    "block": ("fitted", lambda row: _BLOCKS[block(row)]),
    "budget": ("models asked, at most", _write_budget),
    "accuracy": ("accuracy %", lambda row: _percent(row["accuracy"])),
    "accuracy1": ("accuracy %", lambda row: _percent(row["accuracy"], 1)),
    "accuracy_seeds": ("accuracy %, ± over seeds", _write_accuracy),
    "at_budget": ("accuracy % (models asked)", _write_at_budget),
    "accuracy_asked": (
        "accuracy % (models asked)",
        lambda row: f"{_percent(row['accuracy'])} ({_write_pool_size(row)})",
    ),
    "stderr": ("± over documents", lambda row: _percent(row["stderr_docs"])),
    "asked": ("models asked", _write_pool_size),
    "rounds": ("rounds", lambda row: f"{row['mean_rounds']:.1f}"),
    "cost": ("cents a 1,000 queries", lambda row: "–" if row["cost"] is None else f"{row['cost']:.1f}"),
    "above": ("above `{}`, points", _write_difference),
    "above_base": ("against as it is, points", lambda row: _write_difference(row, "", "above_base")),
    "above_tasks": (
        "the same, over tasks",
        lambda row, method: _write_difference(row, method, "above_tasks"),
    ),
    "answers_changed": ("answers changed, %", lambda row: _percent(row.get("changed", {}).get("answers"), 1)),
    "pools_changed": ("pools changed, %", lambda row: _percent(row.get("changed", {}).get("pools"), 1)),
    "documents": ("documents", lambda row: str(row["documents"])),
    "cost_of_steady": ("cost of a steady stream, points", lambda row: _write_span(row, "cost_of_steady", 1)),
    "after_turn": ("after a turn, % of the best pool", lambda row: _write_span(row, "after_turn", 0)),
    "just_after": ("just after it, %", lambda row: _percent(row["just_after"][0], 0)),
}
"""By a column's name, its head and the function that writes a cell; {} is replaced by the name's argument."""
