"""Imports data of other tools, exports data to them, and answers SQL."""
