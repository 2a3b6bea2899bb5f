"""Shared by tests: killing."""

from __future__ import annotations

import contextlib
import random
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple
import psutil
import pyarrow as pa
import pytest
from tiny_models import save_model, write_tasks
from rlfocal.extraction.running.runner import extract_pool
from rlfocal.pool.specs import Benchmark, ModelSpec, PoolSpec
from warehouse import open_warehouse
from warehouse.locations import locate

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
