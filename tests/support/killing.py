"""A stop and a kill of all processes of an extraction, and what it left in a warehouse: rows and commits."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

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
