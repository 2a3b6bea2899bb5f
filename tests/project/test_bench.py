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

from benchmarks.speed.questions import SHOTS, multiple_choice, unique_tokens
from benchmarks.speed.training import generated
from rlfocal.base.names import RL_FOCAL

ROOT = Path(__file__).resolve().parents[2]

prompts = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=8), min_size=1, max_size=12)


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)


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
    assert all(p.count("Answer:") == SHOTS for p in preambles)
    assert len(set(chain.from_iterable(d.continuations for d in documents))) == 24


@pytest.mark.slow
def test_extraction_bench_compares_equal_numbers() -> None:
    found = measured("extraction", "--documents", "5", "--engines", "hf")
    assert found["failed"] == {}
    [setting] = found["setting"]
    assert setting["tokens"] > 500
    for work in ("single-token choices", "multi-token choices"):
        reference, ours = (row for row in found["measured"] if row["work"] == work)
        assert (reference["way"], ours["way"]) == ("lm-eval hf", "rlfocal hf")
        assert reference["times_faster"] == 1
        assert ours["max_difference"] < 1e-4
        assert ours["agreement"] == 1
    thought = [row["way"] for row in found["measured"] if row["work"] == "4 traces, then choices"]
    assert thought == ["lm-eval hf, two passes", "rlfocal hf"]


@pytest.mark.slow
def test_gpu_check_holds_an_engine_against_float32(tmp_path: Path) -> None:
    done = bench(
        "gpu", "--sizes", "toy", "--engines", "hf", "--documents", "3", "-o", f"{tmp_path}/found.json"
    )
    assert done.returncode == 0, done.stderr
    assert "right" in done.stdout
    [row] = json.loads((tmp_path / "found.json").read_text())
    assert row["is_right"]
    assert row["params"] == 32_000 * 64 * 2 + 2 * (4 * 64**2 + 3 * 64 * 160 + 2 * 64) + 64
    assert 0 < row["max_difference"] <= row["tolerance"] < 1
    assert row["tokens_per_second"] > 0
    assert bench("gpu", "--sizes", "9b").returncode == 2


@pytest.mark.slow
def test_diversity_bench_measures_equal_numbers() -> None:
    sizes = ["--models", "5", "--documents", "600", "--many-models", "12", "--many-documents", "300"]
    found = measured("diversity", *sizes)["measured"]
    references = {row["work"]: row["seconds"] for row in reversed(found)}
    assert len(references) == 6
    for row in found:
        assert row["times_faster"] == pytest.approx(references[row["work"]] / row["seconds"])
    differences = [row["max_difference"] for row in found if row["max_difference"] is not None]
    assert len(differences) == 7
    assert max(differences) < 1e-9
    assert all(row["peak_bytes"] < 2e9 for row in found if row["peak_bytes"] is not None)


@pytest.mark.slow
def test_warehouse_bench_imports_what_it_says() -> None:
    found = measured("warehouse", "--share", "0.01", "--models", "4,120")
    assert found["choice_rows"] == 12 * sum(n * c for n, c in ((140, 4), (57, 12), (7, 3), (4, 4), (87, 10)))
    assert found["parquet_bytes"] > 10 * found["choice_rows"] / 4
    assert found["open_seconds"] > 0
    few, many = ([one["work"] for one in pool["used"]] for pool in found["pools"])
    assert few == ["import", "pairwise_diversity", "all_pools up to 3"]
    assert many == few[:2]
    assert all(one["cpu_seconds"] > 0 < one["peak_megabytes"] for one in found["pools"][1]["used"])


@pytest.mark.slow
def test_training_bench_counts_steps_and_compares_with_the_released_loop() -> None:
    sizes = ["--documents", "240", "--seeds", "1,2", "--scales", "3,6"]
    found = measured("training", *sizes, "--queries", "20", "--episodes", "1")
    by_setting: dict[int, list[dict[str, Any]]] = {5: [], 16: []}
    for row in found["speeds"]:
        by_setting[row["models"]].append(row)
    for rows in by_setting.values():
        loop, fewer, one, two = rows
        assert loop["times_faster"] == 1
        assert loop["steps"] == fewer["steps"] == 40
        assert two["steps"] == 2 * one["steps"]
        rate = loop["steps"] / loop["seconds"]
        for row in rows:
            assert row["times_faster"] == pytest.approx(row["steps"] / row["seconds"] / rate)
    # 240 documents less the first window, once: as many as 24 to 32 stretches of one length hold
    assert by_setting[5][2]["steps"] == max(190 // n * n for n in range(24, 33))
    assert [row["models"] for row in found["growth"]] == [3, 6]
    assert 100 < found["peak_mb"] < 2_000


@pytest.mark.slow
def test_decision_bench_takes_the_median() -> None:
    rows = measured("decision", "--models", "4", "--decisions", "200")["latencies"]
    reference = rows[0]
    assert [row["way"].split(",")[0] for row in rows] == [RL_FOCAL[0]] * 6 + [RL_FOCAL[1]] * 6
    for whole, part in ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9), (10, 11)):
        assert rows[whole]["median"] > rows[part]["median"]
    assert reference["times_faster"] == 1
    for row in rows:
        assert 0 < row["median"] <= row["p99"]
        assert row["times_faster"] == pytest.approx(reference["median"] / row["median"])


@pytest.mark.slow
def test_numbers_that_are_none() -> None:
    done = bench("training", "--seeds", "one")
    assert done.returncode == 2
    assert "--seeds 'one'" in done.stderr


def test_generated_logits_are_the_seeds() -> None:
    first, again, other = (generated(200, 4, 4, seed) for seed in (1, 1, 2))
    assert first.fingerprint() == again.fingerprint() != other.fingerprint()
    assert 0.3 < first.correct.mean() < 0.8
