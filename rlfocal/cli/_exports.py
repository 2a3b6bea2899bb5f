"""The commands of `rlfocal export`: what an export's own function asks for is what its command does."""

from __future__ import annotations

from typing import Any

from rlfocal.base.request import Snapshot
from rlfocal.base.wording import counted
from rlfocal.cli.subcommands import exports
from rlfocal.cli.support.options import Location, Result
from rlfocal.cli.support.progress import progress_bars
from rlfocal.cli.support.requests import takes
from rlfocal.exchange.exports import export
from warehouse import open_warehouse


@exports.command("tables")
@takes(export, arguments=["target"])
def export_tables(asked: dict[str, Any], snapshot: Snapshot = None, warehouse: Location = None) -> Result:
    """Write the warehouse's tables to a folder of plain files. All or nothing. (The default.)

    Texts of confidential documents are left out without `--questions`.
    """
    with (
        open_warehouse(warehouse, read_only=True, snapshot=snapshot) as opened,
        progress_bars() as on_progress,
    ):
        report = export(opened, **asked, on_progress=on_progress)
    lines = [f"{report.path}, from snapshot {report.snapshot}:"]
    for table in report.tables:
        sizes = [(table.rows, "row"), (table.files, "file"), (table.bytes, "byte")]
        lines.append(f"  {table.table}: {', '.join(counted(*size) for size in sizes)}")
    if report.withheld:
        withheld = counted(report.withheld, "confidential document")
        lines.append(f"without the texts of {withheld} (--questions adds them)")
    return Result(report, "\n".join(lines))
