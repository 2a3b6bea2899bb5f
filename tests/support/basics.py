"""What tests of rlfocal and of rivals both need: how many examples are tried, and a fresh warehouse."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest

from warehouse import Warehouse, open_warehouse

MadeOnce = Callable[[str, Callable[[Path], object]], Path]

# Few examples by default; `make test-all` runs the same tests again with --hypothesis-profile=thorough.
hypothesis.settings.register_profile("quick", max_examples=8, deadline=None)
hypothesis.settings.register_profile(
    "thorough", max_examples=int(os.environ.get("RLFOCAL_EXAMPLES", "30")), deadline=None
)
hypothesis.settings.load_profile("quick")


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


@pytest.fixture
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that hold however little a router learns."""
    monkeypatch.setattr("rlfocal_rivals.question.FEWEST_STEPS", 10)
