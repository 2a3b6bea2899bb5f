"""What tests of rlfocal and of rivals both need: how many examples are tried, fresh warehouses, processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from warehouse import Warehouse, open_warehouse, opening
from warehouse.locations import Location

MadeOnce = Callable[[str, Callable[[Path], object]], Path]

# Few examples by default; `make test-all` runs the same tests again with --hypothesis-profile=thorough.
hypothesis.settings.register_profile("quick", max_examples=8, deadline=None)
hypothesis.settings.register_profile(
    "thorough", max_examples=int(os.environ.get("RLFOCAL_EXAMPLES", "30")), deadline=None
)
hypothesis.settings.load_profile("quick")


RLFOCAL = ("-c", "from rlfocal.cli import main; main()")
"""Arguments of a Python that runs the command line, wherever its script is."""


def run_python(*words: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> str:
    """What a process of Python prints that has to end well."""
    done = subprocess.run(
        [sys.executable, *words], cwd=cwd, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="session")
def empty_warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty warehouse to copy: creating one takes longer than most tests."""
    path = tmp_path_factory.mktemp("template") / "warehouse"
    open_warehouse(path).close()
    return path


ATTACH_OR_CREATE = opening._attach_or_create


@pytest.fixture(scope="session", autouse=True)
def new_warehouses_are_copies(empty_warehouse: Path) -> Iterator[None]:
    """Whatever a test creates in a new directory is a copy of an empty warehouse."""

    def attach(connection: Any, place: Location, *, create: bool, **how: Any) -> None:
        if create and place.directory is not None:
            with suppress(OSError):  # something is there, or cannot be: what then happens is the product's
                _copy_to(place.directory, empty_warehouse)
        ATTACH_OR_CREATE(connection, place, create=create, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opening, "_attach_or_create", attach)
        yield


def _copy_to(directory: Path, empty: Path) -> None:
    """All at once, as others may look for it or make it meanwhile."""
    if directory.exists() and any(directory.iterdir()):
        return
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent) as own:
        Path(shutil.copytree(empty, Path(own) / "new")).rename(directory)


@pytest.fixture
def made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of how a warehouse is created."""
    monkeypatch.setattr(opening, "_attach_or_create", ATTACH_OR_CREATE)


@pytest.fixture
def warehouse(empty_warehouse: Path, tmp_path: Path) -> Iterator[Warehouse]:
    """A fresh, empty warehouse."""
    shutil.copytree(empty_warehouse, tmp_path / "warehouse")
    with open_warehouse(tmp_path / "warehouse") as opened:
        yield opened


@pytest.fixture
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that hold however little a router learns."""
    monkeypatch.setattr("rlfocal_rivals.question.MIN_STEPS", 10)
