"""Many processes at one warehouse, its catalogue in SQLite and in a real Postgres."""

from __future__ import annotations

import multiprocessing
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.rows import put_choices

from rlfocal.base.errors import InputError
from rlfocal.base.names import Protocol
from rlfocal.evaluation import evaluate, train
from rlfocal.exchange.imports.predictions import import_predictions
from rlfocal.methods.learning.agents import TrainedAgents
from rlfocal.methods.variants import save_checkpoint
from warehouse import open_warehouse
from warehouse.snapshots import snapshots

N_DOCS = 40
N_IMPORTERS = 8


def write_files(folder: Path, models: list[str]) -> None:
    """docs.parquet, and MODEL.parquet for each model."""
    keys = {"benchmark": ["b"] * N_DOCS, "task": ["t"] * N_DOCS, "doc_id": range(N_DOCS)}
    pq.write_table(pa.table(keys | {"label": [i % 3 for i in range(N_DOCS)]}), folder / "docs.parquet")
    for place, model in enumerate(models):
        scores = [[float((i * 7 + c + place) % 5) for c in range(3)] for i in range(N_DOCS)]
        rows = keys | {"model": [model] * N_DOCS, "choice_logprobs": scores}
        pq.write_table(pa.table(rows), folder / f"{model}.parquet")


def import_models(location: str, folder: Path, models: list[str]) -> None:
    for model in models:
        with open_warehouse(location) as warehouse:
            import_predictions(warehouse, folder / "docs.parquet", folder / f"{model}.parquet")


@pytest.fixture(scope="module")
def processes() -> ForkServerContext:
    """Processes that have the library imported already."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pytest", "pyarrow.parquet", "rlfocal.exchange.imports.predictions"])
    return context


@pytest.mark.slow
def test_importers_at_once_while_one_reads(place: str, tmp_path: Path, processes: ForkServerContext) -> None:
    """From the first moment on, when there is no warehouse yet."""
    models = [f"m{i}" for i in range(N_IMPORTERS)]
    write_files(tmp_path, models)
    importers = [processes.Process(target=import_models, args=(place, tmp_path, [model])) for model in models]
    for importer in importers:
        importer.start()
    seen: list[int] = []
    while any(importer.is_alive() for importer in importers):
        try:
            reader = open_warehouse(place, read_only=True)
        except InputError:
            assert seen == [], "it was there already"
            continue
        with reader:
            counts = reader.rows("SELECT model, count(*) FROM choice_logprobs GROUP BY model")
            assert [n for _, n in counts] == [3 * N_DOCS] * len(counts)
            assert len(reader.fingerprints()) >= len(counts) >= max(seen, default=0)
        seen.append(len(counts))
    assert [importer.exitcode for importer in importers] == [0] * N_IMPORTERS
    assert len(set(seen)) > 2, "the reader saw nothing of it"
    with open_warehouse(place, read_only=True) as warehouse:
        assert {model for model, _, _ in warehouse.fingerprints()} == set(models)
        assert warehouse.rows("SELECT count(*) FROM docs") == [(N_DOCS,)]
        assert warehouse.rows("SELECT model FROM models ORDER BY 1") == [(model,) for model in models]
        distinct = "SELECT count(*), count(DISTINCT (model, doc_id, choice)) FROM choice_logprobs"
        assert warehouse.rows(distinct) == [(3 * N_DOCS * N_IMPORTERS,) * 2]


def test_a_reader_does_not_wait_for_a_writer(place: str) -> None:
    with open_warehouse(place) as writer:
        with writer.transaction("models"):
            writer.append("models", pa.table({"model": [f"m{i}" for i in range(20)]}))
            started = time.perf_counter()
            with open_warehouse(place, read_only=True) as reader:
                assert reader.rows("SELECT count(*) FROM models") == [(0,)]
            assert time.perf_counter() - started < 5
        assert writer.rows("SELECT count(*) FROM models") == [(20,)]


@pytest.mark.slow
def test_evaluations_at_once_fit_a_method_once(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`train`, too, leaves agents alone that an evaluation is training."""
    trained: list[Path] = []

    def save(agents: TrainedAgents, path: Path) -> None:
        trained.append(path)
        save_checkpoint(agents, path)

    monkeypatch.setattr("rlfocal.methods.variants.save_checkpoint", save)
    with open_warehouse(place) as warehouse:
        put_choices(warehouse, {m: [i % 5 != shift for i in range(80)] for shift, m in enumerate("abc")})

    def run(protocol: Protocol | None) -> int:
        with open_warehouse(place, read_only=protocol is None) as warehouse:
            if protocol is None:
                return train(warehouse, "b", method="rl_focal_sequential", seeds=2).trained
            return len(
                evaluate(warehouse, "b", methods=["rl_focal_sequential"], seeds=2, protocol=protocol).ran
            )

    with ThreadPoolExecutor() as threads:
        done = [*threads.map(run, ["frozen", "frozen", "online", None])]
    assert len(trained) == len(set(trained)) == 2
    with open_warehouse(place, read_only=True) as warehouse:
        stored = warehouse.rows("SELECT count(*) FROM evaluations WHERE task = '*' AND protocol = 'frozen'")
        assert stored == [(done[0] + done[1],)]
        runs = [s.message for s in snapshots(warehouse) if s.message == "evaluate b rl_focal_sequential"]
        assert len(runs) == 2, "one for each protocol, both seeds in it"
