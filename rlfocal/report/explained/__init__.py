"""What trained agents learned, in sentences and tables: on a terminal and as a part of the report."""

from rlfocal.report.explained.page import explained_part, print_explanation

__all__ = ["explained_part", "print_explanation"]
