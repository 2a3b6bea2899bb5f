"""Runs extraction jobs, one process per model, and commits each partition that they finish."""
