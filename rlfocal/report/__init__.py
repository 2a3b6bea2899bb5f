"""The report: which method wins, at what cost, and how it learned, on a terminal and as one HTML file."""

from rlfocal.evaluation.leaderboard import leaderboard
from rlfocal.report.html import write_report
from rlfocal.report.tables import print_table

__all__ = [
    "leaderboard",
    "print_table",
    "write_report",
]
