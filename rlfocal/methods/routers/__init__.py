"""Methods that ask one model per document, chosen by its question."""
