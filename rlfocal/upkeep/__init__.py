"""Keeping a warehouse sound: the doctor and drift."""
