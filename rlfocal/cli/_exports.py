"""The commands of `rlfocal export`."""

from __future__ import annotations

from typing import Annotated

import typer

from rlfocal.base import options
from rlfocal.base.options import Option
from rlfocal.base.wording import counted
from rlfocal.cli.groups import exports
from rlfocal.cli.support.options import Json, Location, show_result
from rlfocal.cli.support.progress import progress_bars
from rlfocal.exchange.exports import Format, export
from warehouse import open_warehouse


@exports.command("tables")
def export_tables(
    target: Annotated[str, typer.Argument(metavar="DIR", help="A new or empty folder.")],
    format: Annotated[
        Format,
        Option("Hive-partitioned Parquet, or docs, scores and models for `rlfocal import predictions`."),
    ] = "parquet",
    benchmarks: options.Benchmarks = None,
    models: options.Models = None,
    tables: Annotated[
        options.Names | None, Option("Only these tables.", default="all", metavar="T,...", is_listed=True)
    ] = None,
    questions: Annotated[
        bool, Option("Include the texts of confidential documents, such as GPQA's.")
    ] = False,
    snapshot: options.Snapshot = None,
    warehouse: Location = None,
    as_json: Json = False,
) -> None:
    """Write the warehouse's tables to a folder of plain files. All or nothing. (The default.)

    Texts of confidential documents are left out without `--questions`.
    """
    with (
        open_warehouse(warehouse, read_only=True, snapshot=snapshot) as opened,
        progress_bars() as on_progress,
    ):
        report = export(
            opened,
            target,
            format=format,
            benchmarks=benchmarks,
            models=models,
            tables=tables,
            questions=questions,
            on_progress=on_progress,
        )
    lines = [f"{report.path}, from snapshot {report.snapshot}:"]
    for table in report.tables:
        sizes = [(table.rows, "row"), (table.files, "file"), (table.bytes, "byte")]
        lines.append(f"  {table.table}: {', '.join(counted(*size) for size in sizes)}")
    if report.withheld:
        withheld = counted(report.withheld, "confidential document")
        lines.append(f"without the texts of {withheld} (--questions adds them)")
    show_result(report, "\n".join(lines), as_json=as_json)
