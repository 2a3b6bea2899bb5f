"""Keeps a warehouse sound: `doctor` checks it, and `drift` finds changed answers."""
