"""kill -9 at random moments of imports into one warehouse: each landed whole, or not at all."""

from __future__ import annotations

import multiprocessing
import random
import signal
import time
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rlfocal.exchange.imports.predictions import import_predictions
from rlfocal.exchange.imports.rows import ImportReport
from warehouse import Warehouse, open_warehouse
from warehouse.expiry import delete_leftovers, orphans

N_KILLS = 8  # at least
TASKS = ("s", "t")
N_DOCS = 200  # of each task
N_ROWS = 3 * N_DOCS * len(TASKS)
STATE = """
    SELECT model, count(*), count(DISTINCT (task, doc_id, choice)), sum(logprob)
    FROM choice_logprobs GROUP BY model ORDER BY model
"""


def write_files(folder: Path, models: list[str]) -> None:
    places = [(task, doc_id) for task in TASKS for doc_id in range(N_DOCS)]
    keys = {"benchmark": "b", "task": [task for task, _ in places], "doc_id": [i for _, i in places]}
    columns = keys | {"benchmark": ["b"] * len(places)}
    questions = [f"{random.Random(i).random()}" * 50 for i in range(len(places))]
    docs = columns | {"label": [0] * len(places), "question": questions}
    pq.write_table(pa.table(docs), folder / "docs.parquet")
    for model in models:
        scores = [[1.0, 2.0, 3.0]] * len(places)
        rows = columns | {"model": [model] * len(places), "choice_logprobs": scores}
        pq.write_table(pa.table(rows), folder / f"{model}.parquet")


def import_model(warehouse: Warehouse, folder: Path, model: str) -> ImportReport:
    return import_predictions(warehouse, folder / "docs.parquet", folder / f"{model}.parquet")


def open_and_import(folder: Path, model: str) -> None:
    with open_warehouse(folder / "w") as warehouse:
        import_model(warehouse, folder, model)


def started(context: ForkServerContext, folder: Path, model: str) -> ForkServerProcess:
    process = context.Process(target=open_and_import, args=(folder, model))
    process.start()
    return process


@pytest.mark.slow
def test_a_killed_import_lands_whole_or_not_at_all(tmp_path: Path) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pytest", "pyarrow.parquet", "rlfocal.exchange.imports.predictions"])
    undisturbed = ["u0", "u1", "u2"]
    write_files(tmp_path, undisturbed)
    durations = []
    for model in undisturbed:
        begun = time.perf_counter()
        process = started(context, tmp_path, model)
        process.join()
        durations.append(time.perf_counter() - begun)
        assert process.exitcode == 0

    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")  # pytest shows it where the test fails
    moments = random.Random(seed)
    whole = {model: (model, N_ROWS, N_ROWS, 2.0 * N_ROWS) for model in undisturbed}
    landed: list[bool] = []
    left: set[str] = set()
    latest = 1.1 * durations[-1]
    while len(landed) < N_KILLS or all(landed):
        model = f"m{len(landed):02}"
        write_files(tmp_path, [model])
        delay = latest * moments.random()
        process = started(context, tmp_path, model)
        time.sleep(delay)
        process.kill()
        process.join()
        with open_warehouse(tmp_path / "w") as warehouse:
            found = {row[0]: row for row in warehouse.rows(STATE)}
            landed.append(model in found)
            expected = whole | ({model: (model, N_ROWS, N_ROWS, 2.0 * N_ROWS)} if landed[-1] else {})
            assert found == expected
            assert {m for m, _, _ in warehouse.fingerprints()} == set(expected)
            left.update(orphans(warehouse))
            assert import_model(warehouse, tmp_path, model).n_written == (0 if landed[-1] else len(TASKS))
            whole[model] = (model, N_ROWS, N_ROWS, 2.0 * N_ROWS)
        assert process.exitcode in (0, -signal.SIGKILL)
        if landed[-1]:
            latest = delay  # the next kill comes earlier, until one comes before a commit

    with open_warehouse(tmp_path / "w") as warehouse:
        assert {row[0]: row for row in warehouse.rows(STATE)} == whole
        assert set(orphans(warehouse)) == left
        with warehouse.upkeep():
            assert delete_leftovers(warehouse) == len(left)
        assert orphans(warehouse) == []
        assert {row[0]: row for row in warehouse.rows(STATE)} == whole
    print(f"{sum(landed)} landed, {len(left)} orphans")
