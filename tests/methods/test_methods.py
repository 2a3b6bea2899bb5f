"""Reference policies against brute force and against the tie rules."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from support.datasets import datasets, make_dataset

from rlfocal.base.errors import InputError
from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import decide
from rlfocal.methods import check_methods, make_method


def decided_by(name: str, data: Dataset) -> list[int]:
    [policy] = make_method(name).fit(data.train, [0])
    return [int(slot) for slot in decide(policy, data.test).predictions]


@given(datasets())
def test_reference_policies_equal_their_definitions(data: Dataset) -> None:
    train, test = data.train, data.test
    right = [int((train.predictions[:, i] == train.labels).sum()) for i in range(len(data.models))]
    assert decided_by("best_single", data) == test.predictions[:, right.index(max(right))].tolist()
    votes = [Counter(row) for row in test.predictions.tolist()]
    assert decided_by("plurality", data) == [min(c for c in v if v[c] == max(v.values())) for v in votes]
    counts = Counter(train.labels.tolist())
    assert set(decided_by("constant_choice", data)) == {
        min(c for c in counts if counts[c] == max(counts.values()))
    }
    assert decided_by("soft_vote", data) == [int(np.mean(p, axis=0).argmax()) for p in test.probs]
    oracle = np.array(decided_by("oracle", data)) == test.labels
    assert oracle.tolist() == [
        label in row for label, row in zip(test.labels, test.predictions.tolist(), strict=True)
    ]


def test_answers_break_ties_by_the_first_model_of_the_pool() -> None:
    # m00 says slot 1, m01 says slot 0, m02 has no answer: one vote each, so m00's answer stands.
    probs = np.array([[[0.0, 1.0], [1.0, 0.0], [0.0, 0.0]]])
    data = make_dataset(np.repeat(probs, 2, axis=0) + 1e-300, np.array([0, 0]), 1)
    answers = Dataset(
        **{
            **vars(data),
            "kind": "answers",
            "predictions": np.array([[1, 0, -1]] * 2),
            "probs": probs.repeat(2, 0),
        }
    )
    assert decided_by("plurality", answers) == [1]
    assert decided_by("soft_vote", answers) == [1]


def test_unknown_names_are_refused_with_near_ones() -> None:
    data = make_dataset(np.full((4, 1, 2), 0.5), np.zeros(4, dtype=np.int64), n_train=2)
    with pytest.raises(InputError, match="unknown method 'soft_vot'; did you mean 'soft_vote'"):
        check_methods(["soft_vot"], data)
    with pytest.raises(InputError, match="unknown model 'b'"):
        check_methods(["single:b"], data)
    for wrong in ("single", "plurality:2", "rl_focal:3"):
        with pytest.raises(InputError, match=f"unknown method '{wrong}'"):
            check_methods([wrong], data)
