"""Loads fixtures of rlfocal's own tests for the tests of rivals."""

from __future__ import annotations

pytest_plugins = ["support.basics"]
