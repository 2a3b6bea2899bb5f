"""Each distinct answer of the models is a candidate; a ranker compares them in pairs, by who gave them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from rlfocal.base.arrays import Bools, Floats, Ints
from rlfocal.data.calls import Answered, Calls
from rlfocal.data.dataset import Dataset
from rlfocal.methods.checking import Range
from rlfocal.methods.registry import Entry, MethodBase, register
from rlfocal.statistics.votes import first_given

_LEAST = 1e-6  # lower bound on probabilities, so that their logarithm is finite


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


@register(
    Entry(
        "pairwise_log_linear",
        "all",
        "the candidate answer that wins its comparisons, by a logistic regression on who gave it how surely",
        is_default=False,
        source="ours, after LLM-Blender's PairRanker (arXiv 2306.02561)",
        differs="reads no text: votes and log-probs alone",
        reads=("outputs",),
        with_task="fitted per task",
        space={
            "inverse_ridge": Range(1e-4, 100.0, log=True),
        },
    )
)
@dataclass(frozen=True)
class PairwiseLogLinear(MethodBase):
    """s_ij = w · (f_i - f_j), fitted by binary cross-entropy of σ(s_ij) on pairs of a right and a wrong
    candidate of one document, in both orders."""

    inverse_ridge: float = 1.0
    """scikit-learn's C"""

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[Ranked]:
        return [Ranked(fit_features(train, self.inverse_ridge))]


@dataclass(frozen=True)
class FeatureRanker:
    """s_ij = w · (f_i - f_j), so that the candidate with the highest w · f wins."""

    weights: Floats

    def totals(self, said: Dataset, candidates: Bools) -> Floats:
        """(T, C) Σ_j (s_ij - s_ji) over a document's candidates (T, C)."""
        score = features(said) @ self.weights
        n = candidates.sum(axis=1, keepdims=True)
        totals: Floats = 2 * (n * score - np.where(candidates, score, 0.0).sum(axis=1, keepdims=True))
        return totals


def fit_features(train: Dataset, inverse_ridge: float = 1.0) -> FeatureRanker:
    """Logistic regression on differences of features, in units of their standard deviation."""
    from sklearn.linear_model import LogisticRegression

    found = features(train)
    row, right, wrong = right_and_wrong(train).T
    difference = found[row, right] - found[row, wrong]
    scale = difference.std(axis=0) if len(row) else np.zeros(found.shape[2])
    scale = np.where(scale > 1e-12, scale, 1.0)
    if not len(row):
        # Nothing to learn from: rank by how many models give a candidate.
        return FeatureRanker(np.eye(found.shape[2])[0])
    x = np.vstack([difference, -difference]) / scale
    wins = np.arange(len(x)) < len(difference)
    regression = LogisticRegression(C=inverse_ridge, fit_intercept=False, tol=1e-8, max_iter=10_000)
    fitted = regression.fit(x, wins)
    return FeatureRanker(fitted.coef_[0] / scale)


def features(documents: Dataset) -> Floats:
    """(T, C, 3 + 2N) for every slot: the share of models that predict it, its mean and its highest
    probability; then per model whether it predicts the slot, and its log-probability.
    """
    votes = predicted(documents).astype(np.float64).transpose(0, 2, 1)
    probs = documents.probs.transpose(0, 2, 1)
    shared = np.stack([votes.mean(axis=2), probs.mean(axis=2), probs.max(axis=2)], axis=2)
    return np.concatenate([shared, votes, np.log(np.maximum(probs, _LEAST))], axis=2)
