"""Scores, comparisons and pass@k in SQL against scikit-learn, statsmodels and enumeration."""

from __future__ import annotations

from itertools import combinations

import duckdb
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import log_loss
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.proportion import proportion_confint
from support.pool_oracles import FEW, Answers, answers, fill, insert


@FEW
@given(data=answers())
def test_accuracy_and_its_interval(sql: duckdb.DuckDBPyConnection, data: Answers) -> None:
    fill(sql, data)
    found = {row[0]: row[1:6] for row in sql.execute("FROM model_scores('b', split := 'test')").fetchall()}
    for j in range(data.answered.shape[1]):
        right = data.correct[data.answered[:, j], j]
        if not len(right):
            assert f"m{j:02}" not in found
            continue
        n, accuracy, stderr, low, high = found[f"m{j:02}"]
        assert (n, accuracy) == (len(right), pytest.approx(right.mean(), abs=1e-12))
        if n > 1:
            assert stderr == pytest.approx(right.std(ddof=1) / np.sqrt(n), abs=1e-9)
        else:
            assert stderr is None
        expected = proportion_confint(right.sum(), n, method="wilson")
        assert (low, high) == pytest.approx(expected, abs=1e-9)


def test_brier_and_log_loss(sql: duckdb.DuckDBPyConnection) -> None:
    fill(sql, Answers("choices", np.zeros((1, 1), int), np.zeros(1, int), np.ones((1, 1), bool)))
    for table in ("docs", "choice_logprobs"):
        sql.execute(f"DELETE FROM {table}")
    rng = np.random.default_rng(0)
    scores, labels = rng.normal(size=(60, 4)) * 3 - 500, rng.integers(0, 4, 60)
    key = {"benchmark": "b", "task": "t"}
    insert(
        sql,
        "docs",
        [
            key | {"doc_id": i, "label": int(y), "split": "train" if i % 3 else "test"}
            for i, y in enumerate(labels)
        ],
    )
    insert(
        sql,
        "choice_logprobs",
        [
            key | {"doc_id": i, "model": "m00", "choice": c, "logprob": x}
            for (i, c), x in np.ndenumerate(scores)
        ],
    )
    probabilities = np.exp(scores - scores.max(axis=1, keepdims=True))
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    for split, at in (("*", slice(None)), ("test", slice(None, None, 3))):
        call = "SELECT brier, log_loss FROM model_scores('b', split := ?)"
        [(brier, loss)] = sql.execute(call, [split]).fetchall()
        distances = ((probabilities - np.eye(4)[labels]) ** 2).sum(axis=1)
        assert brier == pytest.approx(distances[at].mean(), abs=1e-9)
        assert loss == pytest.approx(log_loss(labels[at], probabilities[at], labels=range(4)), abs=1e-9)


@FEW
@given(data=answers())
def test_two_models(sql: duckdb.DuckDBPyConnection, data: Answers) -> None:
    fill(sql, data)
    seen = [j for j in range(data.answered.shape[1]) if data.answered[:, j].any()]
    for a, b in combinations(seen, 2):
        call = f"FROM compare_models('b', a := 'm{a:02}', b := 'm{b:02}')"
        [(n, accuracy_a, accuracy_b, difference, stderr, only_a, only_b, p)] = sql.execute(call).fetchall()
        at = data.answered[:, [a, b]].all(axis=1)
        x, y = data.correct[at, a], data.correct[at, b]
        assert (n, only_a, only_b) == (at.sum(), (x & ~y).sum(), (y & ~x).sum())
        if n:
            assert (accuracy_a, accuracy_b) == pytest.approx((x.mean(), y.mean()), abs=1e-12)
            assert difference == pytest.approx(x.mean() - y.mean(), abs=1e-12)
            assert p == pytest.approx(mcnemar([[0, only_a], [only_b, 0]], exact=True).pvalue, abs=1e-9)
        if n > 1:
            paired = x.astype(float) - y
            assert stderr == pytest.approx(paired.std(ddof=1) / np.sqrt(n), abs=1e-9)
        flips = [
            (f"t{i // 3:02}", i % 3, f"m{a if x_ else b:02}")
            for i, x_, y_ in zip(np.flatnonzero(at), x, y, strict=True)
            if x_ != y_
        ]
        assert sql.execute(f"FROM flipped_by_models('b', 'm{a:02}', 'm{b:02}')").fetchall() == flips


@FEW
@given(data=answers())
def test_two_runs(sql: duckdb.DuckDBPyConnection, data: Answers) -> None:
    """The first two models' answers as the decisions of two runs, with a third run's beside them."""
    sql.execute("DELETE FROM decisions")
    at = data.answered
    key = [{"benchmark": "b", "task": f"t{i // 3:02}", "doc_id": i % 3} for i in range(len(at))]
    insert(
        sql,
        "decisions",
        [
            key[i] | {"run_id": f"r{j}", "correct": bool(data.correct[i, j])}
            for i, j in np.argwhere(at).tolist()
        ],
    )
    for a, b in combinations(np.flatnonzero(at.any(axis=0)).tolist(), 2):
        both = at[:, a] & at[:, b]
        x, y = data.correct[both, a], data.correct[both, b]
        [found] = sql.execute("FROM compare_runs(?, ?)", [f"r{a}", f"r{b}"]).fetchall()
        if len(x):
            p = mcnemar([[0, (x & ~y).sum()], [(y & ~x).sum(), 0]], exact=True).pvalue
            stderr = (x * 1.0 - y).std(ddof=1) / np.sqrt(len(x)) if len(x) > 1 else None
            means = x.mean(), y.mean(), x.mean() - y.mean()
            expected = (len(x), *means, stderr, (x & ~y).sum(), (y & ~x).sum(), p)
            assert found == pytest.approx(expected, abs=1e-9)
        else:
            assert found == (0, None, None, None, None, 0, 0, None)
        flips = [
            ("b", *list(key[i].values())[1:], f"r{a if data.correct[i, a] else b}")
            for i in np.flatnonzero(both)
            if data.correct[i, a] != data.correct[i, b]
        ]
        assert sql.execute("FROM flipped_by_runs(?, ?)", [f"r{a}", f"r{b}"]).fetchall() == flips
        [(n, *_)] = sql.execute("FROM compare_runs(?, ?, task := 't00')", [f"r{a}", f"r{b}"]).fetchall()
        assert n == both[:3].sum()
        lateral = (
            "SELECT c.* FROM (SELECT DISTINCT run_id FROM decisions) AS a, "
            "(SELECT DISTINCT run_id FROM decisions) AS b, compare_runs(a.run_id, b.run_id) AS c "
            "WHERE (a.run_id, b.run_id) = (?, ?)"
        )
        assert sql.execute(lateral, [f"r{a}", f"r{b}"]).fetchall() == [found]
    for nothing in ("'r9'", "NULL"):
        with pytest.raises(duckdb.Error, match=f"no run {nothing.strip(chr(39))}"):
            sql.execute(f"FROM compare_runs({nothing}, 'r0')")


@pytest.mark.parametrize(("n10", "n01"), [(0, 0), (0, 1), (5, 5), (900, 1000), (7000, 7100), (0, 3000)])
def test_mcnemar(sql: duckdb.DuckDBPyConnection, n10: int, n01: int) -> None:
    [(p,)] = sql.execute("SELECT mcnemar_p(?, ?)", [n10, n01]).fetchall()
    assert p == pytest.approx(mcnemar([[0, n10], [n01, 0]], exact=True).pvalue, abs=1e-9)


@FEW
@given(
    passes=st.lists(
        st.lists(st.sampled_from(["7", "8", None]), min_size=1, max_size=6), min_size=1, max_size=4
    ),
    k=st.integers(1, 4),
)
def test_pass_at_k(sql: duckdb.DuckDBPyConnection, passes: list[list[str | None]], k: int) -> None:
    """By enumeration: the share of all draws of k passes that have a right one."""
    key = {"benchmark": "b", "task": "t"}
    for table in ("docs", "choice_logprobs", "answer_passes", "extractions"):
        sql.execute(f"DELETE FROM {table}")
    insert(sql, "docs", [key | {"doc_id": i, "gold": "7", "split": "test"} for i in range(len(passes))])
    rows: list[dict[str, object]] = [
        {**key, "doc_id": i, "model": "m", "pass": p, "answer": answer}
        for i, given_answers in enumerate(passes)
        for p, answer in enumerate(given_answers)
    ]
    insert(sql, "answer_passes", rows)
    draws = [list(combinations(answers, k)) for answers in passes if len(answers) >= k]
    shares = [np.mean([("7" in draw) for draw in each]) for each in draws]
    found = sql.execute("FROM pass_at_k('b', ?)", [k]).fetchall()
    assert found == ([("m", len(shares), pytest.approx(np.mean(shares), abs=1e-9))] if shares else [])
