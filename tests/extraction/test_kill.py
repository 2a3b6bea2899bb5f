"""kill -9 of a whole extraction at random moments: a rerun ends with the rows of an undisturbed run.

A kill leaves on disk what is there when all processes are stopped: one run, stopped and copied again and
again, gives the states that many killed runs would.
"""

from __future__ import annotations

import itertools
import random
import select
import shutil
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest
from support.killing import KEYS, frozen, kill_tree, tables
from support.tiny_models import save_model, write_tasks

from rlfocal.extraction.running.runner import extract_pool
from rlfocal.pool.specs import Benchmark, ModelSpec, PoolSpec
from warehouse import open_warehouse
from warehouse.locations import locate

EXTRACTION = """
import multiprocessing, sys, time
from pathlib import Path
from rlfocal.extraction.running.runner import PRELOADED, extract_pool
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

    def copied_at_random(self, folder: Path, moments: random.Random) -> list[Path]:
        """Copies of the warehouse, as kills at random moments of the run would leave it, until it ends."""
        copies: list[Path] = []
        assert self._process.stdout is not None
        while not select.select([self._process.stdout], [], [], moments.uniform(0, 0.2))[0]:
            copies.append(folder / str(len(copies)))
            with frozen(self._process.pid):
                if self.location.exists():
                    shutil.copytree(self.location, copies[-1])
                else:
                    copies[-1].mkdir(parents=True)
        return copies

    def finish(self) -> float:
        """Seconds it took."""
        said, _ = self._process.communicate(timeout=600)
        seconds, missing = said.split(maxsplit=1)
        assert missing == "[]\n"
        return float(seconds)

    def kill(self) -> None:
        kill_tree(self._process)


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


def drawn(copies: list[Path], n: int, moments: random.Random) -> list[Path]:
    """One of each of `n` equal parts of the run, two thirds of them from within partitions."""
    within = [copy for copy in copies if any(locate(copy).shards.glob("*/*.arrow"))]
    between = [copy for copy in copies if copy not in within]
    n_within = min(len(within), -(-2 * n // 3))
    chosen = []
    for among, parts in ((within, n_within), (between, n - n_within)):
        bounds = [len(among) * part // parts for part in range(parts + 1)] if parts else []
        chosen += [among[moments.randrange(first, last)] for first, last in itertools.pairwise(bounds)]
    return chosen


@pytest.mark.timeout(3_600)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "n_states", "n_kills", "models"),
    [
        ("hf", 6, 2, ["llama", "gpt2"]),
        pytest.param(
            "vllm",
            1,
            1,
            ["llama"],
            marks=[
                pytest.mark.skipif(find_spec("vllm") is None, reason="needs vLLM"),
                pytest.mark.vllm,
            ],
        ),
    ],
)
def test_a_killed_extraction_loses_nothing(
    tmp_path: Path, backend: str, n_states: int, n_kills: int, models: list[str]
) -> None:
    """`n_states` kills at random moments of one run; in `n_kills` of them the next run is killed as well."""
    write_tasks(tmp_path / "tasks", choices=60, answers=40)
    for model in models:
        save_model(tmp_path / model, model)
    pool = pool_of(tmp_path, models)
    spec = tmp_path / "pool.json"
    spec.write_text(pool.model_dump_json())
    moments = random.Random(0)

    undisturbed = Extraction(spec, tmp_path / "undisturbed", backend)
    undisturbed.start()
    following = Extraction(spec, tmp_path / "0", backend)  # loads its libraries while this one runs
    copies = undisturbed.copied_at_random(tmp_path / "copies", moments)
    duration = undisturbed.finish()
    expected = tables(tmp_path / "undisturbed")
    n_partitions = 3 * len(models)
    check_whole(tmp_path / "undisturbed", expected, n_partitions)

    killed: list[Killed] = []
    for n, copy in enumerate(drawn(copies, n_states, moments)):
        location = tmp_path / str(n)
        copy.rename(location)
        if n < n_kills:
            extraction = following
            extraction.start()
            if n + 1 < n_kills:
                following = Extraction(spec, tmp_path / str(n + 1), backend)
            time.sleep(duration * moments.random())
            extraction.kill()
        killed.append(state(location))
        report = extract_pool(location, pool, backend=backend, jobs=1)
        assert report.missing == []
        assert report.n_skipped == killed[-1].n_partitions
        check_whole(location, expected, n_partitions)
        shutil.rmtree(location)
    assert backend != "hf" or any(k.n_shards for k in killed), "no kill fell into a partition"
    assert backend != "hf" or len(set(killed)) > 2, "the kills fell into the same moments"
