"""How long commands with nothing to do take, compared with importing torch alone."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from rlfocal.errors import RunError
from rlfocal.pool import load_pool

BARE = "python -c pass"
REFERENCE = "python -c 'import torch'"
_MAIN = "from rlfocal.cli import main; main()"
_MESSAGE = 300  # characters of a failed command's last words


@dataclass(frozen=True)
class Wait:
    """One command, again and again."""

    command: str
    seconds: float
    """Median, from the start of its process to its end."""
    fastest: float
    slowest: float
    of_reference: float
    """Its median in units of the reference's."""


def bench_noop(
    pool: str = "lab",
    warehouse: str | None = None,
    repeats: int = 5,
    on_progress: Callable[[str], None] = lambda line: None,
) -> tuple[Wait, ...]:
    """Runs `regenerate` on the pool until nothing is left to do, then times that and the other commands.

    `warehouse` may already be complete; None makes a temporary one, which takes minutes for `lab`.
    Raises RunError if a command fails, with the end of its message.
    """
    with TemporaryDirectory() as folder:
        place = warehouse or str(Path(folder) / "warehouse")
        commands = _commands(pool, place, Path(folder) / "report.html")
        on_progress(f"regenerating pool {pool} in {place} ...")
        for name, words in commands.items():
            if name not in (BARE, REFERENCE):
                _seconds(name, words)
        taken: dict[str, list[float]] = {name: [] for name in commands}
        for turn in range(repeats):
            on_progress(f"turn {turn + 1} of {repeats}")
            for name, words in commands.items():  # in turns, so that a busy moment does not fall on one alone
                taken[name].append(_seconds(name, words))
    unit = median(taken[REFERENCE])
    return tuple(
        Wait(name, median(times), min(times), max(times), median(times) / unit)
        for name, times in taken.items()
    )


def _commands(pool: str, warehouse: str, report: Path) -> dict[str, list[str]]:
    """What is run, by the name it has in the table; `regenerate` first, as the others need what it makes."""
    benchmark = load_pool(pool).benchmarks[0].name
    place = ["--warehouse", warehouse]
    ours = {
        "regenerate": ["--pool", pool, "--output", str(report), *place],
        "evaluate": ["--benchmark", benchmark, *place],
        "train": ["--benchmark", benchmark, *place],
        "report": ["--output", str(report), *place],
        "doctor": place,
        "--help": [],
    }
    return {f"rlfocal {name}": ["-c", _MAIN, name, *words] for name, words in ours.items()} | {
        REFERENCE: ["-c", "import torch"],
        BARE: ["-c", "pass"],
    }


def _seconds(name: str, words: Sequence[str]) -> float:
    environment = {key: value for key, value in os.environ.items() if key != "PREFECT_API_URL"}
    started = time.perf_counter()
    ran = subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True)
    seconds = time.perf_counter() - started
    if ran.returncode != 0:
        raise RunError(f"{name} ended with exit code {ran.returncode}: {ran.stderr.strip()[-_MESSAGE:]}")
    return seconds
