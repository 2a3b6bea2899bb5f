"""What leaves the warehouse: its tables, records in others' formats, decisions without labels."""

from rlfocal.exporting.tables import ExportReport as ExportReport
from rlfocal.exporting.tables import Format as Format
from rlfocal.exporting.tables import export as export
