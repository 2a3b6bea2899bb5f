"""What tests of rlfocal and of rivals both need: how many examples are tried, fresh warehouses, processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
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
