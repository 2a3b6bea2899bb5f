"""What leaves the warehouse: its tables, records in others' formats, decisions without labels."""

from rlfocal.exchange.exports.tables import ExportReport as ExportReport
from rlfocal.exchange.exports.tables import Format as Format
from rlfocal.exchange.exports.tables import export as export
