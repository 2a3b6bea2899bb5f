"""Fixtures of rlfocal's own tests that those of rivals use, too."""

from __future__ import annotations

pytest_plugins = ["support.basics"]
