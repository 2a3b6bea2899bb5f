"""kill -9 at random moments of an export: it is whole, or not there."""

from __future__ import annotations

import multiprocessing
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.rows import put_choices

from rlfocal.exchange.exports import export
from warehouse import open_warehouse

N_KILLS = 2  # at least


def export_here(warehouse: Path, path: Path) -> None:
    with open_warehouse(warehouse, read_only=True) as opened:
        export(opened, path)


def killed(context: Any, work: Callable[..., None], arguments: tuple[Any, ...], delay: float) -> None:
    process = context.Process(target=work, args=arguments)
    process.start()
    time.sleep(delay)
    process.kill()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL)


def duration(context: Any, work: Callable[..., None], arguments: tuple[Any, ...]) -> float:
    begun = time.perf_counter()
    process = context.Process(target=work, args=arguments)
    process.start()
    process.join()
    assert process.exitcode == 0
    return time.perf_counter() - begun


@pytest.fixture(scope="module")
def context() -> Any:
    made = multiprocessing.get_context("forkserver")
    made.set_forkserver_preload(["pytest", "pyarrow.parquet", "rlfocal.exchange.exports"])
    return made


@pytest.mark.slow
def test_a_killed_export_is_whole_or_not_there(context: Any, tmp_path: Path) -> None:
    with open_warehouse(tmp_path / "w") as warehouse:
        put_choices(warehouse, {"k": [True] * 400, "m": [False] * 400})
    lasted = duration(context, export_here, (tmp_path / "w", tmp_path / "whole"))
    moments = random.Random(random.SystemRandom().randrange(2**32))
    there: list[bool] = []
    latest = 1.1 * lasted
    while len(there) < N_KILLS or all(there):
        target = tmp_path / f"out{len(there)}"
        delay = latest * moments.random()
        killed(context, export_here, (tmp_path / "w", target), delay)
        there.append(target.exists())
        if there[-1]:
            latest = delay
        else:
            export_here(tmp_path / "w", target)
        assert contents(target) == contents(tmp_path / "whole")


def contents(path: Path) -> dict[str, bytes]:
    files = (found for found in path.rglob("*") if found.is_file())
    return {str(found.relative_to(path)): found.read_bytes() for found in files}
