"""Predictions by normalised log-probs, as in lm-eval's acc_norm, acc_bytes and acc_mutual_info.

They are the twins of the SQL view `outcomes_norm`.
"""

from __future__ import annotations

import numpy as np

from rlfocal.base.arrays import Floats, Ints


def normalised_predictions(logprobs: Floats, lengths: Ints) -> Ints:
    """(T, N) the choice with the highest log-likelihood per character (or byte); ties: the lowest index.

    `logprobs` (T, N, C) are sums over a choice's tokens, -inf where a document has no such choice. `lengths`
    (T, C) are those of the choices' texts. A choice without text is chosen only if there is no other.
    """
    per_unit = np.full(logprobs.shape, -np.inf)
    np.divide(logprobs, lengths[:, None, :], out=per_unit, where=lengths[:, None, :] > 0)
    best: Ints = per_unit.argmax(axis=2)
    return best


def likelier_predictions(logprobs: Floats, unconditional: Floats) -> Ints:
    """(T, N) the choice whose likelihood the question raises by the largest factor; ties: the lowest index.

    `logprobs` and `unconditional` (T, N, C) are sums over a choice's tokens, with a prompt and without.
    Where `logprobs` is -inf, a document has no such choice.
    """
    gained = np.full(logprobs.shape, -np.inf)
    np.subtract(logprobs, unconditional, out=gained, where=np.isfinite(logprobs))
    best: Ints = gained.argmax(axis=2)
    return best
