"""`import predictions` of the three real sets: their reference figures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import pytest

from warehouse import Warehouse, open_warehouse


@pytest.fixture(scope="module")
def real(real_warehouse: Path) -> Iterator[Warehouse]:
    """The three real sets, to read."""
    with open_warehouse(real_warehouse, read_only=True) as warehouse:
        yield warehouse


@pytest.mark.slow
def test_real_accuracy_equals_numpy(real: Warehouse, shared: Path) -> None:
    for folder, benchmark, task, file, scores in (
        ("mmlu16", "mmlu", "subject", "logits", "choice_logits"),
        ("bbh5", "bbh", "task", "scores", "choice_scores"),
    ):
        keys = "doc_id" if benchmark == "mmlu" else "task, doc_id"
        rows = duckdb.sql(
            f"SELECT {task} AS task, model, label, {scores} AS scores "
            f"FROM '{shared}/data/{folder}/docs.parquet' JOIN '{shared}/data/{folder}/{file}.parquet' "
            f"USING ({keys}) WHERE label >= 0"
        ).fetchall()
        right: dict[tuple[str, str], list[bool]] = {}
        width = max(len(row[3]) for row in rows)
        padded = np.array([row[3] + [-np.inf] * (width - len(row[3])) for row in rows])
        hits = padded.argmax(axis=1) == np.array([row[2] for row in rows])
        for (name, model, *_), hit in zip(rows, hits.tolist(), strict=True):
            right.setdefault((name, model), []).append(hit)
        found = real.rows("SELECT task, model, n, accuracy FROM accuracy WHERE benchmark = ?", [benchmark])
        expected = {key: (len(each), sum(each) / len(each)) for key, each in right.items()}
        assert {(name, model): (n, accuracy) for name, model, n, accuracy in found} == expected


@pytest.mark.slow
def test_real_mmlu_pools(real: Warehouse) -> None:
    """The reference figures of the data set: plurality of 16, and the best single model on train."""
    models = [m for (m,) in real.rows("SELECT DISTINCT model FROM accuracy WHERE benchmark = 'mmlu'")]
    (row,) = real.query("FROM pool_diversity('mmlu', ?, split := 'test')", [models]).to_pylist()
    assert row["n"] == 1999
    assert round(100 * row["plurality_accuracy"], 2) == 68.88
    best = real.rows(
        "SELECT model, avg(correct::INT) FILTER (split = 'test') FROM predictions WHERE benchmark = 'mmlu' "
        "GROUP BY model ORDER BY avg(correct::INT) FILTER (split = 'train') DESC LIMIT 1"
    )
    assert [(m, round(100 * a, 2)) for m, a in best] == [("01-ai/Yi-34B", 73.74)]


@pytest.mark.slow
def test_real_gsm8k(real: Warehouse) -> None:
    of_gsm8k = "FROM accuracy WHERE benchmark = 'gsm8k'"
    assert real.rows(f"SELECT count(*), min(n), max(n) {of_gsm8k}") == [(44, 1319, 1319)]
    top = real.rows(f"SELECT model, round(accuracy, 4) {of_gsm8k} ORDER BY accuracy DESC LIMIT 1")
    assert top == [("claude-3-5-sonnet-20241022", 0.9659)]
    silent = "SELECT count(*) FROM predictions WHERE model LIKE 'gemini-1.5-flash-exp%' AND answer IS NULL"
    assert real.rows(silent)[0][0] >= 1319 - 681
