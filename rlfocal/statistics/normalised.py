"""Predictions by normalised log-probs: the twin of the view `outcomes_norm`, for lm-eval's acc_norm,
acc_bytes and acc_mutual_info."""

from __future__ import annotations

import numpy as np

from rlfocal.base.arrays import Floats, Ints


def normalised_predictions(logprobs: Floats, lengths: Ints) -> Ints:
    """(T, N) the choice with the highest log-likelihood per character (or byte); ties to the lowest index.

    `logprobs` (T, N, C) are sums over a choice's tokens, -inf where a document has no such choice. `lengths`
    (T, C) are those of the choices' texts; a choice without text is never picked before another.
    """
    per_unit = np.full(logprobs.shape, -np.inf)
    np.divide(logprobs, lengths[:, None, :], out=per_unit, where=lengths[:, None, :] > 0)
    best: Ints = per_unit.argmax(axis=2)
    return best


def likelier_predictions(logprobs: Floats, unconditional: Floats) -> Ints:
    """(T, N) the choice whose likelihood the question raises by the largest factor; ties to the lowest index.

    `logprobs` and `unconditional` (T, N, C) are sums over a choice's tokens, after the prompt and after none.
    A document has no choice where `logprobs` is -inf.
    """
    gained = np.full(logprobs.shape, -np.inf)
    np.subtract(logprobs, unconditional, out=gained, where=np.isfinite(logprobs))
    best: Ints = gained.argmax(axis=2)
    return best
