"""Commands that correct the warehouse: correct-labels, remove-model, rename-model. Each is a new snapshot."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlfocal.cli.options import Benchmarks, Json, Location, names, print_json


def correct_labels(
    file: Annotated[
        Path,
        typer.Argument(
            help="Parquet, CSV or JSONL: benchmark, task, doc_id, and label or (for answers) gold.",
            show_default=False,
        ),
    ],
    warehouse: Location = None,
    as_json: Json = False,
) -> None:
    """Correct documents' labels or gold answers. All of them, or none; done already, nothing is written.

    What models answered stays, so accuracies change at once; evaluations of the former labels stay as
    history. A corrected document stays so when it is imported or extracted again with its former label.
    """
    from rlfocal.imports.labels import correct_from_file
    from warehouse import open_warehouse

    with open_warehouse(warehouse, create=False) as opened:
        n = correct_from_file(opened, file)
        _tell({"corrected": n, "snapshot": opened.snapshot()}, f"{n:,} documents corrected", as_json=as_json)


def remove_model(
    model: Annotated[str, typer.Argument(help="Its name in the warehouse.", show_default=False)],
    benchmarks: Benchmarks = None,
    warehouse: Location = None,
    as_json: Json = False,
) -> None:
    """Remove what a model answered. Past evaluations stay, and earlier snapshots still have its rows."""
    from warehouse import open_warehouse
    from warehouse.corrections import remove_model as remove

    with open_warehouse(warehouse, create=False) as opened:
        n = remove(opened, model, names(benchmarks, "--benchmarks"))
        told = {"partitions": n, "snapshot": opened.snapshot()}
        _tell(told, f"{n:,} partitions of {model} removed", as_json=as_json)


def rename_model(
    old: Annotated[str, typer.Argument(help="Its name in the warehouse.", show_default=False)],
    new: Annotated[str, typer.Argument(help="Its new name.", show_default=False)],
    warehouse: Location = None,
    as_json: Json = False,
) -> None:
    """Rename a model everywhere but in past evaluations. Rename it in its pool file, too."""
    from warehouse import open_warehouse
    from warehouse.corrections import rename_model as rename

    with open_warehouse(warehouse, create=False) as opened:
        n = rename(opened, old, new)
        told = {"partitions": n, "snapshot": opened.snapshot()}
        _tell(told, f"{old} is {new} now, with {n:,} partitions", as_json=as_json)


def _tell(told: dict[str, int], line: str, *, as_json: bool) -> None:
    if as_json:
        print_json(told)
    else:
        typer.echo(line)
