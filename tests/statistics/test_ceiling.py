"""What no policy can pass that returns a member's answer: SQL, its twin, and both read off the definition."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import duckdb
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.special import softmax
from statsmodels.stats.proportion import proportion_confint
from support.pool_oracles import FEW, Answers, answers, column, insert, same
from support.pool_oracles import fill as fill_answers

from rlfocal.statistics.ceiling import PoolCeiling, ceiling
from rlfocal.statistics.intervals import clopper_pearson

# Few values, so that choices tie within a model and in the mean.
SCORES = st.sampled_from([-4.0, -3.0, -2.0, -1.0])
COUNTED = ["n", "n_none_right", "beta", "beta_low", "beta_high", "oracle"]
MEANS = ["best_single", "guessing", "lead_by_one", "lead_by_two", "lead_by_more", "unnamed_right"]
MEANS += ["unnamed_guessing"]


@dataclass(frozen=True)
class ScoredChoices:
    """Log-probs (T, N, C) of choices, how many each document has (T,), labels, tasks and splits (T,)."""

    scores: np.ndarray
    n_choices: np.ndarray
    labels: np.ndarray
    tasks: list[str]
    is_train: np.ndarray

    @property
    def predictions(self) -> np.ndarray:
        return np.asarray(self.exists.argmax(axis=2))

    @property
    def exists(self) -> np.ndarray:
        """The log-probs, -inf where a document has no such choice."""
        there = np.arange(self.scores.shape[2]) < self.n_choices[:, None]
        return np.where(there[:, None], self.scores, -np.inf)

    @property
    def probs(self) -> np.ndarray:
        return np.asarray(softmax(self.exists, axis=2))

    @property
    def correct(self) -> np.ndarray:
        return np.asarray(self.predictions == self.labels[:, None])

    def chosen(self, rows: np.ndarray) -> int:
        """The model that is best on train documents, or on these where there are none."""
        train = self.is_train if self.is_train.any() else rows
        return int(self.correct[train].sum(axis=0).argmax())

    def twin(self, rows: np.ndarray) -> PoolCeiling:
        said = self.predictions[rows], self.labels[rows], self.chosen(rows)
        return ceiling(*said, self.probs[rows], self.n_choices[rows])


@st.composite
def scored(draw: st.DrawFn) -> ScoredChoices:
    t, n, c = draw(st.integers(1, 8)), draw(st.integers(1, 4)), draw(st.integers(2, 5))
    scores = draw(st.lists(SCORES, min_size=t * n * c, max_size=t * n * c))
    n_choices = np.array(draw(st.lists(st.integers(2, c), min_size=t, max_size=t)))
    labels = np.array(draw(st.lists(st.integers(0, c - 1), min_size=t, max_size=t)))
    tasks = draw(st.lists(st.sampled_from(["s", "t"]), min_size=t, max_size=t))
    is_train = np.array(draw(st.lists(st.booleans(), min_size=t, max_size=t)))
    return ScoredChoices(np.array(scores).reshape(t, n, c), n_choices, labels % n_choices, tasks, is_train)


def fill(connection: duckdb.DuckDBPyConnection, data: ScoredChoices) -> list[str]:
    for table in ("docs", "choice_logprobs", "answer_passes", "extractions"):
        connection.execute(f"DELETE FROM {table}")
    models = [f"m{j}" for j in range(data.scores.shape[1])]
    key = [{"benchmark": "b", "task": task, "doc_id": i} for i, task in enumerate(data.tasks)]
    splits = np.where(data.is_train, "train", "test").tolist()
    docs = [k | {"label": int(y), "split": s} for k, y, s in zip(key, data.labels, splits, strict=True)]
    rows: list[dict[str, Any]] = [
        key[i] | {"model": models[j], "choice": c, "logprob": score}
        for (i, j, c), score in np.ndenumerate(data.exists)
        if np.isfinite(score)
    ]
    extracted = [{"extraction_id": m, "benchmark": "b", "task": "s", "model": m, "n_docs": 0} for m in models]
    for table, filled in (("docs", docs), ("choice_logprobs", rows), ("extractions", extracted)):
        insert(connection, table, filled)
    return models


def asked(connection: duckdb.DuckDBPyConnection, more: str = "") -> dict[str, Any]:
    [row] = connection.execute(f"FROM ceiling('b'{more})").to_arrow_table().to_pylist()
    return dict(row)


def by_definition(data: ScoredChoices, rows: np.ndarray) -> dict[str, float]:
    """Document by document."""
    best, n = data.chosen(rows), int(rows.sum())
    found: dict[str, list[float]] = {name: [] for name in MEANS}
    n_none = 0
    for i in np.flatnonzero(rows):
        right, label = data.correct[i], int(data.labels[i])
        found["best_single"].append(right[best])
        found["guessing"].append(1 / data.n_choices[i])
        for name, counts in (("one", {1}), ("two", {2}), ("more", {3, 4})):
            found[f"lead_by_{name}"].append(int(right.sum()) in counts and not right[best])
        if right.any():
            continue
        n_none += 1
        unnamed = sorted(set(range(data.n_choices[i])) - set(data.predictions[i].tolist()))
        likeliest = max(
            unnamed, key=lambda c: (round(math.log(math.fsum(data.probs[i, :, c]) / right.size), 9), -c)
        )
        found["unnamed_right"].append(likeliest == label)
        found["unnamed_guessing"].append(1 / len(unnamed))
    low, high = proportion_confint(n_none, n, method="beta")
    exact = {"n": n, "n_none_right": n_none, "beta": n_none / n, "oracle": 1 - n_none / n}
    exact |= {"beta_low": max(np.nan_to_num(low), 0.0), "beta_high": 1.0 if n_none == n else high}
    return exact | {name: float(np.mean(v)) if v else math.nan for name, v in found.items()}


def equal(found: dict[str, Any], expected: dict[str, Any]) -> None:
    for name in [*COUNTED, *MEANS]:
        same(*column([found[name], expected[name]]))


def three_cases() -> ScoredChoices:
    """All but the best on train are right; it alone is; nobody is, and what nobody named is alike."""
    scores = np.full((3, 4, 5), -2.0)
    scores[:2, 0, 0] = scores[:2, 1:, 1] = scores[2, :, 0] = -1.0
    return ScoredChoices(
        scores, np.full(3, 5), np.array([1, 0, 4]), ["s", "s", "t"], np.array([False, True, False])
    )


@FEW
@given(data=scored())
@example(data=three_cases())
def test_macro_twin_and_definition_agree(sql: duckdb.DuckDBPyConnection, data: ScoredChoices) -> None:
    models = fill(sql, data)
    every = np.ones(len(data.labels), bool)
    for split, rows in (("*", every), ("train", data.is_train), ("test", ~data.is_train)):
        found = asked(sql, f", split := '{split}'")
        if not rows.any():
            assert (found["n"], found["beta"], found["best_model"]) == (0, None, None)
            continue
        expected = by_definition(data, rows)
        equal(found, expected)
        equal(asdict(data.twin(rows)), expected)
        assert found["best_model"] == models[data.chosen(rows)]
        lead = sum(found[f"lead_by_{name}"] for name in ("one", "two", "more"))
        same(lead, found["oracle"] - found["best_single"])
    usual = asked(sql)
    for everybody in (", NULL", ", models := '*'"):
        equal(found := asked(sql, everybody), usual)  # DuckDB's sums depend on the order of rows
        assert found["best_model"] == usual["best_model"]


@FEW
@given(data=scored(), seed=st.integers(0, 99))
def test_what_changes_nothing_and_what_only_raises_the_ceiling(
    sql: duckdb.DuckDBPyConnection, data: ScoredChoices, seed: int
) -> None:
    models = fill(sql, data)
    order = np.random.default_rng(seed).permutation(len(models))
    every = np.ones(len(data.labels), bool)
    best = data.chosen(every)
    shuffled = ceiling(
        data.predictions[:, order],
        data.labels,
        int(np.flatnonzero(order == best)[0]),
        data.probs[:, order],
        data.n_choices,
    )
    equal(asdict(shuffled), asdict(data.twin(every)))
    whole = asked(sql, f", {[models[j] for j in order]}")
    growing = [asked(sql, f", {models[:k]}") for k in range(1, len(models) + 1)]
    equal(whole, growing[-1])
    betas = [row["beta"] for row in growing]
    assert betas == sorted(betas, reverse=True)
    by_task = [asked(sql, f", task := '{task}'") for task in set(data.tasks)]
    for name in ("n", "n_none_right"):
        assert sum(row[name] for row in by_task) == whole[name]
    same(sum(row["guessing"] * row["n"] for row in by_task) / whole["n"], whole["guessing"])


@FEW
@given(data=answers())
@example(data=Answers("answers", np.array([[0, -1]]), np.array([1]), np.array([[True, False]])))
def test_answers_and_documents_that_some_miss(sql: duckdb.DuckDBPyConnection, data: Answers) -> None:
    """Of named models, what all answered counts; unnamed ones count where they answered everything."""
    models = fill_answers(sql, data)
    whole = data.answered.all(axis=0)
    for found, among in (
        (asked(sql, f", {models}"), np.ones(len(models), bool)),
        (asked(sql), whole),
    ):
        missed = np.flatnonzero(data.answered.any(axis=0) & ~among)
        assert (found["left_out"] or []) == [models[i] for i in missed]
        rows = data.answered[:, among].all(axis=1) if among.any() else np.zeros(len(data.labels), bool)
        right = np.asarray(data.correct[rows][:, among].any(axis=1))
        assert (found["n"], found["n_none_right"]) == (len(right), (~right).sum())
        if data.kind == "answers":
            assert {found[name] for name in ("guessing", "unnamed_right", "unnamed_guessing")} == {None}


@pytest.mark.parametrize(
    ("n_right", "n"),
    [(0, 1), (1, 1), (0, 264), (57, 1_999), (1_012, 5_758), (7_000, 14_000), (13_999, 14_000)],
)
def test_exact_intervals(sql: duckdb.DuckDBPyConnection, n_right: int, n: int) -> None:
    [(found,)] = sql.execute("SELECT clopper_pearson(?, ?)", [n_right, n]).fetchall()
    low, high = proportion_confint(n_right, n, method="beta")
    expected = 0.0 if n_right == 0 else low, 1.0 if n_right == n else high
    assert (found["low"], found["high"]) == pytest.approx(expected, abs=1e-9)
    twin = clopper_pearson(n_right, n)
    assert (twin.mean, twin.low, twin.high) == pytest.approx((n_right / n, *expected), abs=1e-12)
    assert math.isnan(clopper_pearson(0, 0).low)
