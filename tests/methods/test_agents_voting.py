"""Votes against a literal count."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlfocal.data.dataset import Kind
from rlfocal.statistics.votes import plurality, soft_vote


@given(st.integers(0, 2**32 - 1), st.sampled_from(["choices", "answers"]))
def test_plurality_counts_votes(seed: int, kind: Kind) -> None:
    rng = np.random.default_rng(seed)
    n_models = int(rng.integers(1, 7))
    predictions = rng.integers(-1, 4, size=(12, n_models))
    pools = rng.random((12, n_models)) < 0.6
    got = plurality(predictions, pools, kind)
    for row, pool, winner in zip(predictions, pools, got, strict=True):
        votes = [v for v in row[pool].tolist() if v >= 0]
        if not votes:
            assert winner == -1
            continue
        counts = Counter(votes)
        tied = [slot for slot, n in counts.items() if n == max(counts.values())]
        assert winner == (min(tied) if kind == "choices" else next(v for v in votes if v in tied))


def test_soft_vote_takes_the_highest_mean() -> None:
    probs = np.array([[[0.6, 0.4, 0.0], [0.1, 0.9, 0.0], [0.0, 0.0, 1.0]]])
    assert soft_vote(probs, np.array([True, True, False]), "choices") == [1]
    assert soft_vote(probs, np.array([True, False, False]), "choices") == [0]
    assert soft_vote(probs, np.array([True, True, True]), "choices") == [1]
    assert soft_vote(probs, np.array([False, False, False]), "choices") == [-1]


def test_soft_vote_ties() -> None:
    # Model 0 gave slot 1, model 1 gave slot 0: equally likely in sum.
    probs = np.array([[[0.0, 1.0], [1.0, 0.0]]])
    everyone = np.array([True, True])
    assert soft_vote(probs, everyone, "choices") == [0]
    assert soft_vote(probs, everyone, "answers") == [1]


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0], [1, 2, 0]])
def test_soft_vote_ties_do_not_hang_on_rounding(order: list[int]) -> None:
    shares = np.array([0.1, 0.2, 0.3])[order]  # 0.1 + 0.2 is not 0.3 in binary
    probs = np.zeros((1, 4, 2))
    probs[0, :3, 0] = shares
    probs[0, 3, 1] = 0.6
    assert soft_vote(probs, np.ones(4, dtype=bool), "answers") == [0]
