"""`rlfocal export`: the warehouse's tables as plain files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from rlfocal.cli.support.options import (
    Benchmarks,
    Json,
    Location,
    Models,
    Snapshot,
    names,
    print_json,
)
from rlfocal.cli.support.progress import progress_bars
from rlfocal.wording import counted

Tables = Annotated[str | None, typer.Option(metavar="T,...", help="Only these tables.", show_default="all")]


def export(
    target: Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty folder.", show_default=False)],
    format: Annotated[
        Literal["parquet", "datasets", "predictions"],
        typer.Option(
            help="Hive-partitioned Parquet, a folder for Hugging Face's load_dataset, or docs.parquet and "
            "scores.parquet for `rlfocal import predictions`."
        ),
    ] = "parquet",
    benchmarks: Benchmarks = None,
    models: Models = None,
    tables: Tables = None,
    questions: Annotated[
        bool, typer.Option("--questions", help="With the texts of confidential documents, such as GPQA's.")
    ] = False,
    snapshot: Snapshot = None,
    warehouse: Location = None,
    as_json: Json = False,
) -> None:
    """Write the warehouse's tables to a folder of plain files: all of them, or nothing.

    Texts of confidential documents stay out unless `--questions`.
    """
    from rlfocal.exporting import export as write
    from warehouse import open_warehouse

    with (
        open_warehouse(warehouse, read_only=True, snapshot=snapshot) as opened,
        progress_bars() as on_progress,
    ):
        report = write(
            opened,
            target,
            format=format,
            benchmarks=names(benchmarks, "--benchmarks"),
            models=names(models),
            tables=names(tables, "--tables"),
            questions=questions,
            on_progress=on_progress,
        )
    if as_json:
        print_json(report)
        return
    typer.echo(f"{report.path}, from snapshot {report.snapshot}:")
    for table in report.tables:
        sizes = [(table.rows, "row"), (table.files, "file"), (table.bytes, "byte")]
        typer.echo(f"  {table.table}: {', '.join(counted(*size) for size in sizes)}")
    if report.withheld:
        withheld = counted(report.withheld, "confidential document")
        typer.echo(f"without the texts of {withheld} (--questions adds them)")
