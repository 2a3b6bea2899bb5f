"""Extractions from two working directories, two processes each: every document is asked once.

RLFOCAL_KILLS says how many processes are killed on each kind of catalogue.
"""

from __future__ import annotations

import os
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from threading import current_thread
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from support.killing import Extractor, commits, tables
from support.postgres_server import PostgresServer

from rlfocal.extraction.engine import ChoiceScore, Document
from rlfocal.extraction.engines import hf
from rlfocal.extraction.partition import Job, fingerprint, weights_digest
from rlfocal.extraction.running import missing, runner
from rlfocal.extraction.running.events import ConcurrentPartition, Event, ExtractedPartition, Progress
from rlfocal.extraction.running.runner import default_jobs, extract
from rlfocal.extraction.running.worker import extract_jobs
from rlfocal.extraction.tasks import TaskDocuments, load_tasks
from rlfocal.pool import load_pool
from rlfocal.pool.specs import ModelSpec, PoolSpec
from warehouse import Warehouse, open_warehouse
from warehouse.locations import locate

N_KILLS = int(os.environ.get("RLFOCAL_KILLS", "2"))
LIMIT = 48
SHARD = 16


@dataclass
class Workshop:
    """Four extractors, and the file in which their engines' work is counted."""

    folder: Path
    pool: PoolSpec
    extractors: list[Extractor] = field(default_factory=list)

    @property
    def home(self) -> Path:
        return self.folder / "home"

    def hire(self, directory: Path) -> Extractor:
        directory.mkdir(exist_ok=True)
        spec = self.folder / "pool.json"
        spec.write_text(self.pool.model_dump_json())
        paths = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
        own = {"COUNTED": str(self.folder / "counted"), "XDG_DATA_HOME": str(self.home), "PYTHONPATH": paths}
        own |= {"COUNTED_SECONDS": "0.1", "OMP_NUM_THREADS": "1"}
        return Extractor(spec, "support.counted_engine", directory=directory, environment=own)

    def counted(self) -> Counter[str]:
        """How often each document was asked of each model."""
        file = self.folder / "counted"
        return Counter(file.read_text().splitlines() if file.exists() else [])

    def forget(self) -> None:
        """Begins to count anew."""
        (self.folder / "counted").unlink(missing_ok=True)


class LoneExtraction(NamedTuple):
    """What one extraction alone does."""

    counted: Counter[str]
    tables: dict[str, pa.Table]
    partitions: list[list[str]]


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    pool = load_pool("lab").choose(["lab-llama-small", "lab-gemma-small"], ["lab-mmlu", "lab-gsm8k"])
    models = [model.model_copy(update={"engine_args": {"hf": {"shard": SHARD}}}) for model in pool.models]
    folder = tmp_path_factory.mktemp("workshop")
    shop = Workshop(folder, pool.model_copy(update={"models": tuple(models)}))
    shop.extractors = [shop.hire(folder / name) for name in ("here", "here", "there", "there")]
    for extractor in shop.extractors:  # or the first could do all the work alone
        extractor.wait()
    yield shop
    for extractor in shop.extractors:
        extractor.kill()


@pytest.fixture(scope="module")
def undisturbed(workshop: Workshop) -> LoneExtraction:
    location = str(workshop.folder / "undisturbed")
    workshop.extractors[0].start(location, LIMIT)
    partitions = workshop.extractors[0].finish().committed
    counted = workshop.counted()
    assert set(counted.values()) == {1}
    return LoneExtraction(counted, tables(location), sorted(partitions))


def n_partitions(message: str) -> int:
    """How many partitions a commit wrote, as its message says."""
    several = re.fullmatch(r"extract .* \((\d+) tasks\)", message)
    return int(several[1]) if several else 1


def check_committed_once(location: str, undisturbed: LoneExtraction) -> None:
    """In all that ever was in the warehouse."""
    assert tables(location) == undisturbed.tables
    assert sum(map(n_partitions, commits(location))) == len(undisturbed.partitions)
    assert list(locate(location).shards.glob("*")) == []


@pytest.mark.slow
def test_nothing_is_extracted_twice(
    place: str, workshop: Workshop, undisturbed: LoneExtraction, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(workshop.home))
    workshop.forget()
    for extractor in workshop.extractors:
        extractor.start(place, LIMIT)
    committed = [extractor.finish().committed for extractor in workshop.extractors]
    assert workshop.counted() == undisturbed.counted
    assert sorted(chain.from_iterable(committed)) == undisturbed.partitions
    check_committed_once(place, undisturbed)


@pytest.mark.slow
def test_a_kill_costs_a_shard(
    place: str, workshop: Workshop, undisturbed: LoneExtraction, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever goes on, in the same directory or in the other, takes what the killed one had answered."""
    monkeypatch.setenv("XDG_DATA_HOME", str(workshop.home))
    workshop.forget()
    chance = random.Random(N_KILLS)
    n_asked = undisturbed.counted.total()
    moments = sorted(chance.randrange(n_asked * 9 // 10) for _ in range(N_KILLS))
    for extractor in workshop.extractors:
        extractor.start(place, LIMIT)
    for moment in moments:
        at = chance.randrange(len(workshop.extractors))
        directory = workshop.extractors[at].directory
        assert directory is not None
        following = workshop.hire(directory)  # loads its libraries meanwhile
        following.start(place, LIMIT)
        while workshop.counted().total() < moment:
            time.sleep(0.01)
        workshop.extractors[at].kill()
        workshop.extractors[at] = following
    for extractor in workshop.extractors:
        assert extractor.finish().missing == []
    asked = workshop.counted()
    assert asked.keys() == undisturbed.counted.keys()
    assert (asked - undisturbed.counted).total() <= N_KILLS * SHARD
    check_committed_once(place, undisturbed)


def small_jobs() -> tuple[ModelSpec, TaskDocuments, list[Job]]:
    """Four documents for a model of the embedded pool."""
    pool = load_pool("lab").choose(["lab-llama-small"], ["lab-gpqa"])
    [model], [task] = pool.models, load_tasks(pool.benchmarks, 4)
    return model, task, [Job(task, fingerprint(model, weights_digest(model), task, "hf"))]


@pytest.mark.slow
def test_a_lost_lock_commits_nothing_twice(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Postgres ends the lock's session while the engine is at work, and another extraction does the same."""
    address = postgres.database()
    place = f"{address}?data={tmp_path / 'data'}"
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    model, task, jobs = small_jobs()
    events: list[Event] = []
    load = hf.load

    def interrupted(*given: Any) -> hf.HFEngine:
        engine = load(*given)
        score = engine.score

        def meanwhile(documents: Sequence[Document]) -> Iterator[tuple[ChoiceScore, ...]]:
            monkeypatch.setattr(hf, "load", load)
            [pid] = postgres.ask(address, "SELECT pid FROM pg_locks WHERE locktype = 'advisory'")
            postgres.ask(address, f"SELECT pg_terminate_backend({pid}, 5000)")
            extract_jobs(events.append, place, model, "hf", jobs, 1)
            return score(documents)

        monkeypatch.setattr(engine, "score", meanwhile)
        return engine

    open_warehouse(place).close()
    monkeypatch.setattr(hf, "load", interrupted)
    extract_jobs(events.append, place, model, "hf", jobs, 1)
    told = [event for event in events if not isinstance(event, Progress)]
    assert [type(event) for event in told] == [ExtractedPartition, ConcurrentPartition]
    assert commits(place) == [f"extract {model.model} on {task.benchmark}/{task.task}"]


@pytest.mark.slow
def test_no_engine_is_started_for_what_is_there(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another extraction filled it after this one was planned."""
    model, task, jobs = small_jobs()
    extract_jobs(lambda _: None, warehouse.location.name, model, "hf", jobs, 1)
    monkeypatch.setattr(hf, "load", None)
    events: list[Event] = []
    extract_jobs(events.append, warehouse.location.name, model, "hf", jobs, 1)
    assert events == [ConcurrentPartition(model.model, task.benchmark, task.task)]


@pytest.mark.slow
def test_machines_share_a_warehouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two machines of two GPUs: one set of work, with the rows of an extraction without GPUs."""
    chosen = load_pool("lab").choose(["lab-llama-small", "lab-gemma-small"], ["lab-musr"])
    wide, narrow = chosen.models
    pool = chosen.model_copy(update={"models": (wide.model_copy(update={"tensor_parallel": 2}), narrow)})

    def leases() -> Path:
        folder = tmp_path / current_thread().name
        folder.mkdir(exist_ok=True)
        return folder

    tasks = load_tasks(pool.benchmarks, 8)
    monkeypatch.setattr(runner, "load_tasks", lambda *_: tasks)  # no two threads may build prompts at once
    monkeypatch.setattr(runner, "lease_folder", leases)
    monkeypatch.setattr(missing, "check_entry_for", lambda *_: None)  # hf stands for vLLM, which is slow here
    monkeypatch.setenv("RLFOCAL_GPUS", "0,1")
    open_warehouse(tmp_path / "w").close()
    with ThreadPoolExecutor(2, "machine") as machines:
        calls = [machines.submit(extract, pool, tmp_path / "w", limit=8) for _ in range(2)]
    reports = [call.result() for call in calls]
    assert [report.missing for report in reports] == [[], []]
    assert Counter(c.model for r in reports for c in r.committed) == {model.model: 3 for model in pool.models}
    assert [len(r.committed) + r.n_skipped for r in reports] == [6, 6]
    assert sum(map(n_partitions, commits(str(tmp_path / "w")))) == 6
    assert {path.name for path in tmp_path.glob("machine*")} == {"machine_0", "machine_1"}
    monkeypatch.delenv("RLFOCAL_GPUS")
    assert not extract(pool, tmp_path / "cpu", limit=8).missing
    assert tables(str(tmp_path / "w")) == tables(str(tmp_path / "cpu"))


def test_how_many_models_run_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLFOCAL_GPUS", "0,1,2,3,4,5,6,7")
    assert [default_jobs(backend) for backend in ("hf", "vllm", "openai")] == [8, 8, 2]
    monkeypatch.setenv("RLFOCAL_GPUS", "")
    assert [default_jobs(backend) for backend in ("hf", "vllm", "openai")] == [2, 1, 2]
