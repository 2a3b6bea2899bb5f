"""Each distinct answer of a pool's models is a candidate; a ranker compares them in pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from rlfocal.base.arrays import Bools, Floats, Ints
from rlfocal.data.calls import Answered, Calls
from rlfocal.data.dataset import Dataset
from rlfocal.statistics.votes import first_given


class Ranker(Protocol):
    """Scores s_ij: how much better candidate i of a document is than j."""

    def totals(self, said: Dataset, candidates: Bools) -> Floats:
        """(T, C) Σ_j (s_ij - s_ji) over a document's candidates (T, C)."""
        ...


@dataclass(frozen=True)
class Ranked:
    """Answers the candidate that wins its comparisons: the one with the highest total."""

    ranker: Ranker

    def decide(self, calls: Calls) -> Answered:
        said = calls.call_all()
        candidates = candidates_of(said)
        totals = np.where(candidates, self.ranker.totals(said, candidates).round(9), -np.inf)
        top = candidates & (totals == totals.max(axis=1, keepdims=True))
        winner = first_given(top, predicted(said)) if calls.kind == "answers" else top.argmax(axis=1)
        return Answered(np.where(candidates.any(axis=1), winner, -1).astype(np.int64))


def candidates_of(documents: Dataset) -> Bools:
    """(T, C) the slots that some model predicts."""
    return np.asarray(predicted(documents).any(axis=1))


def right_and_wrong(train: Dataset) -> Ints:
    """(P, 3) document, right candidate and wrong candidate, for all such pairs."""
    candidates, labels = candidates_of(train), train.labels
    has_right = (labels >= 0) & candidates[np.arange(len(labels)), np.maximum(labels, 0)]
    wrong = candidates & has_right[:, None] & (np.arange(candidates.shape[1]) != labels[:, None])
    row, slot = np.nonzero(wrong)
    return np.stack([row, labels[row], slot], axis=1).astype(np.int64)


def predicted(documents: Dataset) -> Bools:
    """(T, N, C) which slot each model predicts."""
    return np.asarray(documents.predictions[:, :, None] == np.arange(documents.probs.shape[2]))
