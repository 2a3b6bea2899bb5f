"""What an extraction left in a warehouse, and a kill of all its processes."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

import psutil
import pyarrow as pa

from warehouse import open_warehouse
from warehouse.snapshots import snapshots

KEYS = {
    "docs": "benchmark, task, doc_id",
    "choice_logprobs": "benchmark, task, doc_id, model, choice",
    "answer_passes": "benchmark, task, doc_id, model, pass",
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


def tables(location: Path | str) -> dict[str, pa.Table]:
    with open_warehouse(location, read_only=True) as warehouse:
        return {name: warehouse.query(f"SELECT * FROM {name} ORDER BY {key}") for name, key in KEYS.items()}


def commits(location: str) -> list[str]:
    """What was ever extracted into a warehouse."""
    with open_warehouse(location, read_only=True) as warehouse:
        said = [snapshot.message or "" for snapshot in snapshots(warehouse)]
    return [message for message in said if message.startswith("extract ")]
