"""The study of unnamed choices wins where all are wrong in a recognisable way, and only there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.special import softmax
from support.datasets import make_logits
from support.rows import answer_rows, choice_rows, docs, extraction, set_all
from support.studies import run

from benchmarks.studies import STUDIES, Conditions, StudyFindings
from benchmarks.studies.unnamed import (
    N_FOLDS,
    NONE_RIGHT,
    POOL,
    SHUFFLES,
    UNNAMED_RIGHT,
    estimate,
    find_cases,
)
from rlfocal.base.errors import InputError
from rlfocal.data.loading import load_dataset
from rlfocal.data.policy import decide
from rlfocal.evaluation import EvaluationRequest, Setup
from rlfocal.methods import make_method
from rlfocal.methods.log_linear import fit_log_linear
from warehouse import Warehouse, open_warehouse

N, MODELS = 400, ("a", "b", "c")
SWITCHED, SHUFFLED, TOLD = (
    "switches where it is likelier",
    "the same, labels shuffled",
    "told when all are wrong",
)


def outputs(rng: np.random.Generator, labels: np.ndarray, is_torn: np.ndarray) -> list[list[list[float]]]:
    """By model. Torn documents: all say the choice after the right one, hesitantly, which is their second."""
    found = []
    for _ in MODELS:
        probs = np.full((N, 4), 0.02)
        rows = np.arange(N)
        said = np.where(is_torn, (labels + 1) % 4, labels)
        probs[rows, said] = np.where(is_torn, 0.5, 0.9)
        probs[rows, np.where(is_torn, labels, (labels + 1) % 4)] = np.where(is_torn, 0.4, 0.04)
        found.append((np.log(probs) + rng.normal(0, 0.02, (N, 4))).tolist())
    return found


def study(place: Path, *, is_learnable: bool) -> StudyFindings:
    """`is_learnable`: whether models hesitate where they are wrong, not on as many other documents."""
    rng = np.random.default_rng(1)
    labels, is_torn = rng.integers(0, 4, N), rng.random(N) < 0.25
    shown = labels.copy()
    if not is_learnable:
        # Where they hesitate, the first choice is right three times of four: switching there would lose.
        named = is_torn & (rng.random(N) < 0.75)
        shown[named] = (labels[named] + 1) % 4
    with open_warehouse(place) as warehouse:
        for model, scores in zip(MODELS, outputs(rng, labels, is_torn), strict=True):
            put(warehouse, model, scores, shown)
        return run(warehouse, "unnamed")


def put(warehouse: Warehouse, model: str, scores: list[list[float]], labels: np.ndarray) -> None:
    asked = set_all(docs(N, labels.tolist()), choices=["a", "b", "c", "d"])
    warehouse.put_partition(asked, choice_rows(scores, model), extraction(model, n_docs=N))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "own"


def test_it_wins_where_it_can_be_known(place: Path) -> None:
    found = {p.label: p for p in study(place, is_learnable=True).points}
    assert list(found) == ["log_linear", SWITCHED, SHUFFLED, TOLD]
    assert found["log_linear"].accuracy < 0.85
    assert found[SWITCHED].accuracy == found[TOLD].accuracy == 1
    gain = found[SWITCHED].gain
    assert gain is not None
    assert gain[0] == pytest.approx(1 - found["log_linear"].accuracy)
    assert gain[1] > 0.1
    control = found[SHUFFLED]
    assert (control.seeds, control.gain is not None) == (SHUFFLES, True)
    assert control.accuracy <= found["log_linear"].accuracy + 0.01


def test_it_does_not_switch_where_switching_would_lose(place: Path) -> None:
    findings = study(place, is_learnable=False)
    found = {p.label: p for p in findings.points}
    assert found[SWITCHED].accuracy >= found["log_linear"].accuracy - 0.01
    assert found[TOLD].accuracy > found["log_linear"].accuracy + 0.03
    assert "It switches on 0 of 80 documents" in findings.notes[0]


def test_the_pool_is_log_linear_and_its_choice_the_likeliest_that_nobody_named() -> None:
    data = make_logits(7, T=300, N=4, C=5)
    train, test = find_cases(data.train, data.test)
    [policy] = make_method("log_linear").fit(data.train, [0])
    assert test.pool_answers.tolist() == decide(policy, data.test).predictions.tolist()
    pool = fit_log_linear(data.train, np.ones(4, bool))
    p = softmax(np.einsum("tmc,m->tc", data.test.logprobs, pool.weights) + pool.biases, axis=1)
    for i, said in enumerate(data.test.predictions.tolist()):
        rest = [c for c in range(5) if c not in said]
        assert test.unnamed_choices[i] == (max(rest, key=lambda c: p[i, c]) if rest else -1)
        label = data.test.labels[i]
        expected = (
            POOL
            if test.pool_answers[i] == label
            else UNNAMED_RIGHT
            if test.unnamed_choices[i] == label
            else NONE_RIGHT
        )
        assert test.right[i] == expected
    assert len(train.features) == len(data.train)
    assert np.isfinite(train.features).all()


def test_train_is_described_by_pools_that_did_not_see_it() -> None:
    """Another label changes the features of the other folds' documents, never its own."""
    data = make_logits(8, T=120, N=3, C=4)
    changed = data.labels.copy()
    changed[3] = (changed[3] + 1) % 4
    before, _ = find_cases(data.train, data.test)
    after, _ = find_cases(replace(data, labels=changed).train, data.test)
    differs = (before.features != after.features).any(axis=1)
    assert not differs[3]
    assert differs.sum() > len(differs) / N_FOLDS


def test_labels_do_not_reach_the_test_rows() -> None:
    data = make_logits(9, T=120, N=3, C=4)
    train, test = find_cases(data.train, data.test)
    _, blind = find_cases(data.train, data.test.hide_labels())
    order = np.arange(len(data.train))
    for of_test, of_blind in zip(estimate(train, test, order), estimate(train, blind, order), strict=True):
        np.testing.assert_array_equal(of_test, of_blind)
    assert blind.pool_answers.tolist() == test.pool_answers.tolist()


def test_free_answers_have_no_unnamed_choices(place: Path) -> None:

    with open_warehouse(place) as warehouse:
        rows = answer_rows([["1"]] * 20, "a")
        asked = docs(20).drop_columns(["label", "choices"])
        warehouse.put_partition(asked, rows, extraction("a", n_docs=20))
        setup = Setup(warehouse, load_dataset(warehouse, "b"), EvaluationRequest("b"))
        with pytest.raises(InputError, match="unnamed choices need log-probs"):
            STUDIES["unnamed"].run(Conditions(setup))
