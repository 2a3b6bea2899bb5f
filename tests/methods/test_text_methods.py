"""Text features beside log-probs, and alone: minima of their losses, and where they must win."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from support.datasets import make_answers, make_logits
from support.worded_data import (
    LETTERS,
    Floats,
    accuracy,
    decided,
    in_words,
    labels_in_words,
    policy_of,
    slope,
    topical,
)

from rlfocal.data.policy import decide
from rlfocal.data.text import TEXT_RIDGES, ridge_by_folds
from rlfocal.methods.log_linear import Examples, minimise
from rlfocal.methods.stacking import fit_regression


def test_a_text_classifier_predicts_the_label_without_calls() -> None:
    data = labels_in_words()
    asked = decided("text_only", data)
    assert not asked.pools.any()
    assert accuracy("text_only", data) > 0.75  # of 0.8


@pytest.mark.parametrize("name", ["log_linear", "stacking"])
def test_text_features_help_when_informative_and_are_harmless_otherwise(name: str) -> None:
    data = labels_in_words()
    alone, read, both = (accuracy(one, data) for one in (name, "text_only", f"{name}+text"))
    assert both > max(alone, read) + 0.02
    babble = in_words(data, np.random.default_rng(2).integers(3, size=len(data)), seed=2)
    assert accuracy(f"{name}+text", babble) == pytest.approx(alone, abs=0.02)
    assert accuracy(f"{name}+text", replace(data, questions=())) == alone


def test_text_features_choose_among_free_answers() -> None:
    rng = np.random.default_rng(0)
    topics = rng.integers(3, size=600)
    said = ["".join("a" if i == topic else rng.choice(list("bcd")) for i in range(3)) for topic in topics]
    data = in_words(make_answers(*[(one, "a") for one in said]), topics)
    assert accuracy("log_linear", data) < 0.6
    assert accuracy("log_linear+text", data) > 0.98


@pytest.mark.parametrize("kind", ["choices", "answers"])
def test_a_log_linear_pool_with_text_is_the_minimum_of_its_loss(kind: str) -> None:
    train = make_logits(0, T=60).train if kind == "choices" else make_answers(*LETTERS * 6).train
    rng = np.random.default_rng(0)
    text = rng.normal(size=(len(train), 2))
    examples = Examples.from_dataset(train, np.ones(len(train.models), dtype=np.bool_), text)
    (M, n, C), width = examples.x.shape, examples.start.by_text.shape[1]
    limits = {"ftol": 1e-15, "gtol": 1e-8, "maxiter": 10_000}
    found, _ = minimise(examples, examples.start, 1e-3, 3.0, limits)

    def loss(parameters: Floats) -> float:
        w, b, v = parameters[:M], parameters[M : M + C], parameters[M + C :].reshape(2, width)
        total = 1e-3 / 2 * float(w @ w) + 3.0 / 2 * float((v**2).sum())
        for t in range(len(train)):
            slots = [c for c in range(C) if kind == "choices" or train.probs[t, :, c].any()]
            slots = [c for c in slots if c < train.n_choices[t]]
            if train.labels[t] not in slots:
                continue
            scores = {}
            for c in slots:
                if kind == "choices":
                    scores[c] = w @ train.logprobs[t, :, c] + b[c] + text[t] @ v[:, c]
                else:
                    scores[c] = (w + text[t] @ v) @ train.probs[t, :, c]
            total -= scores[train.labels[t]] - np.log(np.sum(np.exp(list(scores.values()))))
        return total

    assert n > 10
    solution = np.concatenate([part.ravel() for part in found])
    assert np.abs(slope(loss, solution)).max() < 1e-3
    others = np.random.default_rng(0).normal(size=(20, len(solution))) / 10
    assert all(loss(solution) < loss(solution + other) for other in others)


def test_a_regression_on_text_is_the_minimum_of_its_loss() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(-1, 3, size=200)
    text = rng.normal(size=(200, 2)) + (labels == 1)[:, None]
    others = rng.normal(size=(200, 3)) * [1, 10, 0] + (labels == 0)[:, None] * [1, 0, 0]
    found = fit_regression(others, text, labels, 0.1)
    assert found.model is not None
    assert np.isfinite(found.ridge)
    taught = labels >= 0
    x, e, y = others[taught], text[taught], labels[taught]
    x = (x - x.mean(axis=0)) / np.maximum(x.std(axis=0), 1e-12)

    def loss(parameters: Floats) -> float:
        b, w, v = np.split(parameters.reshape(3, 6), [1, 4], axis=1)
        scores = x @ w.T + e @ v.T + b[:, 0]
        cross_entropy = np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(len(y)), y]
        return float(cross_entropy.sum() + (w**2).sum() / 0.2 + found.ridge / 2 * (v**2).sum())

    unscaled = np.repeat([1.0, (0.1 * found.ridge) ** -0.5], [3, 2])
    solution = np.column_stack([found.model.intercept_, found.model.coef_ * unscaled]).ravel()
    assert np.abs(slope(loss, solution)).max() < 1e-3


def test_a_ridge_is_chosen_by_what_is_held_out() -> None:
    held_out: list[int] = []
    losses = [5.0, 4.0, 3.0, 3.0, 1.0, 1.0, 1.0, 1.0, 1.0]

    def fold(fitted: NDArray[np.int64], held: NDArray[np.int64]):  # type: ignore[no-untyped-def]
        assert not set(fitted) & set(held)
        assert len(fitted) + len(held) == 53
        held_out.extend(held)
        yield from losses

    assert len(losses) == len(TEXT_RIDGES)
    assert ridge_by_folds(53, fold) == TEXT_RIDGES[2]  # the first of equals, and no further
    assert sorted(held_out) == list(range(53))
    assert ridge_by_folds(5, fold) == np.inf


@pytest.mark.parametrize("name", [pytest.param("rl_focal", marks=pytest.mark.slow), "rl_focal_sequential"])
def test_rl_focal_without_texts_is_what_it_is_on_data_that_have_none(name: str) -> None:
    """A question's words tell which of two models to believe."""
    data = topical(T=600, n_models=2)
    blind = policy_of(f"{name}-text", data)
    untold = policy_of(name, replace(data, questions=(), choices=()))
    expected = decide(untold, replace(data, questions=(), choices=()).test)
    found = decide(blind, data.test)
    assert (found.predictions == expected.predictions).all()
    assert (found.pools == expected.pools).all()
    assert accuracy(name, data) > (found.predictions == data.test.labels).mean() + 0.1
