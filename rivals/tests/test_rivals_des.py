"""Tests of dynamic ensemble selection: weights computed by hand, and data where neighbours must help."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from support.datasets import make_dataset, make_logits
from support.rival_data import CHOICES, accuracy, best_single, fitted, shuffled, worded

from rlfocal.base.errors import InputError
from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import decide
from rlfocal.methods import check_methods
from rlfocal_rivals.des import COMPETENCES


def placed(right: list[list[int]], C: int = 2) -> tuple[NDArray[np.float64], Dataset]:
    """Vectors (n, 1) 0, 1, 2, ... and train documents; `right` says which models answer slot 0, the label."""
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


def test_a_wrong_name_is_refused() -> None:
    with pytest.raises(InputError, match="unknown name 'knora'"):
        check_methods(["des:knora"], CHOICES)
    with pytest.raises(InputError, match="unknown method 'des'"):
        check_methods(["des"], CHOICES)


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


LEARNED = ("cascade", "frugalgpt", "dylan", "mutual_information_pool", "likelihood_pool", "outputs_knn")
BY_NAME = ("des:knora_e", "des:ola", "des:lwse", "pairwise_log_linear", "rl_focal_sequential")


@pytest.mark.slow
@pytest.mark.parametrize("name", [*LEARNED, *BY_NAME])
def test_shuffled_labels_teach_nothing(name: str) -> None:
    data = make_logits(2, T=1200, N=4)
    decided = decide(fitted(name, shuffled(data).train), data.test)
    assert accuracy(data.test, decided) <= best_single(data) + 2 * math.sqrt(0.25 / 600)
