"""`rlfocal watch`: what it says of a pool while it runs, once it is killed, and when a model fails."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.cli import Cli
from support.killing import frozen, kill_tree
from support.tiny_models import save_model, write_tasks

from rlfocal.extraction.running.runner import extract_pool
from rlfocal.extraction.running.watching import ModelProgress, State, read_progress
from rlfocal.pool.specs import Benchmark, ModelSpec, PoolSpec
from warehouse import open_warehouse

N_DOCS = 100

EXTRACTION = """
import sys
from rlfocal.extraction.running.runner import extract_pool
from rlfocal.pool.specs import PoolSpec
extract_pool(sys.argv[1], PoolSpec.model_validate_json(sys.argv[2]), backend="hf", jobs=1)
"""


@pytest.fixture
def pool(tmp_path: Path) -> PoolSpec:
    """A model that works, with shards of 2 documents, and one whose folder is empty."""
    write_tasks(tmp_path / "tasks", choices=N_DOCS)
    save_model(tmp_path / "llama", "llama")
    (tmp_path / "torn").mkdir()
    tasks = {"plain": "tiny_choices", "spaces": "tiny_spaces"}
    tiny = Benchmark(name="tiny", kind="choices", tasks=tasks, include_path=str(tmp_path / "tasks"))
    models = [
        ModelSpec(
            model=name,
            hf_repo=str(tmp_path / name),
            params_b=1e-4,
            truncation="keep",
            engine_args={"hf": {"shard": 2}},
        )
        for name in ("llama", "torn")
    ]
    return PoolSpec(name="tiny", benchmarks=(tiny,), models=tuple(models))


def look(location: Path, pool: PoolSpec) -> dict[str, ModelProgress]:
    with open_warehouse(location, read_only=True) as warehouse:
        return {model.model: model for model in read_progress(warehouse, pool, gpu_price=3.6)}


def test_done_running_interrupted_and_failed_partitions_are_told_apart(
    pool: PoolSpec, tmp_path: Path, cli: Cli
) -> None:
    location = tmp_path / "warehouse"
    with open_warehouse(location):
        pass
    assert {p.state for p in look(location, pool)["llama"].partitions} == {State.WAITING}
    process = subprocess.Popen(
        [sys.executable, "-c", EXTRACTION, str(location), pool.model_dump_json()], text=True
    )
    try:
        while not any((location / "shards").glob("*/*.arrow")):
            assert process.poll() is None, "it ended before its progress was seen"
            time.sleep(0.01)
        with frozen(process.pid):
            partitions = look(location, pool)["llama"].partitions
            seen = [p for p in partitions if p.state is State.RUNNING and p.done]
            kill_tree(process)
    finally:
        if process.poll() is None:
            kill_tree(process)
    assert seen[0].total == N_DOCS
    left = look(location, pool)["llama"]
    assert left.count(State.RUNNING) == 0
    assert left.count(State.INTERRUPTED) == 1
    assert left.seconds_left is None or left.count(State.DONE) == 1

    extract_pool(location, pool, backend="hf", jobs=1)
    found = look(location, pool)
    llama, torn = found["llama"], found["torn"]
    assert (llama.count(State.DONE), torn.count(State.FAILED)) == (2, 2)
    assert all(p.reason and "torn" in p.reason for p in torn.partitions)
    assert llama.seconds_left == 0
    with open_warehouse(location, read_only=True) as warehouse:
        [(seconds, tokens)] = warehouse.rows(
            "SELECT sum(seconds), sum(n_prompt_tokens + n_generated_tokens) FROM extractions"
        )
    assert llama.tokens_per_second == pytest.approx(tokens / seconds)
    assert llama.dollars == pytest.approx(seconds / 1000)

    file = tmp_path / "tiny.yaml"
    file.write_text(pool.model_dump_json(exclude_unset=True))
    with open_warehouse(location, read_only=True) as warehouse:
        assert {m.model: m for m in read_progress(warehouse, gpu_price=3.6)} == found
    words = ["watch", "--pool", str(file), "--warehouse", str(location)]
    result = cli(*words, "--once")
    printed = result.out
    assert not result.code, result.err
    assert "2 of 4 partitions done, 2 failed" in printed
    assert "failed: torn on tiny/plain: " in printed
    assert [len(model["partitions"]) for model in json.loads(cli(*words, "--json").out)] == [2, 2]
