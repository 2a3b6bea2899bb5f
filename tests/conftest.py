"""Fixtures that every test may use."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import postgres_server
import pytest
from postgres_server import PostgresServer

from warehouse import Warehouse, open_warehouse

SLOW_TO_MAKE = ("lab_warehouse", "real_warehouse")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Puts first, side by side, the tests that start vLLM and those that share a slow fixture.

    `pytest -n 3 --dist worksteal` gives each process neighbouring tests and later moves the last ones: so
    no two vLLM run at once, and each such fixture is made once.
    """
    if hasattr(config, "workerinput"):  # a process of pytest-xdist
        items.sort(key=_place)


def _place(item: pytest.Item) -> int:
    if item.get_closest_marker("vllm"):
        return 0
    used = item.fixturenames if isinstance(item, pytest.Function) else []
    return next((i for i, name in enumerate(SLOW_TO_MAKE, 1) if name in used), len(SLOW_TO_MAKE) + 1)


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


@pytest.fixture(scope="session")
def real_warehouse(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse with the three real data sets, through the import that users have, to copy."""
    from rlfocal.imports.predictions import import_predictions

    folder = tmp_path_factory.mktemp("real")
    with open_warehouse(folder / "warehouse") as warehouse:
        for name in ("mmlu16", "bbh5", "gsm8k44"):
            tool = shared / "tools" / "to_predictions.py"
            subprocess.run([sys.executable, tool, name, shared, folder], check=True)
            import_predictions(warehouse, folder / f"{name}-docs.parquet", folder / f"{name}-scores.parquet")
    return folder / "warehouse"


@pytest.fixture(scope="session")
def lab_warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse with every answer of the embedded pool, to read or to copy: filling it takes minutes."""
    from rlfocal.jobs.runner import extract_pool
    from rlfocal.pool import load_pool

    location = tmp_path_factory.mktemp("lab") / "warehouse"
    report = extract_pool(location, load_pool("lab"))
    assert not report.missing
    assert len(report.committed) == 12 * 17
    return location


@pytest.fixture
def warehouse(empty_warehouse: Path, tmp_path: Path) -> Iterator[Warehouse]:
    """A fresh, empty warehouse."""
    shutil.copytree(empty_warehouse, tmp_path / "warehouse")
    with open_warehouse(tmp_path / "warehouse") as opened:
        yield opened


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A Postgres server of the tests' own."""
    programs = postgres_server.programs()
    if programs is None:
        pytest.skip("needs Postgres (on Debian: apt-get install postgresql)")
    with postgres_server.running(programs) as server:
        yield server


@pytest.fixture(params=["directory", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where a new warehouse may stand: a directory, or a database of a real Postgres."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    if request.param == "directory":
        return str(tmp_path / "warehouse")
    server: PostgresServer = request.getfixturevalue("postgres")
    return f"{server.database()}?data={tmp_path / 'data'}"
