"""LLM-Blender's PairRanker (Jiang et al., 2023): candidate answers compared in pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rlfocal.calls import Answered, Calls
from rlfocal.dataset import Dataset
from rlfocal.methods.registry import Entry, register
from rlfocal.methods.spaces import Range
from rlfocal.statistics.votes import first_given

if TYPE_CHECKING:
    from rlfocal.methods.fusing._pair_encoder import PairEncoder

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

_LEAST = 1e-6  # lower bound on probabilities, so that their logarithm is finite


@register(
    Entry(
        "llm_blender",
        "all",
        "the candidate answer that wins its comparisons with the others, by a PairRanker",
        is_default=False,
        source="LLM-Blender (arXiv 2306.02561)",
        differs="the ranker is a logistic regression on how candidates' support and probabilities differ; "
        "with `model=<encoder>` a cross-encoder on question and answers. Trained on right against wrong "
        "answers. No GenFuser: it writes a new text from candidates' texts, which are not stored",
        space={"inverse_ridge": Range(1e-4, 100.0, log=True)},
    )
)
@dataclass(frozen=True)
class LLMBlender:
    """Each distinct answer of the models is a candidate; s_ij scores how much better i is than j.

    Trained by binary cross-entropy of σ(s_ij) on pairs of a right and a wrong candidate of one document, in
    both orders. Answers the candidate with the highest Σ_j (s_ij - s_ji), the paper's MaxLogits.
    """

    model: str = ""
    """A transformers encoder, by directory or hub name, which reads the texts; "": features alone."""
    inverse_ridge: float = 1.0
    """scikit-learn's C, of the ranker that reads features alone."""
    epochs: int = 1
    batch: int = 16
    learning_rate: float = 1e-5
    seed: int = 0
    """Seed of the encoder's training."""
    seeded = False

    def recipe(self, n_train: int) -> str:
        return "1"

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[Blended]:
        """Raises InputError for a model that cannot be loaded, or texts that are missing."""
        if not self.model:
            return [Blended(fit_features(train, self.inverse_ridge))]
        from rlfocal.methods.fusing._pair_encoder import fit_pair_encoder

        pairs = right_and_wrong(train)
        ranker = fit_pair_encoder(
            self.model,
            train,
            pairs,
            epochs=self.epochs,
            batch=self.batch,
            learning_rate=self.learning_rate,
            seed=self.seed,
        )
        return [Blended(ranker)]


@dataclass(frozen=True)
class Blended:
    """Answers the candidate that the ranker puts first."""

    ranker: FeatureRanker | PairEncoder

    def decide(self, calls: Calls) -> Answered:
        said = calls.call_all()
        candidates = candidates_of(said)
        totals = np.where(candidates, self.ranker.totals(said, candidates).round(9), -np.inf)
        top = candidates & (totals == totals.max(axis=1, keepdims=True))
        winner = first_given(top, _predicted(said)) if calls.kind == "answers" else top.argmax(axis=1)
        return Answered(np.where(candidates.any(axis=1), winner, -1).astype(np.int64))


@dataclass(frozen=True)
class FeatureRanker:
    """s_ij = w · (f_i - f_j), so that the candidate with the highest w · f wins MaxLogits."""

    weights: Floats

    def totals(self, said: Dataset, candidates: Mask) -> Floats:
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
    votes = _predicted(documents).astype(np.float64).transpose(0, 2, 1)
    probs = documents.probs.transpose(0, 2, 1)
    shared = np.stack([votes.mean(axis=2), probs.mean(axis=2), probs.max(axis=2)], axis=2)
    return np.concatenate([shared, votes, np.log(np.maximum(probs, _LEAST))], axis=2)


def candidates_of(documents: Dataset) -> Mask:
    """(T, C) the slots that some model predicts."""
    return np.asarray(_predicted(documents).any(axis=1))


def right_and_wrong(train: Dataset) -> NDArray[np.int64]:
    """(P, 3) document, right candidate and wrong candidate, for all such pairs."""
    candidates, labels = candidates_of(train), train.labels
    has_right = (labels >= 0) & candidates[np.arange(len(labels)), np.maximum(labels, 0)]
    wrong = candidates & has_right[:, None] & (np.arange(candidates.shape[1]) != labels[:, None])
    row, slot = np.nonzero(wrong)
    return np.stack([row, labels[row], slot], axis=1).astype(np.int64)


def _predicted(documents: Dataset) -> Mask:
    """(T, N, C)"""
    return np.asarray(documents.predictions[:, :, None] == np.arange(documents.probs.shape[2]))
