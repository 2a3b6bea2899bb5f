"""The benchmarks run, compare what they say they compare, and their counts are right."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.speed.questions import N_SHOTS, multiple_choice, unique_tokens
from benchmarks.speed.references import Cost, References, list_slower
from benchmarks.speed.training import generate_rows
from benchmarks.speed.warehouse import list_queries
from rlfocal.base.names import RL_FOCAL

ROOT = Path(__file__).resolve().parents[2]

prompts = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=8), min_size=1, max_size=12)


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1800)


def measured(*arguments: str) -> Any:
    done = bench(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@given(prompts)
def test_unique_tokens_are_the_distinct_prefixes(asked: list[list[int]]) -> None:
    assert unique_tokens(asked) == len({tuple(p[: i + 1]) for p in asked for i in range(len(p))})


def test_questions_share_their_examples_by_task() -> None:
    documents = multiple_choice(6, words_a_choice=5, per_task=3)
    preambles = [d.context.rsplit("\n\n", 1)[0] for d in documents]
    assert [p == preambles[0] for p in preambles] == [True] * 3 + [False] * 3
    assert all(p.count("Answer:") == N_SHOTS for p in preambles)
    assert len(set(chain.from_iterable(d.continuations for d in documents))) == 24


@pytest.mark.slow
def test_extraction_bench_compares_equal_numbers() -> None:
    found = measured("extraction", "--documents", "5", "--engines", "hf")
    assert found["failed"] == {}
    for work in ("single-token choices", "multi-token choices"):
        reference, ours = (row for row in found["measured"] if row["work"] == work)
        assert (reference["way"], ours["way"]) == ("lm-eval hf", "rlfocal hf")
        assert reference["times_faster"] == 1
        assert ours["max_difference"] < 1e-4
        assert ours["agreement"] == 1


@pytest.mark.slow
def test_gpu_check_holds_an_engine_against_float32(tmp_path: Path) -> None:
    sizes = ("--sizes", "toy", "--engines", "hf", "--documents", "3", "-o", f"{tmp_path}/found.json")
    assert bench("gpu", *sizes).returncode == 0
    [row] = json.loads((tmp_path / "found.json").read_text())
    assert row["is_right"]
    assert 0 < row["max_difference"] <= row["tolerance"] < 1


@pytest.mark.slow
def test_diversity_bench_measures_equal_numbers() -> None:
    sizes = ["--models", "5", "--documents", "600", "--many-models", "12", "--many-documents", "300"]
    found = measured("diversity", *sizes)["measured"]
    references = {row["work"]: row["seconds"] for row in reversed(found)}
    for row in found:
        assert row["times_faster"] == pytest.approx(references[row["work"]] / row["seconds"])
    differences = [row["max_difference"] for row in found if row["max_difference"] is not None]
    assert len(differences) == 7
    assert max(differences) < 1e-9


@pytest.mark.slow
def test_warehouse_bench_measures_each_size() -> None:
    few, many = measured("warehouse", "--documents", "140", "--models", "5,120")
    names = [[cost["name"] for cost in pool["costs"]] for pool in (few, many)]
    assert set(names[0]) == {"import", *list_queries(5)}
    assert set(names[1]) == set(names[0]) - {"all_pools up to 3", "all_pools up to 4"}
    assert all(cost["ratio"] > 0 and cost["peak_megabytes"] > 0 for cost in few["costs"])


@pytest.mark.slow
def test_training_bench_counts_steps() -> None:
    sizes = ["--documents", "240", "--seeds", "1,2", "--scales", "3,6"]
    found = measured("training", *sizes, "--queries", "20", "--episodes", "1")
    for models in (5, 16):
        loop, fewer, one, two = (row for row in found["speeds"] if row["models"] == models)
        assert loop["steps"] == fewer["steps"] == 40
        assert two["steps"] == 2 * one["steps"]
        assert two["times_faster"] == pytest.approx(two["steps"] / two["seconds"] * loop["seconds"] / 40)
    assert bench("training", "--seeds", "one").returncode == 2


@pytest.mark.slow
def test_decision_bench_takes_the_median() -> None:
    rows = measured("decision", "--models", "4", "--decisions", "200")["latencies"]
    assert [row["way"].split(",")[0] for row in rows] == [RL_FOCAL[0]] * 6 + [RL_FOCAL[1]] * 6
    for row in rows:
        assert 0 < row["median"] <= row["p99"]
        assert row["times_faster"] == pytest.approx(rows[0]["median"] / row["median"])


def test_generated_logits_are_the_seeds() -> None:
    first, again, other = (generate_rows(200, 4, 4, seed) for seed in (1, 1, 2))
    assert first.fingerprint() == again.fingerprint() != other.fingerprint()


ORPHAN = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    time.sleep(0.2)  # its parent has ended by now
    while time.process_time() < 0.5:
        pass
"""
MEASURED = (
    "import sys; from benchmarks.speed.demo import *; print(*measure(sys.argv[1:3], Path(sys.argv[3])))"
)


@pytest.mark.skipif(sys.platform != "linux", reason="orphans pass to a subreaper on Linux")
def test_orphans_count(tmp_path: Path) -> None:
    (tmp_path / "orphan.py").write_text(ORPHAN)
    command = [sys.executable, "-c", MEASURED, sys.executable, str(tmp_path / "orphan.py"), str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120)
    cpu, wall = map(float, done.stdout.split())
    assert cpu >= 0.5
    assert wall >= 0.7


def test_a_cost_that_became_dearer_is_named(tmp_path: Path) -> None:
    references = References(tmp_path / "new" / "some.json")
    costs = [Cost(name, 1.0, ratio) for name, ratio in (("one", 2.0), ("two", 4.0))]
    assert list_slower(costs) == []
    for commit in ("aaa", "bbb"):
        references.store(costs, "small", commit)
    newest, last = references.find_newest("small")
    assert (newest, last) == ("bbb", {"one": 2.0, "two": 4.0})
    assert references.find_newest("whole") == (None, {})
    one, two = (cost._replace(last=last[cost.name]) for cost in costs)
    now = [one._replace(ratio=2 * one.ratio), two]
    assert [cost.name for cost in list_slower(now)] == ["one"]
