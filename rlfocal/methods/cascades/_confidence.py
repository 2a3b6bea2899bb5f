"""How confident a model is in its answer, from its own output alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlfocal.base.arrays import Bools, Floats
from rlfocal.data.dataset import Dataset

_LEAST = 1e-6  # bound on probabilities, so that log-odds are finite


def top_probability_of(documents: Dataset, model: int) -> Floats:
    """(T,) a model's probability (or share of passes) for its own answer; 0 without an answer."""
    said = documents.predictions[:, model]
    of_answer = documents.probs[np.arange(len(said)), model, np.maximum(said, 0)]
    return np.where(said >= 0, of_answer, 0.0)


def margin_of(documents: Dataset, model: int) -> Floats:
    """(T,) by how much the likeliest slot's probability exceeds the next."""
    ranked = np.sort(documents.probs[:, model], axis=1)
    return ranked[:, -1] - ranked[:, -2] if ranked.shape[1] > 1 else ranked[:, -1]


def entropy_of(documents: Dataset, model: int) -> Floats:
    """(T,) entropy of a model's distribution, in nats."""
    p = documents.probs[:, model]
    nats: Floats = -(p * np.log(np.maximum(p, 1e-300))).sum(axis=1)
    return nats


def log_odds(probability: Floats) -> Floats:
    """Log-odds of probabilities, clipped away from 0 and 1."""
    kept = np.clip(probability, _LEAST, 1 - _LEAST)
    odds: Floats = np.log(kept) - np.log1p(-kept)
    return odds


@dataclass(frozen=True)
class Logistic:
    """σ(w · x + b)"""

    weights: Floats
    bias: float

    def __call__(self, x: Floats) -> Floats:
        """(T,) probabilities, from x (T, D)."""
        from scipy.special import expit

        probability: Floats = expit(x @ self.weights + self.bias)
        return probability


def fit_logistic(x: Floats, right: Bools, inverse_ridge: float = 1.0) -> Logistic:
    """Logistic regression of being right (T,) on standardised x (T, D).

    If all are right or all wrong: the constant (n right + 1) / (n + 2).
    """
    from sklearn.linear_model import LogisticRegression

    if right.all() or not right.any():
        share = (right.sum() + 1) / (len(right) + 2)
        return Logistic(np.zeros(x.shape[1]), float(log_odds(np.array(share))))
    mean, scale = x.mean(axis=0), x.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    fitted = LogisticRegression(C=inverse_ridge, tol=1e-8, max_iter=10_000).fit((x - mean) / scale, right)
    weights = fitted.coef_[0] / scale
    return Logistic(weights, float(fitted.intercept_[0] - weights @ mean))
