"""Corrected labels, from a file to the warehouse, as `correct-labels` brings them."""

from __future__ import annotations

from pathlib import Path

from rlfocal.exchange.imports.labels import correct, read_labels
from warehouse import Warehouse


def correct_from_file(warehouse: Warehouse, path: Path) -> int:
    return correct(warehouse, read_labels(path)[0], path)
