"""The report, which says which method wins, at what cost, and how it learned: tables, and one HTML file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlfocal.base.names import import_when_used

if TYPE_CHECKING:
    from rlfocal.report.html import write_report as write_report
    from rlfocal.report.tables import print_table as print_table

__getattr__ = import_when_used(
    __name__,
    {
        "print_table": "rlfocal.report.tables",
        "write_report": "rlfocal.report.html",
    },
)
