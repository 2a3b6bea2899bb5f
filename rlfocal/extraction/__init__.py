"""Extracts the answers of a pool's models into a warehouse: `rlfocal.extract`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlfocal.base.names import import_when_used

if TYPE_CHECKING:
    from rlfocal.extraction.running.runner import extract as extract

__getattr__ = import_when_used(__name__, {"extract": "rlfocal.extraction.running.runner"})
