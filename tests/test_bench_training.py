"""The benchmarks of training and of decisions run, and compare what they say they compare."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rlfocal.agents import RL_FOCAL
from rlfocal.bench.training import generated

RLFOCAL = str(Path(sys.executable).with_name("rlfocal"))


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([RLFOCAL, "bench", *arguments], capture_output=True, text=True, timeout=300)


@pytest.mark.slow
def test_bench_training_counts_steps_and_compares_with_the_released_loop() -> None:
    done = run(
        *("training", "--documents", "240", "--seeds", "1,2", "--scales", "3,6"),
        *("--queries", "20", "--episodes", "1", "--json"),
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
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
    # 240 documents less the first window, in 32 stretches, once
    assert by_setting[5][2]["steps"] == (240 - 50) // 32 * 32
    assert [row["models"] for row in found["growth"]] == [3, 6]
    assert 100 < found["peak_mb"] < 2_000


@pytest.mark.slow
def test_bench_decision_takes_the_median() -> None:
    done = run("decision", "--models", "4", "--decisions", "200", "--json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["latencies"]
    reference = rows[0]
    assert [row["way"].split(",")[0] for row in rows] == [RL_FOCAL[0]] * 6 + [RL_FOCAL[1]] * 6
    for whole, part in ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9), (10, 11)):
        assert rows[whole]["median"] > rows[part]["median"]
    assert reference["times_faster"] == 1
    for row in rows:
        assert 0 < row["median"] <= row["p99"]
        assert row["times_faster"] == pytest.approx(reference["median"] / row["median"])


def test_numbers_that_are_none() -> None:
    done = run("training", "--seeds", "one")
    assert done.returncode == 2
    assert "--seeds 'one'" in done.stderr


def test_generated_logits_are_the_seeds() -> None:
    first, again, other = (generated(200, 4, 4, seed) for seed in (1, 1, 2))
    assert first.fingerprint() == again.fingerprint() != other.fingerprint()
    assert 0.3 < first.correct.mean() < 0.8
