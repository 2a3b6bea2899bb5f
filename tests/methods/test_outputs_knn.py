"""A selector by neighbours: by text, by what models said, by both."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.datasets import make_dataset, make_logits, sampled
from support.rival_data import CHOICES, accuracy, fitted, telling, within, worded

from rlfocal.base.errors import InputError
from rlfocal.data.calls import Calls
from rlfocal.data.policy import Budget, decide
from rlfocal.methods.neighbours import TEXT_WEIGHT, Neighbours, alike, fit_likeness, local_mean
from rlfocal.methods.outputs_knn import OutputsKnn, Selector, _best


def test_a_wrong_neighbourhood_is_refused() -> None:
    with pytest.raises(InputError, match="unknown neighbours 'txt'"):
        fitted("outputs_knn", CHOICES.train, neighbours="txt")


def test_likeness_by_hand() -> None:
    data = make_dataset(np.array([[[0.36, 0.64], [0.5, 0.5]]] * 2), np.zeros(2, dtype=np.int64), n_train=1)
    data = replace(data, questions=("red red", "red"))
    outputs = fit_likeness("outputs", "tfidf", data)
    assert outputs.vectors(data, [0])[0] == pytest.approx([0.6, 0.8])
    assert outputs.vectors(data, [0, 1])[0] == pytest.approx(np.sqrt([0.18, 0.32, 0.25, 0.25]))
    text, both = fit_likeness("text", "tfidf", data), fit_likeness("both", "tfidf", data)
    assert (both.vectors(data, [0])[:, 2:] == TEXT_WEIGHT * text.vectors(data, [0])).all()
    assert both.vectors(data, [0])[:, :2] == pytest.approx(outputs.vectors(data, [0]))
    wide = replace(data, probs=np.pad(data.probs, ((0, 0), (0, 0), (0, 3))))
    assert outputs.vectors(wide, [0, 1]) == pytest.approx(outputs.vectors(data, [0, 1]))
    narrow = replace(data, probs=data.probs[..., :1])
    assert outputs.vectors(narrow, [0])[0] == pytest.approx([0.6, 0.0])


def test_local_means_are_over_the_nearest() -> None:
    values = np.array([[1.0, 0.0], [0.0, 0.0], [1.0, 1.0]])
    found = Neighbours(np.array([[0, 2, 1], [1, 2, 0]]), np.ones((2, 3)))
    assert local_mean(found, values, 2).tolist() == [[1.0, 0.5], [0.5, 0.5]]
    nobody = Neighbours(np.empty((2, 0), dtype=np.int64), np.empty((2, 0)))
    assert local_mean(nobody, values, 2) == pytest.approx(np.array([[2 / 3, 1 / 3]] * 2))
    line = np.arange(4, dtype=np.float64)[:, None]
    assert alike(line, line, 2, others=True).at.tolist() == [[1, 2], [0, 2], [1, 3], [2, 1]]


def test_a_selector_by_text_asks_whom_the_text_names() -> None:
    data = worded()
    by_text = decide(fitted("outputs_knn", data.train, neighbours="text"), data.test)
    assert accuracy(data.test, by_text) >= 0.98
    assert by_text.pools[:, 0].all()
    assert by_text.pools.sum(axis=1).mean() == pytest.approx(1.5, abs=0.06)
    # By m00's outputs it learns only that somebody else must be asked.
    by_outputs = decide(fitted("outputs_knn", data.train, neighbours="outputs"), data.test)
    assert accuracy(data.test, by_outputs) == pytest.approx(0.75, abs=0.06)
    tuned = decide(fitted("outputs_knn", data.train), data.test)
    assert accuracy(data.test, tuned) >= 0.98


def test_a_selector_by_outputs_asks_where_the_first_is_unsure() -> None:
    data = telling(share=0.6)
    policy = fitted("outputs_knn", data.train)
    decided = decide(policy, data.test)
    assert accuracy(data.test, decided) >= data.test.correct[:, :2].any(axis=1).mean() - 0.02
    assert decided.pools.sum(axis=1).mean() == pytest.approx(1.4, abs=0.06)
    assert decided.rounds is not None
    assert decided.rounds.max() == 2
    one = within(policy, Budget(1))
    assert one is not None
    assert (decide(one, data.test).pools.sum(axis=1) == 1).all()


def test_a_selectors_calls_rise_with_its_budget() -> None:
    data = make_logits(9, T=2000, N=4)
    policy = fitted("outputs_knn", data.train)
    for budget in (1.1, 1.2, 1.3):
        kept = within(policy, Budget(budget))
        assert kept is not None
        # A little less than the budget, as many documents have the same gain.
        assert budget - 0.1 < decide(kept, data.test).pools.sum(axis=1).mean() < budget + 0.03


def test_a_selector_finds_by_agreement_among_free_answers() -> None:
    """Where m00's passes are split, m01 knows; else m00 does."""
    agreed, split = ("aaa", "bbb"), ("abb", "ccc")
    data = sampled(*[agreed, split] * 60, gold=["a", "c"] * 60)
    decided = decide(fitted("outputs_knn", data.train), data.test)
    assert accuracy(data.test, decided) == 1.0
    assert decided.pools.sum(axis=1).tolist() == [1, 2] * 30


def test_dearer_models_are_asked_where_they_help_most() -> None:
    values = np.array([[0.5, 0.7, 0.75], [0.5, 0.5, 0.9], [0.5, 0.5, 0.5]])
    assert _best(values, None).tolist() == [2, 2, 0]
    assert _best(values, np.array([0.0, 0.1, 0.2])).tolist() == [1, 2, 0]
    assert _best(values, np.array([0.0, 0.3, np.inf])).tolist() == [0, 0, 0]
    data = replace(make_logits(9, T=600, N=4), prices=np.array([1.0, 1.0, 5.0, 2.0]))
    [policy] = OutputsKnn().fit(data.train, [0])
    assert policy.probes == (3,)
    for amount in (2.0, 2.3, 3.0, 100.0):
        kept = policy.within(Budget(amount, "cents"))
        assert isinstance(kept, Selector)
        # On train every document is left out of its own neighbours.
        extra = np.array([0.0, *data.prices[list(policy.more)]])
        spent = 2 + extra[_best(policy.value.left_out, kept.tolls)].mean()
        assert amount == 100.0 or amount - 0.2 <= spent <= amount + 1e-6
    assert policy.within(Budget(1.9, "cents")) is None
    partly = replace(policy, prices=np.array([1.0, 1.0, np.nan, 2.0]))
    kept = partly.within(Budget(100.0, "cents"))
    assert kept is not None
    assert not decide(kept, data.test).pools[:, 2].any()


def test_a_train_document_is_no_neighbour_of_its_own() -> None:
    data = make_logits(10, T=60, N=3)
    [policy] = OutputsKnn("outputs").fit(data.train, [0])
    said = Calls(data.train).call(np.arange(3) == policy.probes[0])
    vectors = policy.value.likeness.vectors(said, policy.probes)
    at = int(np.argmin(np.abs(vectors - vectors[7]).sum(axis=1) + 9 * (np.arange(30) == 7)))
    assert at != 7
    others = np.argsort(((vectors - vectors[7]) ** 2).sum(axis=1).round(9), kind="stable")
    nearest = [i for i in others if i != 7][: policy.value.k]
    assert policy.value.left_out[7] == pytest.approx(policy.value.right[nearest].mean(axis=0))
