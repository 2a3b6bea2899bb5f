"""Fixtures that every test may use."""

from __future__ import annotations

import shutil
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


@pytest.fixture(scope="session")
def empty_warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty warehouse to copy: creating one takes longer than most tests."""
    path = tmp_path_factory.mktemp("template") / "warehouse"
    open_warehouse(path).close()
    return path


@pytest.fixture
def warehouse(empty_warehouse: Path, tmp_path: Path) -> Iterator[Warehouse]:
    """A fresh, empty warehouse."""
    shutil.copytree(empty_warehouse, tmp_path / "warehouse")
    with open_warehouse(tmp_path / "warehouse") as opened:
        yield opened
