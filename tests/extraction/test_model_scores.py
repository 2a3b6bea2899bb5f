"""Scores, comparisons and pass@k in SQL against scikit-learn, statsmodels and enumeration."""

from __future__ import annotations

from itertools import combinations, pairwise

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
    splits = ["train" if i % 3 else "test" for i in range(60)]
    asked = [key | {"doc_id": i, "label": int(y), "split": splits[i]} for i, y in enumerate(labels)]
    said = [
        key | {"doc_id": i, "model": "m00", "choice": c, "logprob": x} for (i, c), x in np.ndenumerate(scores)
    ]
    insert(sql, "docs", asked)
    insert(sql, "choice_logprobs", said)
    probabilities = np.exp(scores - scores.max(axis=1, keepdims=True))
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    for split, at in (("*", slice(None)), ("test", slice(None, None, 3))):
        call = "SELECT brier, log_loss FROM model_scores('b', split := ?)"
        [(brier, loss)] = sql.execute(call, [split]).fetchall()
        distances = ((probabilities - np.eye(4)[labels]) ** 2).sum(axis=1)
        assert brier == pytest.approx(distances[at].mean(), abs=1e-9)
        assert loss == pytest.approx(log_loss(labels[at], probabilities[at], labels=range(4)), abs=1e-9)


def compared(data: Answers, a: int, b: int) -> tuple[object, ...]:
    """What a comparison of two columns of answers says, by statsmodels."""
    both = data.answered[:, [a, b]].all(axis=1)
    x, y = data.correct[both, a], data.correct[both, b]
    if not len(x):
        return (0, None, None, None, None, 0, 0, None)
    only_a, only_b = (x & ~y).sum(), (y & ~x).sum()
    p = mcnemar([[0, only_a], [only_b, 0]], exact=True).pvalue
    stderr = (x * 1.0 - y).std(ddof=1) / np.sqrt(len(x)) if len(x) > 1 else None
    return (len(x), x.mean(), y.mean(), x.mean() - y.mean(), stderr, only_a, only_b, p)


def flips(data: Answers, a: int, b: int) -> list[tuple[str, int, int]]:
    """Task, document, and which of the two columns is right there alone."""
    both = np.flatnonzero(data.answered[:, [a, b]].all(axis=1))
    differ = [i for i in both.tolist() if data.correct[i, a] != data.correct[i, b]]
    return [(f"t{i // 3:02}", i % 3, a if data.correct[i, a] else b) for i in differ]


@FEW
@given(data=answers())
def test_two_models_and_two_runs(sql: duckdb.DuckDBPyConnection, data: Answers) -> None:
    """The models' answers are the decisions of as many runs, too."""
    fill(sql, data)
    sql.execute("DELETE FROM decisions")
    made = [
        {"benchmark": "b", "task": f"t{i // 3:02}", "doc_id": i % 3, "run_id": f"r{j}"}
        | {"correct": bool(data.correct[i, j])}
        for i, j in np.argwhere(data.answered).tolist()
    ]
    insert(sql, "decisions", made)
    for a, b in pairwise(np.flatnonzero(data.answered.any(axis=0)).tolist()):
        expected = pytest.approx(compared(data, a, b), abs=1e-9)
        models, runs = (f"m{a:02}", f"m{b:02}"), (f"r{a}", f"r{b}")
        assert sql.execute("FROM compare_models('b', a := ?, b := ?)", models).fetchall() == [expected]
        [found] = sql.execute("FROM compare_runs(?, ?)", runs).fetchall()
        assert found == expected
        of_models = sql.execute("FROM flipped_by_models('b', ?, ?)", models).fetchall()
        assert of_models == [(task, i, f"m{j:02}") for task, i, j in flips(data, a, b)]
        of_runs = sql.execute("FROM flipped_by_runs(?, ?)", runs).fetchall()
        assert of_runs == [("b", task, i, f"r{j}") for task, i, j in flips(data, a, b)]
        [(n, *_)] = sql.execute("FROM compare_runs(?, ?, task := 't00')", runs).fetchall()
        assert n == data.answered[:3, [a, b]].all(axis=1).sum()
        lateral = (
            "SELECT c.* FROM (SELECT DISTINCT run_id FROM decisions) AS a, "
            "(SELECT DISTINCT run_id FROM decisions) AS b, compare_runs(a.run_id, b.run_id) AS c "
            "WHERE (a.run_id, b.run_id) = (?, ?)"
        )
        assert sql.execute(lateral, runs).fetchall() == [found]
    for nothing in ("'r9'", "NULL"):
        with pytest.raises(duckdb.Error, match="no run"):
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
