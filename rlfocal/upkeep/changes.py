"""Decides whether answers changed by more than noise explains, between snapshots or when a model is asked
again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import bdtrc

from rlfocal.base.arrays import Floats

ChangeVerdict = Literal["changed", "unclear", "unchanged"]
N_SHUFFLES = 999


@dataclass(frozen=True)
class Limits:
    """The changes of a model's answers that noise explains. Larger changes count, unless chance explains
    them."""

    logprob: float
    """The tolerated difference of the log-prob of a one-token choice, in nats. For n tokens it is √n times as
    much."""
    moved: float
    """The tolerated share of choices whose log-prob differs by more than `logprob`."""
    flipped: float
    """The tolerated share of documents whose prediction changes."""
    texts: float
    """The tolerated share of sampled texts that differ."""


FULL_PRECISION_LIMITS = Limits(logprob=1e-3, moved=0.0, flipped=0.01, texts=0.1)
"""The limits for models that compute in float32.

Batching differently moves log-probs by some 1e-4. So ten times that is tolerated, and never more.
Probabilities that move by 1e-4 a token change one of 256 sampled tokens in 2.5 % of the texts.
"""
LOW_PRECISION_LIMITS = Limits(logprob=0.1, moved=0.01, flipped=0.05, texts=1.0)
"""The limits for models in bfloat16 or float16, and for quantised models. Rounding alone moves a log-prob by
hundredths, and changes some sampled token of nearly every text."""


def judge_share(n_changed: int, n: int, limit: float, level: float) -> ChangeVerdict:
    """Whether the `n_changed` of `n` answers exceed the share `limit` that noise explains. A larger share is
    "changed" if chance alone would give it with a probability below `level`; else it is "unclear"."""
    if n_changed <= limit * n:
        return "unchanged"
    return "changed" if float(bdtrc(n_changed - 1, n, limit)) < level else "unclear"


def shuffled_p_value(counts: Iterable[Sequence[Floats] | Floats]) -> float:
    """The p-value of a permutation test: how often shuffled old and new answers differ by at least as much.

    Each array (2, K) counts how often each of a document's K answers was given, before and now. The
    difference is the sum over documents of the absolute differences of the answers' shares.
    """
    rng, drawn = np.random.default_rng(0), np.zeros(N_SHUFFLES)
    observed = 0.0
    for old, new in counts:
        n_old, n_new = int(old.sum()), int(new.sum())
        if not n_old or not n_new:
            continue
        observed += float(np.abs(old / n_old - new / n_new).sum())
        total = (old + new).astype(np.int64)
        again = rng.multivariate_hypergeometric(total, n_old, size=N_SHUFFLES)
        drawn += np.abs(again / n_old - (total - again) / n_new).sum(axis=1)
    return float(1 + (drawn >= observed - 1e-9).sum()) / (1 + N_SHUFFLES)
