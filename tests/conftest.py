"""Fixtures that every test may use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from warehouse import Warehouse, open_warehouse


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data beside the clone."""
    path = Path(__file__).resolve().parents[1].parent / "shared"
    if not path.is_dir():
        pytest.skip("needs ../shared")
    return path


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[Warehouse]:
    """A fresh, empty warehouse."""
    with open_warehouse(tmp_path / "warehouse") as opened:
        yield opened
