"""kill -9 at random moments: an export is whole or not there, an import landed whole or not at all."""

from __future__ import annotations

import multiprocessing
import random
import signal
import time
from collections.abc import Callable
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.rows import put_choices

from rlfocal.exchange.exports import export
from rlfocal.exchange.imports.predictions import import_predictions
from rlfocal.exchange.imports.rows import ImportReport
from warehouse import Warehouse, open_warehouse
from warehouse.expiry import delete_leftovers, find_orphans

pytestmark = pytest.mark.slow
TASKS = ("s", "t")
N_DOCS = 200  # of each task
N_ROWS = 3 * N_DOCS * len(TASKS)
STATE = """
    SELECT model, count(*), count(DISTINCT (task, doc_id, choice)), sum(logprob)
    FROM choice_logprobs GROUP BY model ORDER BY model
"""


def forks(*modules: str) -> ForkServerContext:
    """A maker of processes that start with these modules imported."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(modules))
    return context


def duration(context: ForkServerContext, work: Callable[..., None], given: tuple[Any, ...]) -> float:
    """Seconds that an undisturbed process takes."""
    begun = time.perf_counter()
    process = context.Process(target=work, args=given)
    process.start()
    process.join()
    assert process.exitcode == 0
    return time.perf_counter() - begun


def kill_at_random(
    context: ForkServerContext,
    work: Callable[..., None],
    given: Callable[[int], tuple[Any, ...]],
    has_landed: Callable[[int], bool],
    least: int,
    longest: float,
) -> None:
    """Kills processes that do `work(*given(n))`, each at a random moment: as many as `least`, and more until
    one had not landed yet."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")  # pytest shows it where the test fails
    moments, latest = random.Random(seed), 1.1 * longest
    landed: list[bool] = []
    while len(landed) < least or all(landed):
        n, delay = len(landed), latest * moments.random()
        process = context.Process(target=work, args=given(n))
        process.start()
        time.sleep(delay)
        process.kill()
        process.join()
        assert process.exitcode in (0, -signal.SIGKILL)
        landed.append(has_landed(n))
        if landed[-1]:
            latest = delay  # the next kill comes earlier


def export_here(warehouse: Path, path: Path) -> None:
    with open_warehouse(warehouse, read_only=True) as opened:
        export(opened, path)


def contents(path: Path) -> dict[str, bytes]:
    files = (found for found in path.rglob("*") if found.is_file())
    return {str(found.relative_to(path)): found.read_bytes() for found in files}


def test_a_killed_export_is_whole_or_not_there(tmp_path: Path) -> None:
    context = forks("pytest", "pyarrow.parquet", "rlfocal.exchange.exports")
    place, whole = tmp_path / "w", tmp_path / "whole"
    with open_warehouse(place) as warehouse:
        put_choices(warehouse, {"k": [True] * 400, "m": [False] * 400})
    lasted = duration(context, export_here, (place, whole))

    def is_there(n: int) -> bool:
        target = tmp_path / f"out{n}"
        landed = target.exists()
        if not landed:
            export_here(place, target)
        assert contents(target) == contents(whole)
        return landed

    kill_at_random(context, export_here, lambda n: (place, tmp_path / f"out{n}"), is_there, 2, lasted)


def write_files(folder: Path, model: str) -> None:
    places = [(task, doc_id) for task in TASKS for doc_id in range(N_DOCS)]
    columns: dict[str, list[Any]] = {"benchmark": ["b"] * len(places), "task": [t for t, _ in places]}
    columns |= {"doc_id": [doc_id for _, doc_id in places]}
    questions = [f"{random.Random(i).random()}" * 50 for i in range(len(places))]
    docs = columns | {"label": [0] * len(places), "question": questions}
    pq.write_table(pa.table(docs), folder / "docs.parquet")
    rows = columns | {"model": [model] * len(places), "choice_logprobs": [[1.0, 2.0, 3.0]] * len(places)}
    pq.write_table(pa.table(rows), folder / f"{model}.parquet")


def import_model(warehouse: Warehouse, folder: Path, model: str) -> ImportReport:
    return import_predictions(warehouse, folder / "docs.parquet", folder / f"{model}.parquet")


def open_and_import(folder: Path, model: str) -> None:
    with open_warehouse(folder / "w") as warehouse:
        import_model(warehouse, folder, model)


def test_a_killed_import_lands_whole_or_not_at_all(tmp_path: Path) -> None:
    context = forks("pytest", "pyarrow.parquet", "rlfocal.exchange.imports.predictions")
    whole = {}
    for model in ("u0", "u1", "u2"):  # undisturbed
        write_files(tmp_path, model)
        lasted = duration(context, open_and_import, (tmp_path, model))
        whole[model] = (model, N_ROWS, N_ROWS, 2.0 * N_ROWS)
    left: set[str] = set()

    def given(n: int) -> tuple[Path, str]:
        write_files(tmp_path, f"m{n:02}")
        return tmp_path, f"m{n:02}"

    def has_landed(n: int) -> bool:
        model = f"m{n:02}"
        row = (model, N_ROWS, N_ROWS, 2.0 * N_ROWS)
        with open_warehouse(tmp_path / "w") as warehouse:
            found = {row[0]: row for row in warehouse.rows(STATE)}
            landed = model in found
            assert found == whole | ({model: row} if landed else {})
            assert {m for m, _, _ in warehouse.fingerprints()} == set(found)
            left.update(find_orphans(warehouse))
            assert import_model(warehouse, tmp_path, model).n_written == (0 if landed else len(TASKS))
        whole[model] = row
        return landed

    kill_at_random(context, open_and_import, given, has_landed, 8, lasted)
    with open_warehouse(tmp_path / "w") as warehouse:
        assert {row[0]: row for row in warehouse.rows(STATE)} == whole
        assert set(find_orphans(warehouse)) == left
        with warehouse.upkeep():
            assert delete_leftovers(warehouse) == len(left)
        assert find_orphans(warehouse) == []
        assert {row[0]: row for row in warehouse.rows(STATE)} == whole
