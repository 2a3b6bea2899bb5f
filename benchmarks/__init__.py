"""Measurements whose results the docs show; this package is in no wheel."""
