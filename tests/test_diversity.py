"""The statistics in SQL and in numpy, against each other and against independent oracles."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, fields
from itertools import combinations
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from statsmodels.stats.inter_rater import aggregate_raters, cohens_kappa, fleiss_kappa

from rlfocal import diversity
from rlfocal.dataset import Kind
from warehouse import Warehouse, open_warehouse
from warehouse.scripts import SCHEMA, script

METRICS = [f.name for f in fields(diversity.PoolStatistics)]
PAIR_METRICS = ("q_statistic", "correlation", "disagreement", "kappa", "double_fault", "cohens_kappa")
FEW = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@dataclass(frozen=True)
class Answers:
    """Predictions (T, N) as codes, -1 for none; labels (T,); who answered (T, N)."""

    kind: Kind
    predictions: np.ndarray
    labels: np.ndarray
    answered: np.ndarray

    @property
    def correct(self) -> np.ndarray:
        return np.asarray((self.predictions == self.labels[:, None]) & (self.predictions >= 0))


@st.composite
def answers(draw: st.DrawFn, gaps: bool = True) -> Answers:
    """Few codes, so that ties, constant models, all right and all wrong are common."""
    kinds: list[Kind] = ["choices", "answers"]
    kind = draw(st.sampled_from(kinds))
    t, n = draw(st.integers(1, 14)), draw(st.integers(1, 5))
    lowest = 0 if kind == "choices" else -1
    codes = st.integers(lowest, draw(st.integers(0, 3)))
    column = st.lists(codes, min_size=t, max_size=t)
    columns = draw(st.lists(column | codes.map(lambda c: [c] * t), min_size=n, max_size=n))
    labels = draw(st.lists(st.integers(0, 3), min_size=t, max_size=t) | st.just(columns[0]))
    labels = [max(label, 0) for label in labels]
    answered = np.ones((t, n), bool)
    if gaps and draw(st.booleans()):
        flat = draw(st.lists(st.booleans() | st.just(True), min_size=t * n, max_size=t * n))
        answered = np.array(flat).reshape(t, n)
    return Answers(kind, np.array(columns).T, np.array(labels), answered)


@pytest.fixture(scope="module")
def sql() -> duckdb.DuckDBPyConnection:
    """The tables, views and macros in a plain DuckDB: without commits, a fill takes milliseconds."""
    connection = duckdb.connect()
    for name in SCHEMA:
        connection.execute(script(name))
    return connection


def fill(connection: duckdb.DuckDBPyConnection, data: Answers) -> list[str]:
    """Writes the answers as benchmark b with tasks of three documents; returns the model names."""
    for table in ("docs", "choice_logprobs", "answer_passes", "extractions"):
        connection.execute(f"DELETE FROM {table}")
    t, n = data.predictions.shape
    models = [f"m{i:02}" for i in range(n)]
    key = [{"benchmark": "b", "task": f"t{i // 3:02}", "doc_id": i % 3} for i in range(t)]
    is_choice = data.kind == "choices"
    docs = [
        {**key[i], "split": "test", "label": int(y) if is_choice else None, "gold": str(y)}
        for i, y in enumerate(data.labels)
    ]
    rows = []
    for i, j in np.argwhere(data.answered).tolist():
        code = int(data.predictions[i, j])
        here = {**key[i], "model": models[j]}
        if is_choice:
            # A later choice that ties must not win.
            rows += [{**here, "choice": c, "logprob": -1.0 if c >= code else -2.0} for c in (3, 2, 1, 0)]
        else:
            rows.append({**here, "pass": 0, "answer": str(code) if code >= 0 else None})
    insert(connection, "docs", docs)
    insert(connection, "choice_logprobs" if is_choice else "answer_passes", rows)
    insert(connection, "extractions", [{"benchmark": "b", "task": "t00", "model": m} for m in models])
    return models


def insert(connection: duckdb.DuckDBPyConnection, table: str, rows: list[dict[str, object]]) -> None:
    if rows:
        connection.register("rows_", pa.Table.from_pylist(rows))
        connection.execute(f"INSERT INTO {table} BY NAME FROM rows_")
        connection.unregister("rows_")


def column(values: list[object]) -> np.ndarray:
    return np.array([np.nan if v is None else v for v in values], dtype=float)


def same(left: np.ndarray | float, right: np.ndarray | float) -> None:
    np.testing.assert_allclose(left, right, rtol=0, atol=1e-9, equal_nan=True)


def ratio(a: float, b: float) -> float:
    return a / b if b else math.nan


def mean(values: list[float]) -> float:
    defined = [v for v in values if not math.isnan(v)]
    return sum(defined) / len(defined) if defined else math.nan


def one_minus_p2_over_p1(failures: list[int], size: int) -> float:
    """1 - P(2)/P(1) of the numbers of failing members, by the definition's sum over j."""
    n = len(failures)
    if not n or size < 2:
        return math.nan
    share = {j: failures.count(j) / n for j in range(size + 1)}
    p1 = sum(j / size * p for j, p in share.items())
    p2 = sum(j * (j - 1) / (size * (size - 1)) * p for j, p in share.items())
    return 1 - p2 / p1 if p1 else math.nan


def pool_oracle(data: Answers, pool: tuple[int, ...]) -> dict[str, float]:
    """Every statistic of one pool, read off its definition document by document."""
    at = data.answered[:, pool].all(axis=1)
    votes, labels = data.predictions[at][:, pool], data.labels[at]
    right = (votes == labels[:, None]) & (votes >= 0)
    n, size = right.shape
    k = (~right).sum(axis=1).tolist()
    focal = [one_minus_p2_over_p1([k[t] for t in range(n) if not right[t, f]], size) for f in range(size)]
    pairs = [pair_oracle(right[:, a], right[:, b]) for a, b in combinations(range(size), 2)]
    share = ratio(int(right.sum()), right.size)
    entropy = math.nan if math.isnan(share) else -sum(p * math.log2(p) for p in (share, 1 - share) if p)
    wins = 0
    for row, label in zip(votes.tolist(), labels.tolist(), strict=True):
        count = Counter(v for v in row if v >= 0)
        top = [v for v in count if count[v] == max(count.values())]
        if top:
            wins += (min(top) if data.kind == "choices" else next(v for v in row if v in top)) == label
    with np.errstate(all="ignore"):
        fleiss = float(fleiss_kappa(aggregate_raters(votes)[0])) if n and size > 1 else math.nan
    return {
        "n": n,
        "size": size,
        "focal_diversity": mean(focal),
        "generalized_diversity": one_minus_p2_over_p1(k, size),
        "fleiss_kappa": fleiss,
        **{name: mean([p[name] for p in pairs]) for name in PAIR_METRICS[:4]},
        "binary_entropy": entropy,
        "plurality_accuracy": ratio(wins, n),
    }


def pair_oracle(a: np.ndarray, b: np.ndarray) -> dict[str, float]:
    n11, n00 = int((a & b).sum()), int((~a & ~b).sum())
    n10, n01 = int((a & ~b).sum()), int((~a & b).sum())
    excess, n = n11 * n00 - n01 * n10, len(a)
    return {
        "q_statistic": ratio(excess, n11 * n00 + n01 * n10),
        "correlation": ratio(excess, math.sqrt((n11 + n10) * (n01 + n00) * (n11 + n01) * (n10 + n00))),
        "disagreement": ratio(n01 + n10, n),
        "kappa": ratio(2 * excess, (n11 + n10) * (n01 + n00) + (n11 + n01) * (n10 + n00)),
        "double_fault": ratio(n00, n),
    }


def cohens_oracle(a: np.ndarray, b: np.ndarray) -> float:
    table = [[(a & b).sum(), (a & ~b).sum()], [(~a & b).sum(), (~a & ~b).sum()]]
    with np.errstate(all="ignore"):
        return float(cohens_kappa(np.array(table)).kappa)


def one_hot(pool: tuple[int, ...], n: int) -> np.ndarray:
    return np.isin(np.arange(n), pool)


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
    assert table.column_names == METRICS
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


@settings(FEW, max_examples=20)
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


def test_more_models_than_one_float_can_rank() -> None:
    rng = np.random.default_rng(0)
    predictions, labels = rng.integers(-1, 3, (20, 50)), rng.integers(0, 3, 20)
    data = Answers("answers", predictions, labels, np.ones((20, 50), bool))
    pool = tuple(range(0, 50, 2))
    value = diversity.plurality_accuracy(predictions, labels, one_hot(pool, 50)[None], "answers")
    same(value[0], pool_oracle(data, pool)["plurality_accuracy"])


def test_wide_pool_in_sql(sql: duckdb.DuckDBPyConnection) -> None:
    rng = np.random.default_rng(1)
    data = Answers("choices", rng.integers(0, 4, (30, 100)), rng.integers(0, 4, 30), np.ones((30, 100), bool))
    models = fill(sql, data)
    oracle = pool_oracle(data, tuple(range(100)))
    row = sql.execute("FROM pool_diversity('b', ?)", [models]).to_arrow_table().to_pylist()[0]
    for name in METRICS:
        same(row[name], oracle[name])


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
        chosen = [m for m, member in zip(models, pool, strict=True) if member]
        row = sql.execute("FROM pool_diversity('b', ?)", [chosen]).to_arrow_table().to_pylist()[0]
        same(found[i][0], oracle["plurality_accuracy"])
        for name in METRICS:
            same(row[name], oracle[name])
            same(getattr(twin, name)[i], oracle[name])


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


@pytest.mark.parametrize("statement", ["pool_diversity('b', ['m00', 'nobody'])", "pool_diversity('b', [])"])
def test_a_pool_that_cannot_be(sql: duckdb.DuckDBPyConnection, statement: str) -> None:
    fill(sql, Answers("choices", np.zeros((2, 1), int), np.zeros(2, int), np.ones((2, 1), bool)))
    with pytest.raises(duckdb.Error, match=r"nobody|at least one model"):
        sql.execute(f"FROM {statement}").fetchall()


def test_macros_persist_in_the_catalogue(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    data = Answers("choices", rng.integers(0, 4, (9, 4)), rng.integers(0, 4, 9), np.ones((9, 4), bool))
    with open_warehouse(tmp_path) as warehouse, warehouse.transaction("fill"):
        models = fill(warehouse.connection, data)
    with open_warehouse(tmp_path, read_only=True) as warehouse:
        oracle = pool_oracle(data, (0, 1, 2, 3))
        row = warehouse.query("FROM pool_diversity('b', ?)", [models]).to_pylist()[0]
        for name in METRICS:
            same(column([row[name]])[0], oracle[name])
        assert count(warehouse, "pairwise_diversity('b')") == 6
        assert count(warehouse, "all_pools('b', 4)") == 11
        assert count(warehouse, f"pool_diversity_over_time('b', {models}, 3)") == 9


def count(warehouse: Warehouse, source: str) -> int:
    return int(warehouse.rows(f"SELECT count(*) FROM {source}")[0][0])
