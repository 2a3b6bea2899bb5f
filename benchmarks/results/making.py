"""Runs the steps of results files on a warehouse, and writes their rows as JSON, one line per row."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from platform import python_version
from typing import Any, Protocol

from benchmarks.results.evaluations import EvaluationTable
from benchmarks.results.revisions import find_current_revision
from rlfocal.base.atomic import write_file
from rlfocal.base.errors import InputError
from rlfocal.base.names import is_gone
from rlfocal.exchange.imports.predictions import import_predictions
from rlfocal.exchange.imports.prices import import_prices
from warehouse import Warehouse

_LIBRARIES = ("rlfocal", "numpy", "scipy", "scikit-learn", "torch")
_PLACE = ("benchmark", "per", "protocol", "split", "label", "study", "settings")
"""The fields of a block that together identify its evaluation or study."""


class Step(Protocol):
    """One command of a results file, and the rows that it gives."""

    @property
    def command(self) -> str: ...

    @property
    def about(self) -> dict[str, Any]:
        """The fields that all rows of the step share, such as benchmark, protocol and settings."""
        ...

    def rows(self, warehouse: Warehouse, at_once: int = 1) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """The fields that describe the data and the seconds taken; and the step's rows.

        At most `at_once` methods run at a time.
        """
        ...


def make(warehouse: Warehouse, steps: Sequence[Step], path: Path, at_once: int = 1) -> float:
    """Runs the steps, reusing runs that the warehouse has, and writes the file; returns the steps' seconds.

    Rows of methods that no longer exist stay, because nothing can compute them anew.
    """
    blocks = []
    for step in steps:
        blocks.append(_run_step(warehouse, step, at_once))
    _keep_gone(blocks, path)
    write_file(path, dump(blocks))
    return sum(float(block.get("seconds", 0.0)) for block in blocks)


def remake(
    warehouse: Warehouse, steps: Sequence[Step], path: Path, methods: Sequence[str], at_once: int = 1
) -> float:
    """Computes the rows of these methods anew in the file's evaluations, and its other steps as a whole.

    Returns the evaluations' seconds. Raises InputError if the file's rows are of other data than the
    warehouse has.
    """
    blocks, seconds = json.loads(path.read_text(encoding="utf-8")), 0.0
    of_place = {_place(block): block for block in blocks}
    for step in steps:
        block = of_place.get(_place(step.about))
        if block is None:
            continue
        if not isinstance(step, EvaluationTable):  # small enough to make whole
            block |= _run_step(warehouse, step, at_once)
            continue
        there = {*step.methods, *(row["method"] for row in block["rows"])}
        names = tuple(name for name in methods if name in there)
        if not names:
            continue
        if (digest := step.digest_data(warehouse)) != block["data"]:
            raise InputError(
                f"{path} has {step.benchmark} of the data {block['data']}, and the warehouse has {digest}; "
                "make all its rows anew (without --methods)"
            )
        data, rows = replace(step, methods=(*names, *step.above)).rows(warehouse, at_once)
        block["command"] = step.command
        # What is evaluated beside a method, such as the start of `rl_focal`, may be younger than the file.
        made = [row for row in rows if row["method"] in names or row["method"] not in there]
        block["rows"] = _replace_rows(block["rows"], _add_dates(made))
        seconds += data["seconds"]
    write_file(path, dump(blocks))
    return seconds


def _run_step(warehouse: Warehouse, step: Step, at_once: int) -> dict[str, Any]:
    """Runs a step, and returns its block of the results file: what was run, and the rows."""
    data, rows = step.rows(warehouse, at_once)
    about = {"command": step.command} | step.about | data | {"versions": _list_versions()}
    return about | {"rows": _add_dates(rows)}


def _add_dates(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows, each with a date as its first field: its own, or else today's."""
    return [{"date": datetime.now(UTC).date().isoformat()} | row for row in rows]


def _replace_rows(rows: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows, with `new` ones in place of those of the same method and budget; other new ones come last."""
    of_cell = {(row["method"], row["budget"]): row for row in new}
    replaced = [of_cell.pop((row["method"], row["budget"]), row) for row in rows]
    return [*replaced, *of_cell.values()]


def _keep_gone(blocks: list[dict[str, Any]], path: Path) -> None:
    """Adds the file's rows of methods that no longer exist to the blocks of the same evaluations."""
    of_place = {_place(block): block for block in blocks}
    for block in json.loads(path.read_text(encoding="utf-8")) if path.exists() else []:
        if rows := [row for row in block["rows"] if is_gone(f"method {row['method']}")]:
            if _place(block) in of_place:
                of_place[_place(block)]["rows"] += rows
            else:
                blocks.append(block)


def _place(block: Mapping[str, Any]) -> str:
    return json.dumps([block.get(name) for name in _PLACE])


def dump(blocks: Sequence[dict[str, Any]]) -> str:
    """The blocks as JSON with a line for each row, so that a changed row is a changed line."""
    parts = []
    for block in blocks:
        head = json.dumps(
            {name: value for name, value in block.items() if name != "rows"}, ensure_ascii=False
        )
        rows = ",\n  ".join(json.dumps(row, ensure_ascii=False) for row in block["rows"])
        parts.append(f'{head[:-1]}, "rows": [\n  {rows}\n]}}')
    return "[\n" + ",\n".join(parts) + "\n]\n"


def is_current(block: Mapping[str, Any], row: Mapping[str, Any]) -> bool:
    """Whether a row of the block was computed by the present revision of its method."""
    revision = find_current_revision(row["method"], block["settings"], block["protocol"])
    return revision is not None and revision == row["revision"]


def mark(path: Path) -> list[str]:
    """Marks rows of earlier revisions in a results file as old, and no others; returns the old rows'
    methods."""
    blocks = json.loads(path.read_text(encoding="utf-8"))
    for block in blocks:
        for row in block["rows"]:
            row.pop("old", None)
            if not is_current(block, row):
                row["old"] = True
    write_file(path, dump(blocks))
    return sorted({row["method"] for block in blocks for row in block["rows"] if "old" in row})


def import_data(warehouse: Warehouse, folder: Path) -> None:
    """Imports every NAME-docs.parquet and NAME-scores.parquet of a folder, and the public list prices.

    Raises InputError if the folder has none.
    """
    documents = sorted(folder.glob("*-docs.parquet"))
    if not documents:
        raise InputError(
            f"{folder} has no NAME-docs.parquet; give the folder of the files to import as DATA="
        )
    for docs in documents:
        import_predictions(warehouse, docs, docs.with_name(docs.name.replace("-docs.", "-scores.")))
    import_prices(warehouse)


def _list_versions() -> str:
    return ", ".join([f"python {python_version()}", *(f"{name} {version(name)}" for name in _LIBRARIES)])
