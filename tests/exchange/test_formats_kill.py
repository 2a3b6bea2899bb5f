"""kill -9 at random moments of imports in others' formats and of an export: each is whole, or not there."""

from __future__ import annotations

import multiprocessing
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.llmrouterbench_files import result
from support.llmrouterbench_files import write as write_result
from support.routerbench_files import row
from support.routerbench_files import write as write_table

from rlfocal.exchange.exports import export
from rlfocal.exchange.imports.llmrouterbench import import_llmrouterbench
from rlfocal.exchange.imports.routerbench import import_routerbench
from warehouse import Warehouse, open_warehouse

N_KILLS = 2  # of each, at least
N_DOCS = 400
MODELS = ("m", "n")
Work = Callable[[Warehouse, Path], Any]


def write_llmrouterbench(folder: Path) -> Path:
    for model in MODELS:
        given = [
            {
                "index": i + 1,
                "origin_query": f"question {i}",
                "score": float(i % 2),
                "prediction": str(i),
                "ground_truth": str(i + 1),
                "raw_output": "because " * 50,
            }
            for i in range(N_DOCS)
        ]
        write_result(folder / "llmrouterbench", model, result(given))
    return folder / "llmrouterbench"


def write_routerbench(folder: Path) -> Path:
    rows = [row(f"x.{i}", (i % 2, 0), ("A" * 400, "B" * 400)) for i in range(N_DOCS)]
    return write_table(folder / "r.csv", rows)


IMPORTS: dict[str, tuple[Callable[[Path], Path], Work]] = {
    "llmrouterbench": (write_llmrouterbench, lambda w, path: import_llmrouterbench(w, [path])),
    "routerbench": (write_routerbench, import_routerbench),
}


def import_here(kind: str, warehouse: Path, path: Path) -> None:
    with open_warehouse(warehouse) as opened:
        IMPORTS[kind][1](opened, path)


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
    made.set_forkserver_preload(["pytest", "pyarrow.parquet", "rlfocal.exchange.imports.routerbench"])
    return made


@pytest.mark.slow
@pytest.mark.parametrize("kind", IMPORTS)
def test_a_killed_import_lands_whole_or_not_at_all(context: Any, tmp_path: Path, kind: str) -> None:
    prepare, work = IMPORTS[kind]
    path = prepare(tmp_path)
    state = (
        "SELECT (SELECT count(*) FROM docs), (SELECT count(*) FROM answer_passes), count(*) FROM extractions"
    )
    whole = (N_DOCS, N_DOCS * len(MODELS), len(MODELS))
    import_here(kind, tmp_path / "first", path)
    lasted = duration(context, import_here, (kind, tmp_path / "w0", path))
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")  # pytest shows it where the test fails
    moments = random.Random(seed)
    landed: list[bool] = []
    latest = 1.1 * lasted
    while len(landed) < N_KILLS or all(landed):
        target = tmp_path / f"w{len(landed) + 1}"
        open_warehouse(target).close()
        delay = latest * moments.random()
        killed(context, import_here, (kind, target, path), delay)
        with open_warehouse(target) as warehouse:
            [found] = warehouse.rows(state)
            assert found in ((0, 0, 0), whole)
            landed.append(found == whole)
            work(warehouse, path)
            assert warehouse.rows(state) == [whole]
        if landed[-1]:
            latest = delay  # the next kill comes earlier, until one comes before a commit


@pytest.mark.slow
def test_a_killed_export_is_whole_or_not_there(context: Any, tmp_path: Path) -> None:
    import_here("llmrouterbench", tmp_path / "w", write_llmrouterbench(tmp_path))
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
