"""kill -9 of a whole extraction at random moments: a rerun ends with the rows of an undisturbed run."""

from __future__ import annotations

import contextlib
import random
import shutil
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import psutil
import pyarrow as pa
import pytest
from tiny_models import save_model, write_tasks

from rlfocal.jobs.runner import extract_pool
from rlfocal.pool.specs import Benchmark, ModelSpec, PoolSpec
from warehouse import open_warehouse
from warehouse.locations import locate

KEYS = {
    "docs": "benchmark, task, doc_id",
    "choice_logprobs": "benchmark, task, doc_id, model, choice",
    "answer_passes": "benchmark, task, doc_id, model, pass",
}
EXTRACTION = """
import multiprocessing, sys, time
from pathlib import Path
from rlfocal.jobs.runner import PRELOADED, extract_pool
from rlfocal.pool.specs import PoolSpec

spec, location, backend = sys.argv[1:]
pool = PoolSpec.model_validate_json(Path(spec).read_text())
context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(list(PRELOADED.get(backend, ())))
first = context.Process(target=len, args=("",))
first.start()
first.join()
print("ready", flush=True)
sys.stdin.readline()
started = time.perf_counter()
report = extract_pool(location, pool, backend=backend, jobs=1)
print(time.perf_counter() - started, [gap.reason for gap in report.missing], flush=True)
"""


class Killed(NamedTuple):
    """What a kill left behind."""

    n_partitions: int
    n_shards: int


class Extraction:
    """An extraction in a process of its own, imported and waiting for its start."""

    def __init__(self, pool: Path, location: Path, backend: str) -> None:
        self.location = location
        self._process = subprocess.Popen(
            [sys.executable, "-c", EXTRACTION, str(pool), str(location), backend],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def start(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stdin is not None
        assert self._process.stdout.readline() == "ready\n"
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def finish(self) -> float:
        """Seconds it took."""
        said, _ = self._process.communicate(timeout=600)
        seconds, missing = said.split(maxsplit=1)
        assert missing == "[]\n"
        return float(seconds)

    def kill(self) -> None:
        kill_tree(self._process)


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


def tables(location: Path) -> dict[str, pa.Table]:
    with open_warehouse(location, read_only=True) as warehouse:
        return {name: warehouse.query(f"SELECT * FROM {name} ORDER BY {key}") for name, key in KEYS.items()}


def state(location: Path) -> Killed:
    shards = list(locate(location).shards.glob("*/*.arrow"))
    if not (location / "catalog.sqlite").exists():
        return Killed(0, len(shards))
    with open_warehouse(location) as warehouse:
        held = set(warehouse.fingerprints())
        for table in ("choice_logprobs", "answer_passes"):
            assert set(warehouse.rows(f"SELECT DISTINCT model, benchmark, task FROM {table}")) <= held
    return Killed(len(held), len(shards))


def check_whole(location: Path, expected: dict[str, pa.Table], n_partitions: int) -> None:
    found = tables(location)
    for name, key in KEYS.items():
        pairs = zip(found[name].to_pylist(), expected[name].to_pylist(), strict=True)
        assert next((pair for pair in pairs if pair[0] != pair[1]), None) is None
        columns = [column.strip() for column in key.split(",")]
        assert found[name].group_by(columns).aggregate([]).num_rows == found[name].num_rows
    with open_warehouse(location, read_only=True) as warehouse:
        places = "SELECT count(*), count(DISTINCT (model, benchmark, task)) FROM extractions"
        assert warehouse.rows(places) == [(n_partitions, n_partitions)]
    assert list(locate(location).shards.iterdir()) == []


def pool_of(folder: Path, models: list[str]) -> PoolSpec:
    choices = {"plain": "tiny_choices", "spaces": "tiny_spaces"}
    tasks = str(folder / "tasks")
    return PoolSpec(
        name="tiny",
        benchmarks=(
            Benchmark(name="tiny-c", kind="choices", tasks=choices, include_path=tasks),
            Benchmark(name="tiny-a", kind="answers", tasks={"all": "tiny_answers"}, include_path=tasks),
        ),
        models=tuple(
            ModelSpec(
                model=m,
                hf_repo=str(folder / m),
                params_b=1e-4,
                truncation="keep",
                engine_args={"hf": {"shard": 8}, "vllm": {"shard": 8}},
            )
            for m in models
        ),
    )


@pytest.mark.timeout(3_600)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "n_kills", "models", "n_docs"),
    [
        ("hf", 12, ["llama", "gpt2"], (60, 40)),
        pytest.param(
            "vllm",
            2,
            ["llama"],
            (60, 40),
            marks=[
                pytest.mark.skipif(find_spec("vllm") is None, reason="needs vLLM"),
                pytest.mark.vllm,
            ],
        ),
    ],
)
def test_a_killed_extraction_loses_nothing(
    tmp_path: Path, backend: str, n_kills: int, models: list[str], n_docs: tuple[int, int]
) -> None:
    write_tasks(tmp_path / "tasks", choices=n_docs[0], answers=n_docs[1])
    for model in models:
        save_model(tmp_path / model, model)
    pool = pool_of(tmp_path, models)
    spec = tmp_path / "pool.json"
    spec.write_text(pool.model_dump_json())

    undisturbed = Extraction(spec, tmp_path / "undisturbed", backend)
    undisturbed.start()
    following = Extraction(spec, tmp_path / "0", backend)  # as beside every other: the clock runs alike
    duration = undisturbed.finish()
    expected = tables(tmp_path / "undisturbed")
    n_partitions = 3 * len(models)
    check_whole(tmp_path / "undisturbed", expected, n_partitions)

    moments = random.Random(0)
    killed: list[Killed] = []
    for attempt in range(n_kills):
        extraction = following
        extraction.start()
        if attempt + 1 < n_kills:  # loads its libraries while this one runs
            following = Extraction(spec, tmp_path / str(attempt + 1), backend)
        # One moment in each of as many equal parts of the run.
        time.sleep(duration * (attempt + moments.random()) / n_kills)
        extraction.kill()
        killed.append(state(extraction.location))
        report = extract_pool(extraction.location, pool, backend=backend, jobs=1)
        assert report.missing == []
        assert report.n_skipped == killed[-1].n_partitions
        if killed[-1] == Killed(0, 0):
            duration = report.seconds  # of all there is to do, as busy as the machine is by now
        check_whole(extraction.location, expected, n_partitions)
        shutil.rmtree(extraction.location)
    assert backend != "hf" or any(k.n_shards for k in killed), "no kill fell into a partition"
    assert backend != "hf" or len(set(killed)) > 1, "all kills fell into the same moment"
