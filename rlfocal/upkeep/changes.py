"""Whether answers changed by more than noise explains, between snapshots or when a model is asked again."""

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
    """How much of a model's answers noise explains. A larger share counts as a change unless it is chance."""

    logprob: float
    """How much the log-prob of a one-token choice may differ, in nats; of n tokens, √n times as much."""
    moved: float
    """The share of choices whose log-prob may differ by more than `logprob`."""
    flipped: float
    """The share of documents that may get another prediction."""
    texts: float
    """The share of sampled texts that may differ."""


FULL_PRECISION_LIMITS = Limits(logprob=1e-3, moved=0.0, flipped=0.01, texts=0.1)
"""The limits for float32.

Other batches move log-probs by some 1e-4, so ten times that is allowed and never more. Probabilities that
move by 1e-4 a token change one of 256 sampled tokens in 2.5 % of the texts.
"""
LOW_PRECISION_LIMITS = Limits(logprob=0.1, moved=0.01, flipped=0.05, texts=1.0)
"""The limits for bfloat16, float16 and quantised models.

Rounding alone moves a log-prob by hundredths, and changes some sampled token of nearly every text.
"""


def judge_share(n_changed: int, n: int, limit: float, level: float) -> ChangeVerdict:
    """Whether `n_changed` of `n` answers exceed the share `limit` that noise explains.

    `changed`: by chance alone they would less often than `level`. `unclear`: they do, but chance explains it.
    """
    if n_changed <= limit * n:
        return "unchanged"
    return "changed" if float(bdtrc(n_changed - 1, n, limit)) < level else "unclear"


def shuffled_p_value(counts: Iterable[Sequence[Floats] | Floats]) -> float:
    """How often old and new answers to each document, shuffled, differ by at least as much in all.

    Each array (2, K) has how often each of a document's K answers was given, before and now. The difference
    is the sum over documents of the absolute differences of their shares.
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
