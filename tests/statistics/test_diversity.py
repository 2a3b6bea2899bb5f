"""The statistics in SQL and in numpy, against each other and against independent oracles."""

from __future__ import annotations

import math
from itertools import combinations

import duckdb
import numpy as np
import pytest
from guide import GUIDE, examples
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.regression.linear_model import OLS
from statsmodels.tools import add_constant
from support.pool_oracles import (
    FEW,
    METRICS,
    PAIR_METRICS,
    Answers,
    answers,
    cohens_oracle,
    column,
    fill,
    one_hot,
    pair_oracle,
    pool_oracle,
    same,
)
from support.sql import plain_database

from rlfocal.data.dataset import Kind
from rlfocal.statistics import diversity


@FEW
@given(data=answers())
def test_pairs(sql: duckdb.DuckDBPyConnection, data: Answers) -> None:
    models = fill(sql, data)
    twin = diversity.pairwise_diversity(data.correct, data.answered)
    rows = sql.execute("FROM pairwise_diversity('b')").to_arrow_table().to_pylist()
    common = {
        (a, b) for a, b in combinations(range(len(models)), 2) if data.answered[:, [a, b]].all(axis=1).any()
    }
    assert [(r["model_a"], r["model_b"]) for r in rows] == [(models[a], models[b]) for a, b in sorted(common)]
    for row, (a, b) in zip(rows, sorted(common), strict=True):
        at = data.answered[:, [a, b]].all(axis=1)
        both = data.correct[at, a], data.correct[at, b]
        oracle = {**pair_oracle(*both), "cohens_kappa": cohens_oracle(*both)}
        assert row["n"] == at.sum()
        for name in PAIR_METRICS:
            value = column([row[name]])[0]
            same(value, oracle[name])
            same(value, getattr(twin, name)[a, b])


@FEW
@given(data=answers(), seed=st.integers(0, 2**16))
def test_one_pool(sql: duckdb.DuckDBPyConnection, data: Answers, seed: int) -> None:
    models = fill(sql, data)
    rng = np.random.default_rng(seed)
    pool = tuple(sorted(rng.choice(len(models), rng.integers(1, len(models) + 1), replace=False).tolist()))
    oracle = pool_oracle(data, pool)
    table = sql.execute("FROM pool_diversity('b', ?)", [[models[i] for i in reversed(pool)]]).to_arrow_table()
    assert sorted(table.column_names) == sorted(METRICS)
    assert table.num_rows == 1
    twin = diversity.pool_diversity(
        data.predictions,
        data.labels,
        one_hot(pool, len(models))[None],
        kind=data.kind,
        answered=data.answered,
    )
    for name in METRICS:
        value = column(table[name].to_pylist())[0]
        same(value, oracle[name])
        same(getattr(twin, name)[0], oracle[name])


@FEW
@given(data=answers(), max_size=st.integers(2, 5))
def test_every_pool(sql: duckdb.DuckDBPyConnection, data: Answers, max_size: int) -> None:
    models = fill(sql, data)
    seen = [m for i, m in enumerate(models) if data.answered[:, i].any()]
    found = sql.execute("FROM all_pools('b', ?)", [max_size]).to_arrow_table().to_pylist()
    expected = [c for size in range(2, max_size + 1) for c in combinations(seen, size)]
    assert [tuple(r["models"]) for r in found] == expected
    pools = np.array([[m in c for m in models] for c in expected], bool).reshape(-1, len(models))
    twin = (
        diversity.pool_diversity(data.predictions, data.labels, pools, kind=data.kind, answered=data.answered)
        if len(pools)
        else None
    )
    for i, row in enumerate(found):
        oracle = pool_oracle(data, tuple(np.flatnonzero(pools[i]).tolist()))
        for name in ("size", "focal_diversity", "plurality_accuracy"):
            same(column([row[name]])[0], oracle[name])
            assert twin is not None
            same(getattr(twin, name)[i], oracle[name])


@FEW
@given(data=answers(gaps=False), window=st.integers(1, 6))
def test_over_time(sql: duckdb.DuckDBPyConnection, data: Answers, window: int) -> None:
    models = fill(sql, data)
    pool = tuple(range(len(models)))
    table = sql.execute("FROM pool_diversity_over_time('b', ?, ?)", [models, window]).to_arrow_table()
    assert table["position"].to_pylist() == list(range(len(data.labels)))
    assert table["doc_id"].to_pylist() == [t % 3 for t in range(len(data.labels))]
    twin = diversity.pool_diversity_over_time(
        data.predictions, data.labels, one_hot(pool, len(models)), window, kind=data.kind
    )
    for t in range(len(data.labels)):
        before = slice(max(0, t - window), t)
        past = Answers(data.kind, data.predictions[before], data.labels[before], data.answered[before])
        oracle = pool_oracle(past, pool)
        for name in METRICS:
            same(column([table[name][t].as_py()])[0], oracle[name])
            same(getattr(twin, name)[t], oracle[name])


@pytest.mark.parametrize(
    ("correct", "expected"),
    [
        ([[1, 0, 1], [0, 0, 1], [0, 1, 0], [1, 1, 0], [0, 0, 0], [1, 1, 1]], 0.317460),
        ([[0, 1], [0, 0], [1, 0], [1, 1]], 1 / 3),
        ([[0, 1, 1, 1], [0, 0, 1, 1], [0, 0, 0, 1], [0, 0, 0, 0], [1, 1, 1, 0]], 0.233862),
        ([[1, 1], [1, 1]], math.nan),
        ([[0, 0], [1, 1]], 0.0),
        ([[0, 1], [1, 0]], 1.0),
    ],
)
def test_focal_diversity_of_the_paper(correct: list[list[int]], expected: float) -> None:
    matrix = np.array(correct, bool)
    value = diversity.focal_diversity(matrix, np.ones((1, matrix.shape[1]), bool))
    np.testing.assert_allclose(value, [expected], atol=5e-7, equal_nan=True)


def test_every_pool_lists_each_once() -> None:
    pools = diversity.every_pool(12, 12)
    assert len(pools) == len(np.unique(pools, axis=0)) == 2**12 - 13
    assert pools.sum(axis=1).min() == 2


@pytest.mark.parametrize("kind", ["choices", "answers"])
def test_many_ties(sql: duckdb.DuckDBPyConnection, kind: Kind) -> None:
    """Enough documents for every tie of five votes, and for majorities against the first voter."""
    rng = np.random.default_rng(4)
    lowest = 0 if kind == "choices" else -1
    predictions, labels = rng.integers(lowest, 4, (150, 5)), rng.integers(0, 4, 150)
    data = Answers(kind, predictions, labels, np.ones((150, 5), bool))
    models = fill(sql, data)
    pools = diversity.every_pool(5, 5)
    twin = diversity.pool_diversity(predictions, labels, pools, kind=kind)
    found = sql.execute("SELECT plurality_accuracy FROM all_pools('b', 5)").fetchall()
    for i, pool in enumerate(pools):
        oracle = pool_oracle(data, tuple(np.flatnonzero(pool).tolist()))
        same(found[i][0], oracle["plurality_accuracy"])
        if pool.sum() < 4:
            continue
        chosen = [m for m, member in zip(models, pool, strict=True) if member]
        row = sql.execute("FROM pool_diversity('b', ?)", [chosen]).to_arrow_table().to_pylist()[0]
        for name in METRICS:
            same(row[name], oracle[name])
            same(getattr(twin, name)[i], oracle[name])


def test_as_many_different_answers_as_models(sql: duckdb.DuckDBPyConnection) -> None:
    """Of 2,100 models to one document, the last two agree; binary digits tell the others apart."""
    n = 2100
    codes = np.minimum(np.arange(n), n - 2)[None]
    fill(sql, Answers("answers", codes, np.array([0]), np.ones((1, n), bool)))
    counted = sql.execute(
        "SELECT count(DISTINCT w.code), count(DISTINCT a.answer), count(DISTINCT (w.code, a.answer)) "
        "FROM warehouse.model_words('b', '*', '*', '*') AS w JOIN answer_passes AS a USING (model)"
    )
    assert counted.fetchall() == [(n - 1,) * 3]


def test_task_and_split_restrict(sql: duckdb.DuckDBPyConnection) -> None:
    rng = np.random.default_rng(2)
    data = Answers("choices", rng.integers(0, 3, (12, 3)), rng.integers(0, 3, 12), np.ones((12, 3), bool))
    models = fill(sql, data)
    sql.execute("UPDATE docs SET split = 'train' WHERE doc_id = 0")
    for clause, at in (
        ("task := 't01'", np.arange(12) // 3 == 1),
        ("split := 'train'", np.arange(12) % 3 == 0),
    ):
        part = Answers("choices", data.predictions[at], data.labels[at], data.answered[at])
        oracle = pool_oracle(part, (0, 1, 2))
        row = sql.execute(f"FROM pool_diversity('b', ?, {clause})", [models]).to_arrow_table().to_pylist()[0]
        assert row["n"] == oracle["n"]
        same(column([row["kappa"]])[0], oracle["kappa"])
        (pair,) = sql.execute(f"SELECT n FROM pairwise_diversity('b', {clause}) LIMIT 1").fetchone() or (0,)
        assert pair == oracle["n"]
        every = sql.execute(f"SELECT plurality_accuracy FROM all_pools('b', 3, {clause})").fetchall()
        same(every[-1][0], oracle["plurality_accuracy"])


def test_pools_of_three_take_little_memory() -> None:
    """Every pool is of bit strings that pools share: no join copies them."""
    sql = plain_database()  # what other tests left in theirs counts as its memory
    rng = np.random.default_rng(4)
    shape = (2048, 40)
    fill(sql, Answers("choices", rng.integers(0, 3, shape), rng.integers(0, 3, 2048), np.ones(shape, bool)))
    sql.execute("SET threads = 1; SET memory_limit = '240MB'; SET max_temp_directory_size = '0B'")
    [(n,)] = sql.execute("SELECT count(plurality_accuracy) FROM all_pools('b', 3)").fetchall()
    assert n == math.comb(40, 2) + math.comb(40, 3)


def test_the_guides_partial_correlation_is_that_of_residuals(sql: duckdb.DuckDBPyConnection) -> None:
    rng = np.random.default_rng(5)
    labels, skill = rng.integers(0, 4, 240), np.array([0.8, 0.7, 0.6, 0.55, 0.5])
    is_right = rng.random((240, 5)) < skill
    said = np.where(is_right, labels[:, None], rng.integers(0, 4, (240, 5)))
    data = Answers("choices", said, labels, np.ones((240, 5), bool))
    fill(sql, data)
    sql.execute("UPDATE docs SET split = 'train' WHERE doc_id < 2")
    is_train = np.arange(240) % 3 < 2
    [query] = [one.code for one in examples(GUIDE.read_text("utf-8")) if "AS partial" in one.code]
    query = query.replace("'lab-mmlu', 12", "'b', 5").replace("'lab-mmlu'", "'b'")
    found = {row[0]: row[1:] for row in sql.execute(query).fetchall()}
    assert list(found) == [2, 3, 4, None]

    train, test = (
        Answers("choices", said[rows], labels[rows], data.answered[rows]) for rows in (is_train, ~is_train)
    )
    pools = [pool for size in range(2, 6) for pool in combinations(range(5), size)]
    focal = np.array([pool_oracle(train, pool)["focal_diversity"] for pool in pools])
    known = add_constant([train.correct[:, pool].mean() for pool in pools])
    gain = np.array(
        [
            pool_oracle(test, pool)["plurality_accuracy"] - test.correct[:, pool].mean(axis=0).max()
            for pool in pools
        ]
    )
    sizes = np.array([len(pool) for pool in pools])
    for size, at in ((2, sizes == 2), (3, sizes == 3), (None, sizes > 0)):
        teams, plain, partial = found[size]
        rest = [OLS(values[at], known[at]).fit().resid for values in (focal, gain)]
        assert teams == at.sum()
        assert plain == pytest.approx(np.corrcoef(focal[at], gain[at])[0, 1], abs=6e-4)
        assert partial == pytest.approx(np.corrcoef(*rest)[0, 1], abs=6e-4)
        assert abs(plain - partial) > 0.01
