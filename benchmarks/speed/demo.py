"""CPU seconds of a regeneration of the embedded pool, stage by stage, of all processes that it starts."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from rlfocal.base.errors import RunError

PR_SET_CHILD_SUBREAPER = 36
REFERENCES = Path(__file__).parents[1] / "references" / "demo.json"
"""Ratios by commit, the newest last."""
SLOWER = 1.5
"""A stage that takes this many times its last ratio is named."""
SMALL = ("--models", "lab-llama-small,lab-gemma-small", "--benchmarks", "lab-gpqa", "--limit", "20")
STAGES = {
    "start": ["--help"],
    "extract": ["extract", "--pool", "lab"],
    "train, evaluate and report": ["regenerate", "--pool", "lab", "--seeds", "1"],
    "nothing to do": ["regenerate", "--pool", "lab", "--seeds", "1"],
}
"""Commands, each on what those before it left."""


class Stage(NamedTuple):
    """What one stage cost."""

    name: str
    cpu_seconds: float
    """User and system time of the whole process tree, orphans included."""
    ratio: float
    """To the fixed piece of work that is measured beside it."""
    wall_seconds: float
    last: float | None
    """The ratio in the newest reference; None where there is none."""

    @property
    def times_slower(self) -> float | None:
        return None if not self.last else self.ratio / self.last


class DemoBench(NamedTuple):
    """The stages of one run, and the reference beside them."""

    stages: list[Stage]
    work_seconds: float
    """CPU seconds of the fixed piece of work."""
    commit: str | None
    """Of the reference."""

    @property
    def slower(self) -> list[Stage]:
        """Stages that became more than SLOWER times as dear."""
        return [stage for stage in self.stages if (stage.times_slower or 0.0) > SLOWER]


def bench_demo(*, whole: bool, on_progress: Callable[[str], None]) -> DemoBench:
    """Runs the stages in a folder of their own: the whole pool, or two models on one benchmark."""
    key = "whole" if whole else "small"
    commit, last = newest(key)
    measured: list[tuple[str, float, float]] = []
    work = [do_fixed_work()]
    with TemporaryDirectory() as folder:
        for name, words in STAGES.items():
            on_progress(f"demo: {name}")
            chosen = () if whole or "--pool" not in words else SMALL
            command = [sys.executable, "-P", "-c", "from rlfocal.cli import main; main()", *words, *chosen]
            measured.append((name, *measure(command, Path(folder))))
            work.append(do_fixed_work())
    unit = float(np.mean(work))
    stages = [Stage(name, cpu, cpu / unit, wall, last.get(name)) for name, cpu, wall in measured]
    return DemoBench(stages, unit, commit)


def store(found: DemoBench, *, whole: bool, commit: str) -> None:
    """Adds the ratios to the references, in place of earlier ones of the commit."""
    key, references = "whole" if whole else "small", _references()
    stored = [row for row in references if (row["commit"], row["size"]) != (commit, key)]
    ratios = {stage.name: round(stage.ratio, 2) for stage in found.stages}
    stored.append({"commit": commit, "size": key, "ratios": ratios})
    REFERENCES.parent.mkdir(exist_ok=True)
    REFERENCES.write_text(json.dumps(stored, indent=1) + "\n")


def do_fixed_work() -> float:
    """CPU seconds of a piece of work that no change of this project touches: Python, hashing and numpy."""
    begun = time.process_time()
    total, digest = 0, b""
    for number in range(400_000):
        total += number % 7
        digest = sha256(digest).digest()
    values = np.random.default_rng(0).random((400, 400))
    for _ in range(10):
        values = np.sort(values, axis=0)[::-1] / 2
    return time.process_time() - begun


def measure(command: Sequence[str], folder: Path) -> tuple[float, float]:
    """CPU and wall seconds of a command, once all that it started has ended. Raises RunError if it fails.

    It waits for every child of this process, which becomes the parent of orphans.
    """
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # orphans become this process's children
    environment = {name: value for name, value in os.environ.items() if name not in _unset(os.environ)}
    own = {"PREFECT_HOME": str(folder / "prefect"), "XDG_DATA_HOME": str(folder / "data")}
    before, begun = _used_by_children(), time.monotonic()
    with (folder / "said").open("w+") as said:
        code = subprocess.run(
            command, cwd=folder, env=environment | own, stdout=said, stderr=said, check=False
        ).returncode
        for _ in _orphans():
            pass
        if code:
            said.seek(0)
            raise RunError(f"{' '.join(command)} ended with exit code {code}: {said.read()[-500:]}")
    return _used_by_children() - before, time.monotonic() - begun


def _unset(environment: Mapping[str, str]) -> list[str]:
    """Variables under which the command would use another warehouse or server."""
    return [name for name in environment if name.startswith(("RLFOCAL_", "PREFECT_"))]


def _orphans() -> Iterator[int]:
    """Waits for each process that a command left behind."""
    while True:
        try:
            yield os.wait()[0]
        except ChildProcessError:
            return


def _used_by_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def newest(size: str) -> tuple[str | None, dict[str, float]]:
    """The commit and the ratios of the newest reference of this size."""
    of_size = [row for row in _references() if row["size"] == size]
    return (of_size[-1]["commit"], of_size[-1]["ratios"]) if of_size else (None, {})


def _references() -> list[dict[str, Any]]:
    stored: list[dict[str, Any]] = json.loads(REFERENCES.read_text()) if REFERENCES.exists() else []
    return stored
