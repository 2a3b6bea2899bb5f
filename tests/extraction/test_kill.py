"""kill -9 of a whole extraction at random moments: a rerun ends with the rows of an undisturbed run.

A kill leaves on disk what is there when all processes are stopped: one run, stopped and copied again and
again, gives the states that many killed runs would.
"""

from __future__ import annotations

import itertools
import random
import select
import shutil
import time
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest
from support.killing import KEYS, Extractor, frozen, tables
from support.scores import NEEDS_VLLM
from support.tiny_models import save_models, tiny_benchmarks, write_tasks

from rlfocal.extraction.running.runner import extract
from rlfocal.pool.specs import Backend, PoolSpec, ThinkingSpec
from warehouse import open_warehouse
from warehouse.locations import locate


class KillOutcome(NamedTuple):
    """What a kill left behind."""

    n_partitions: int
    n_shards: int


def copied_at_random(run: Extractor, location: Path, folder: Path, moments: random.Random) -> list[Path]:
    """Copies of the warehouse, as kills at random moments of the run would leave it, until it ends."""
    copies: list[Path] = []
    while not select.select([run.said], [], [], moments.uniform(0, 0.2))[0]:
        copies.append(folder / str(len(copies)))
        with frozen(run.pid):
            if location.exists():
                shutil.copytree(location, copies[-1])
            else:
                copies[-1].mkdir(parents=True)
    return copies


def state(location: Path) -> KillOutcome:
    shards = list(locate(location).shards.glob("*/*.arrow"))
    if not (location / "catalog.sqlite").exists():
        return KillOutcome(0, len(shards))
    with open_warehouse(location) as warehouse:
        held = set(warehouse.fingerprints())
        for table in ("choice_logprobs", "answer_passes"):
            assert set(warehouse.rows(f"SELECT DISTINCT model, benchmark, task FROM {table}")) <= held
    return KillOutcome(len(held), len(shards))


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
    """The second model thinks before it answers, and choices are scored after an empty prompt as well."""
    choices, answers = tiny_benchmarks(write_tasks(folder / "tasks", choices=60, answers=40))
    first, *others = save_models(folder, *models, engine_args={"hf": {"shard": 8}, "vllm": {"shard": 8}})
    thinking = ThinkingSpec(budget=4, traces=2, markers=("Question", "dog"), text_markers=True)
    return PoolSpec(
        name="tiny",
        benchmarks=(choices.model_copy(update={"unconditional": True}), answers),
        models=(first, *(model.model_copy(update={"thinking": thinking}) for model in others)),
    )


def drawn(copies: list[Path], n: int, moments: random.Random) -> list[Path]:
    """One of each of `n` equal parts of the run; the last two thirds of them from within partitions."""
    within = [copy for copy in copies if any(locate(copy).shards.glob("*/*.arrow"))]
    between = [copy for copy in copies if copy not in within]
    n_within = min(len(within), -(-2 * n // 3))
    chosen = []
    for among, parts in ((between, n - n_within), (within, n_within)):
        bounds = [len(among) * part // parts for part in range(parts + 1)] if parts else []
        chosen += [among[moments.randrange(first, last)] for first, last in itertools.pairwise(bounds)]
    return chosen


@pytest.mark.timeout(3_600)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "n_states", "n_kills", "models"),
    [
        ("hf", 6, 4, ["llama", "gpt2"]),
        pytest.param("vllm", 1, 1, ["llama"], marks=NEEDS_VLLM),
    ],
)
def test_a_killed_extraction_loses_nothing(
    tmp_path: Path, backend: Backend, n_states: int, n_kills: int, models: list[str]
) -> None:
    """`n_states` kills at random moments of one run; after `n_kills` of them the next run is killed as well.

    Every second time that run's engine is killed first, which costs its own partitions alone.
    """
    pool = pool_of(tmp_path, models)
    spec = tmp_path / "pool.json"
    spec.write_text(pool.model_dump_json())
    moments = random.Random(0)

    undisturbed = Extractor(spec, backend=backend)
    undisturbed.wait()
    undisturbed.start(tmp_path / "undisturbed")
    following = Extractor(spec, backend=backend)  # loads its libraries while this one runs
    copies = copied_at_random(undisturbed, tmp_path / "undisturbed", tmp_path / "copies", moments)
    _, missing, duration = undisturbed.finish()
    undisturbed.kill()
    expected = tables(tmp_path / "undisturbed")
    n_partitions = 3 * len(models)
    assert missing == []
    check_whole(tmp_path / "undisturbed", expected, n_partitions)

    killed: list[KillOutcome] = []
    for n, copy in enumerate(drawn(copies, n_states, moments)):
        location = tmp_path / str(n)
        copy.rename(location)
        if n < n_kills:
            extraction = following
            extraction.wait()
            extraction.start(location)
            if n + 1 < n_kills:
                following = Extractor(spec, backend=backend)
            time.sleep(duration * moments.random())
            if n % 2:
                extraction.kill_engines()
                assert all("SIGKILL" in reason for reason in extraction.finish().missing)
            extraction.kill()
        killed.append(state(location))
        report = extract(pool, location, backend=backend, jobs=1)
        assert report.missing == []
        assert report.n_skipped == killed[-1].n_partitions
        check_whole(location, expected, n_partitions)
        shutil.rmtree(location)
    assert backend != "hf" or any(k.n_shards for k in killed), "no kill fell into a partition"
    assert backend != "hf" or len(set(killed)) > 2, "the kills fell into the same moments"
