"""The benchmarks run, compare what they say they compare, and their counts are right."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from rlfocal.bench.questions import SHOTS, multiple_choice, unique_tokens
from rlfocal.cli.app import app

prompts = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=8), min_size=1, max_size=12)


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
def test_bench_extraction_from_the_wheel_compares_equal_numbers(
    wheel: dict[str, str], tmp_path: Path
) -> None:
    command = [sys.executable, "-c", "from rlfocal.cli import main; main()", "bench", "extraction"]
    command += ["--documents", "5", "--engines", "hf", "--json"]
    done = subprocess.run(
        command, cwd=tmp_path, env=wheel, capture_output=True, text=True, timeout=600, check=True
    )
    found = json.loads(done.stdout)
    assert found["failed"] == {}
    [setting] = found["setting"]
    assert setting["tokens"] > 500
    for work in ("single-token choices", "multi-token choices"):
        reference, ours = (row for row in found["measured"] if row["work"] == work)
        assert (reference["way"], ours["way"]) == ("lm-eval hf", "rlfocal hf")
        assert reference["times_faster"] == 1
        assert ours["max_difference"] < 1e-4
        assert ours["agreement"] == 1


def test_bench_diversity_measures_equal_numbers(tmp_path: Path) -> None:
    sizes = ["--models", "5", "--documents", "600", "--many-models", "12", "--many-documents", "300"]
    command = [str(Path(sys.executable).with_name("rlfocal")), "bench", "diversity", "--json", *sizes]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=True)
    found = json.loads(done.stdout)["measured"]
    references = {row["work"]: row["seconds"] for row in reversed(found)}
    assert len(references) == 6
    for row in found:
        assert row["times_faster"] == pytest.approx(references[row["work"]] / row["seconds"])
    differences = [row["max_difference"] for row in found if row["max_difference"] is not None]
    assert len(differences) == 7
    assert max(differences) < 1e-9
    assert all(row["peak_bytes"] < 2e9 for row in found if row["peak_bytes"] is not None)
    assert not list(tmp_path.iterdir())


def test_warehouse_bench_imports_what_it_says() -> None:
    result = CliRunner().invoke(app, ["bench", "warehouse", "--share", "0.01", "--json"])
    assert result.exit_code == 0, result.stdout
    found = json.loads(result.stdout)
    assert found["choice_rows"] == 12 * sum(n * c for n, c in ((140, 4), (57, 12), (7, 3), (4, 4), (87, 10)))
    assert found["parquet_bytes"] > 10 * found["choice_rows"] / 4
    assert found["open_seconds"] > 0
