"""Measures the CPU seconds of a regeneration of the embedded pool, stage by stage, over all its processes."""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

from benchmarks.speed.references import FOLDER, Cost, References, do_fixed_work
from rlfocal.base.errors import RunError

PR_SET_CHILD_SUBREAPER = 36
REFERENCES = References(FOLDER / "demo.json")
SMALL_OPTIONS = ("--models", "lab-llama-small,lab-gemma-small", "--benchmarks", "lab-gpqa", "--limit", "20")
STAGES = {
    "start": ["--help"],
    "extract": ["extract", "--pool", "lab"],
    "train, evaluate and report": ["regenerate", "--pool", "lab", "--seeds", "1"],
    "nothing to do": ["regenerate", "--pool", "lab", "--seeds", "1"],
}
"""By stage, the words of its `rlfocal` command; stages run in this order in one folder."""


class DemoBench(NamedTuple):
    """The costs of the stages in one run, compared with a stored reference."""

    stages: list[Cost]
    work_seconds: float
    """The CPU seconds of the fixed piece of work, on average over the run."""
    commit: str | None
    """The commit of the reference; None if there is no reference."""


def bench_demo(*, whole: bool, on_progress: Callable[[str], None]) -> DemoBench:
    """Runs all stages in a temporary folder, with the `whole` pool, or with two models on one benchmark."""
    size = size_of(whole)
    commit, last = REFERENCES.find_newest(size)
    measured: list[tuple[str, float, float]] = []
    work = [do_fixed_work()]
    with TemporaryDirectory() as folder:
        for name, words in STAGES.items():
            on_progress(f"demo: {name}")
            chosen = () if whole or "--pool" not in words else SMALL_OPTIONS
            command = [sys.executable, "-P", "-c", "from rlfocal.cli import main; main()", *words, *chosen]
            measured.append((name, *measure(command, Path(folder))))
            work.append(do_fixed_work())
    unit = float(np.mean(work))
    stages = [Cost(name, cpu, cpu / unit, last.get(name), wall) for name, cpu, wall in measured]
    return DemoBench(stages, unit, commit)


def size_of(whole: bool) -> str:
    """The name, in the file of references, of a measurement of the whole pool or of a part of it."""
    return "whole" if whole else "small"


def measure(command: Sequence[str], folder: Path) -> tuple[float, float]:
    """CPU and wall seconds of a command with all processes that it started. Raises RunError if it fails.

    To wait for these processes, this process becomes the parent of orphans, and waits for all its children.
    """
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # orphans become this process's children
    environment = {
        name: value for name, value in os.environ.items() if name not in _list_unset_variables(os.environ)
    }
    own = {"PREFECT_HOME": str(folder / "prefect"), "XDG_DATA_HOME": str(folder / "data")}
    before, begun = _read_children_seconds(), time.monotonic()
    with (folder / "said").open("w+") as said:
        code = subprocess.run(
            command, cwd=folder, env=environment | own, stdout=said, stderr=said, check=False
        ).returncode
        for _ in _await_orphans():
            pass
        if code:
            said.seek(0)
            raise RunError(f"{' '.join(command)} ended with exit code {code}: {said.read()[-500:]}")
    return _read_children_seconds() - before, time.monotonic() - begun


def _list_unset_variables(environment: Mapping[str, str]) -> list[str]:
    """The environment variables that would make the command use another warehouse or server."""
    return [name for name in environment if name.startswith(("RLFOCAL_", "PREFECT_"))]


def _await_orphans() -> Iterator[int]:
    """Yields the id of each process that a command left running, once it has ended."""
    while True:
        try:
            yield os.wait()[0]
        except ChildProcessError:
            return


def _read_children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
