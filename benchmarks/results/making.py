"""Runs steps on a warehouse and keeps what they found as JSON: one file a name, one line a row."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from platform import python_version
from typing import Any, Protocol

from benchmarks.results.evaluated import Evaluated
from benchmarks.results.revisions import current
from rlfocal.base.atomic import write_file
from rlfocal.base.errors import InputError
from rlfocal.base.gone import is_gone
from rlfocal.exchange.imports.predictions import import_predictions
from rlfocal.exchange.imports.prices import import_prices
from warehouse import Warehouse

_LIBRARIES = ("rlfocal", "numpy", "scipy", "scikit-learn", "torch")
_PLACE = ("benchmark", "per", "protocol", "split", "label", "study", "settings")
"""What tells one evaluation or study from another."""


class Step(Protocol):
    """One command of a results file."""

    @property
    def command(self) -> str: ...

    @property
    def about(self) -> dict[str, Any]:
        """What all its rows share: benchmark, protocol, per, settings."""
        ...

    def rows(self, warehouse: Warehouse, at_once: int = 1) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """What the data are, with the seconds that it took, and one row for each line of a table.

        At most `at_once` methods run at a time.
        """
        ...


def make(
    warehouse: Warehouse, steps: Sequence[Step], path: Path, at_once: int = 1, *, only_old: bool = False
) -> float:
    """Run the steps, as far as the warehouse lacks their runs, and write the file. Returns their seconds.

    With `only_old`, rows of the code's revisions of their methods stay as they are. Rows of methods that are
    gone stay: nothing can make them anew.
    """
    blocks = []
    before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    of_place = {_place(block): block for block in before}
    for step in steps:
        there = of_place.get(_place(step.about)) if only_old else None
        if there is not None and isinstance(step, Evaluated):
            blocks.append(_renew(warehouse, step, there, at_once))
            continue
        data, rows = step.rows(warehouse, at_once)
        rows = [{"date": datetime.now(UTC).date().isoformat()} | row for row in rows]
        about = {"command": step.command} | step.about | data | {"versions": _versions()}
        blocks.append(about | {"rows": rows})
    _keep_gone(blocks, path)
    write_file(path, dump(blocks))
    return sum(float(block.get("seconds", 0.0)) for block in blocks)


def _renew(warehouse: Warehouse, step: Evaluated, block: dict[str, Any], at_once: int) -> dict[str, Any]:
    """The block with rows of earlier revisions made anew, and those that are compared with such methods.

    Raises InputError if they would come from other data than the rest.
    """
    gone = {row["method"] for row in block["rows"] if is_gone(f"method {row['method']}")}
    old = {row["method"] for row in block["rows"] if not is_current(block, row)} - gone
    if old & set(step.above):
        old = {row["method"] for row in block["rows"]} - gone
    if not old:
        return block
    data, rows = replace(step, methods=(*sorted(old), *step.above)).rows(warehouse, at_once)
    if data["data"] != block["data"]:
        raise InputError(f"{step.command}: made of other data than before; make all rows of it anew")
    today = {"date": datetime.now(UTC).date().isoformat()}
    new = {(row["method"], row["budget"]): today | row for row in rows if row["method"] in old}
    kept = [new.pop((row["method"], row.get("budget")), row) for row in block["rows"]]
    return block | {"rows": [*kept, *new.values()]}


def _keep_gone(blocks: list[dict[str, Any]], path: Path) -> None:
    """Adds the file's rows of methods that are gone to the blocks of the same evaluations."""
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
    """JSON with a line for each row, so that a changed row is a changed line."""
    parts = []
    for block in blocks:
        head = json.dumps(
            {name: value for name, value in block.items() if name != "rows"}, ensure_ascii=False
        )
        rows = ",\n  ".join(json.dumps(row, ensure_ascii=False) for row in block["rows"])
        parts.append(f'{head[:-1]}, "rows": [\n  {rows}\n]}}')
    return "[\n" + ",\n".join(parts) + "\n]\n"


def is_current(block: Mapping[str, Any], row: Mapping[str, Any]) -> bool:
    """Whether a row of the block is of the code's revision of its method."""
    revision = current(row["method"], block["settings"], block["protocol"])
    return revision is not None and revision == row["revision"]


def mark(path: Path) -> list[str]:
    """Mark rows of earlier revisions as old, and the others as not; returns the old methods."""
    blocks = json.loads(path.read_text(encoding="utf-8"))
    for block in blocks:
        for row in block["rows"]:
            row.pop("old", None)
            if not is_current(block, row):
                row["old"] = True
    write_file(path, dump(blocks))
    return sorted({row["method"] for block in blocks for row in block["rows"] if "old" in row})


def import_data(warehouse: Warehouse, folder: Path) -> None:
    """Import every NAME-docs.parquet and NAME-scores.parquet of a folder, and the public list prices.

    Raises InputError without any.
    """
    documents = sorted(folder.glob("*-docs.parquet"))
    if not documents:
        raise InputError(
            f"{folder} has no NAME-docs.parquet; give the folder of the files to import as DATA="
        )
    for docs in documents:
        import_predictions(warehouse, docs, docs.with_name(docs.name.replace("-docs.", "-scores.")))
    import_prices(warehouse)


def _versions() -> str:
    return ", ".join([f"python {python_version()}", *(f"{name} {version(name)}" for name in _LIBRARIES)])
