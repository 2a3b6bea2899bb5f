"""Data from and to other tools: imports, exports, SQL."""
