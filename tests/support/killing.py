"""Extractions that are stopped and killed, and what they leave in a warehouse: rows and commits."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, NamedTuple

import psutil
import pyarrow as pa

from warehouse import open_warehouse
from warehouse.snapshots import snapshots

KEYS = {
    "docs": "benchmark, task, doc_id",
    "choice_logprobs": "benchmark, task, doc_id, model, choice",
    "answer_passes": "benchmark, task, doc_id, model, pass",
    "traces": "benchmark, task, doc_id, model, trace",
}


EXTRACTION = """
import json, multiprocessing, sys, time
from pathlib import Path
from rlfocal.extraction.running import runner
from rlfocal.pool.specs import PoolSpec

pool = PoolSpec.model_validate_json(Path(sys.argv[1]).read_text())
backend, *preloaded = sys.argv[2:]
runner.ENGINE_MODULES[backend] = (*runner.ENGINE_MODULES.get(backend, ()), *preloaded)
context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(list(runner.ENGINE_MODULES[backend]))
first = context.Process(target=len, args=("",))
first.start()
first.join()
print("ready", flush=True)
for line in sys.stdin:
    location, limit = json.loads(line)
    started = time.perf_counter()
    report = runner.extract(pool, location, backend=backend, limit=limit, jobs=1)
    committed = [[c.model, c.benchmark, c.task] for c in report.committed]
    missing = [gap.reason for gap in report.missing]
    print(json.dumps([committed, missing, time.perf_counter() - started]), flush=True)
"""


class ExtractionEnd(NamedTuple):
    """What an extraction says of itself."""

    committed: list[list[str]]
    """Model, benchmark and task of each partition."""
    missing: list[str]
    """Why, of each partition that it lacks."""
    seconds: float


class Extractor:
    """A process that extracts a pool into whatever warehouse it is told, its libraries imported before."""

    def __init__(
        self,
        pool: Path,
        *preloaded: str,
        backend: str = "hf",
        directory: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`pool` is JSON of a PoolSpec; the engine's processes import the modules `preloaded`."""
        self.directory = directory
        self._process = subprocess.Popen(
            [sys.executable, "-c", EXTRACTION, str(pool), backend, *preloaded],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=directory,
            env=os.environ | (environment or {}),
        )
        self._is_ready = False

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def said(self) -> IO[str]:
        """What it prints once it has finished."""
        assert self._process.stdout is not None
        return self._process.stdout

    def wait(self) -> None:
        """Until it has loaded its libraries."""
        if not self._is_ready:
            assert self.said.readline() == "ready\n"
            self._is_ready = True

    def start(self, location: Path | str, limit: int | None = None) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([str(location), limit]) + "\n")
        self._process.stdin.flush()

    def finish(self) -> ExtractionEnd:
        self.wait()
        return ExtractionEnd(*json.loads(self.said.readline()))

    def kill(self) -> None:
        kill_tree(self._process)

    def kill_engines(self) -> None:
        """SIGKILL to the processes that its fork server has started, and to them alone."""
        for server in psutil.Process(self.pid).children():
            for engine in server.children():
                with contextlib.suppress(psutil.NoSuchProcess):
                    engine.kill()


def kill_tree(process: subprocess.Popen[str]) -> None:
    """SIGKILL to every process of it, found by the system."""
    tree = [psutil.Process(process.pid)]
    tree += tree[0].children(recursive=True)
    for one in tree:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()
    process.communicate()
    psutil.wait_procs(tree, timeout=60)
    assert not [p for p in tree if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


@contextlib.contextmanager
def frozen(pid: int) -> Iterator[None]:
    """Every process of a tree stopped, all its threads: what is on disk now is what a kill would leave."""
    root = psutil.Process(pid)
    stopped: list[psutil.Process] = []
    while new := [process for process in (root, *root.children(recursive=True)) if process not in stopped]:
        for process in new:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.suspend()
                while not has_stopped(process):
                    time.sleep(0.001)
        stopped += new
    try:
        yield
    finally:
        for process in stopped:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()


def has_stopped(process: psutil.Process) -> bool:
    """Whether each of its threads has stopped, or ended."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        stats = [task.read_text() for task in Path(f"/proc/{process.pid}/task").glob("*/stat")]
        return all(stat.rpartition(")")[2].split()[0] in "TtZX" for stat in stats)
    return False


def tables(location: Path | str) -> dict[str, pa.Table]:
    with open_warehouse(location, read_only=True) as warehouse:
        return {name: warehouse.query(f"SELECT * FROM {name} ORDER BY {key}") for name, key in KEYS.items()}


def commits(location: str) -> list[str]:
    """What was ever extracted into a warehouse."""
    with open_warehouse(location, read_only=True) as warehouse:
        said = [snapshot.message or "" for snapshot in snapshots(warehouse)]
    return [message for message in said if message.startswith("extract ")]
