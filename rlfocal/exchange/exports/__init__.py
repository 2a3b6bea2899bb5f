"""What leaves the warehouse: its tables, records in others' formats, decisions without labels."""
