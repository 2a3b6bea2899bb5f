"""Selectors by neighbours: by text, by what models said, by both."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from support.datasets import make_dataset, make_logits, sampled
from support.rival_data import CHOICES, accuracy, best_single, fitted, telling, within

from rlfocal.base.errors import InputError
from rlfocal.data.calls import Calls
from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import Budget, decide
from rlfocal.methods import check_methods
from rlfocal.methods.neighbours import Neighbours
from rlfocal.methods.neighbours._competence import COMPETENCES
from rlfocal.methods.neighbours._likeness import TEXT_WEIGHT, alike, fit_likeness, local_mean
from rlfocal.methods.neighbours.outputs_knn import OutputsKnn, Selector, _best

NAMES = tuple(COMPETENCES)


def placed(right: list[list[int]], C: int = 2) -> tuple[NDArray[np.float64], Dataset]:
    """Train documents at 0, 1, 2, ... on a line, and which models are right there; slot 0 is."""
    at = np.array(right)
    probs = np.where(np.arange(C) == np.where(at, 0, 1)[..., None], 0.9, 0.1 / (C - 1))
    made = make_dataset(probs, np.zeros(len(right), dtype=np.int64), n_train=len(right))
    return np.arange(len(right))[:, None].astype(float), made


def weights(name: str, right: list[list[int]], k: int, at: float = -0.1, scale: float = 1.0) -> list[float]:
    known, train = placed(right)
    competence = COMPETENCES[name].fit(known * scale, train, k)
    found = competence(np.array([[at * scale]]))
    assert found.shape == (1, len(train.models))
    return [round(float(w), 9) for w in found[0]]


THREE = [[1, 1, 0], [1, 0, 0], [0, 1, 1], [0, 0, 1], [0, 0, 1]]


def test_knora_e_by_hand() -> None:
    # Nobody is right on the three nearest; on the two nearest m00 is.
    assert weights("knora_e", THREE, 3) == [1.0, 0.0, 0.0]
    assert weights("knora_e", THREE, 1) == [0.5, 0.5, 0.0]
    # From the other end: m02 on all three.
    assert weights("knora_e", THREE, 3, at=4.1) == [0.0, 0.0, 1.0]
    # Nobody is right on the nearest: everybody.
    assert weights("knora_e", [[0, 0], [1, 1]], 2) == [0.5, 0.5]


def test_knora_u_by_hand() -> None:
    assert weights("knora_u", THREE, 3) == [0.4, 0.4, 0.2]
    assert weights("knora_u", THREE, 5) == pytest.approx([2 / 7, 2 / 7, 3 / 7])
    assert weights("knora_u", [[0, 0], [0, 0]], 2) == [0.5, 0.5]


def test_ola_takes_the_first_of_the_best() -> None:
    assert weights("ola", THREE, 3) == [1.0, 0.0, 0.0]
    assert weights("ola", THREE, 5) == [0.0, 0.0, 1.0]


def test_dews_weighs_by_the_probability_of_the_right_slot() -> None:
    # Means of the three nearest's right slots: 19/30, 19/30 and 11/30; relative to the best: 1, 1, 11/19.
    expected = np.exp([1, 1, 11 / 19])
    assert weights("dews", THREE, 3) == pytest.approx(expected / expected.sum())
    # m01's are 0.1 of 0.9: less than half the best, and so nothing.
    assert weights("dews", [[1, 0], [1, 0]], 2) == [1.0, 0.0]


def test_lwse_takes_the_combination_nearest_to_the_labels() -> None:
    assert weights("lwse", [[1, 0, 0], [1, 0, 0], [1, 0, 1]], 3) == [1.0, 0.0, 0.0]


def test_des_p_takes_who_is_better_than_chance() -> None:
    assert weights("des_p", THREE, 3) == [0.5, 0.5, 0.0]  # 2/3, 2/3 and 1/3, of two choices
    # What models said makes no neighbours here, however far apart it is.
    assert weights("des_p", THREE, 3, scale=0.01) == [0.5, 0.5, 0.0]
    assert weights("des_p", THREE, 3, at=4.1, scale=0.01) == [0.0, 0.0, 1.0]
    known, train = placed(THREE, C=4)
    found = COMPETENCES["des_p"].fit(known, train, 3)(np.array([[-0.1]]))
    assert found[0] == pytest.approx([1 / 3] * 3)


def test_a_wrong_name_or_neighbourhood_is_refused() -> None:
    with pytest.raises(InputError, match="unknown name 'knora'"):
        check_methods(["des:knora"], CHOICES)
    with pytest.raises(InputError, match="unknown method 'des'"):
        check_methods(["des"], CHOICES)
    for name in ("des:ola", "outputs_knn"):
        with pytest.raises(InputError, match="unknown neighbours 'txt'"):
            fitted(name, CHOICES.train, neighbours="txt")


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


# Data where neighbours tell


def worded(T: int = 1200, seed: int = 0) -> Dataset:
    """A colour of the question tells which of three models knows; the others are undecided.

    What m00 says, which knows most colours, does not tell which other model does.
    """
    rng = np.random.default_rng(seed)
    colour = rng.choice(4, T, p=[0.25, 0.25, 0.25, 0.25])
    labels = rng.integers(0, 4, T)
    knows = np.stack([colour <= 1, colour == 2, colour == 3], axis=1)
    top = np.where(knows, 0.9, 0.28)
    slot = np.where(knows, labels[:, None], (labels[:, None] + rng.integers(1, 4, (T, 3))) % 4)
    probs = np.where(np.arange(4) == slot[..., None], top[..., None], (1 - top[..., None]) / 3)
    words = np.array(["red", "orange", "blue", "green"])[colour]
    questions = tuple(f"what is a {word} thing of kind {i % 11}" for i, word in enumerate(words))
    return replace(make_dataset(probs, labels, n_train=T // 2), questions=questions)


@pytest.mark.parametrize("name", ["des:knora_e", "des:ola", "des:lwse"])
def test_des_wins_where_the_text_tells_who_knows(name: str) -> None:
    data = worded()
    decided = decide(fitted(name, data.train, neighbours="text"), data.test)
    assert accuracy(data.test, decided) >= 0.98
    assert best_single(data) < 0.6
    assert decided.pools.sum(axis=1).mean() < 1.1
    # Asked of all models, what they say tells it, too; every call is counted.
    decided = decide(fitted(name, data.train, neighbours="both"), data.test)
    assert accuracy(data.test, decided) >= 0.98
    assert decided.pools.all()


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
