"""Whether a model's first documents rule out that it enters any best pool of its benchmark.

Its gain for the best pools of a size is the accuracy of the best one with it minus that of the best one
without it, both chosen and evaluated on the train documents so far. A task with few documents is shrunk
towards the mean of all tasks, as in `hier_shrink`, and has its weight in the whole benchmark:

    b_t = (n_t d_t + s d) / (n_t + s),    gain = sum_t W_t b_t,

where d_t is the mean difference on the n_t documents of task t so far, d that on all, s = 24 and W_t the
task's share of the benchmark. The gain is linear in the d_t, so its variance is the sum of theirs. Choosing
the pools on these same documents flatters the model more than the others, so it is ruled out too late rather
than too early.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist

import numpy as np

from rlfocal.base.arrays import Floats, Texts
from rlfocal.methods.routers.hier_shrink import HierShrink
from rlfocal.new_model.paired_answers import PairedAnswers
from rlfocal.new_model.pools import Tried, every_pool_of

LEVEL = 0.99
"""The confidence level of the interval; it is looked at a few times only."""
FIRST = 100
"""Documents of each task in the first look; each further one has twice as many."""


@dataclass(frozen=True)
class Gain:
    """What a model adds to the best pools of one size, as a fraction, with its interval."""

    benchmark: str
    size: int
    mean: float
    low: float
    high: float

    @property
    def is_ruled_out(self) -> bool:
        return self.high < 0


def gains(said: PairedAnswers, n_whole: Mapping[str, int]) -> list[Gain]:
    """For each size up to that of the best pool without it, as larger ones are no better; compared with the
    best pool of at most that size. Leaves out sizes at which the model changes nothing, because its best pool
    is right exactly where a smaller one without it is.

    `n_whole`: documents of each task. Empty where there are no other models or no train documents.
    """
    tried = every_pool_of(said)
    if tried is None or (best := tried.best(~tried.has_it)) is None:
        return []
    found = (_gain(tried, size, n_whole) for size in range(1, int(tried.sizes[best]) + 1))
    return [gain for gain in found if gain is not None]


def explain_exclusion(found: Sequence[Gain]) -> str | None:
    """Why the rest of the documents is not worth its cost, in one sentence; None if it may be."""
    if not found or not all(gain.is_ruled_out for gain in found):
        return None
    closest = max(found, key=lambda gain: gain.high)
    return (
        f"no best pool includes it: even at size {closest.size} on {closest.benchmark}, where it is closest, "
        f"the best pool with it is {-100 * closest.mean:.1f} points below the one without it ({LEVEL:.0%} "
        f"interval {-100 * closest.high:.1f} to {-100 * closest.low:.1f})"
    )


def shrunk_mean(values: Floats, tasks: Texts, n_whole: Mapping[str, int]) -> tuple[float, float]:
    """(mean, standard error) over a whole benchmark, from its first documents (T,), as described above.

    Variances are pooled over tasks, so that a task with a few equal values does not look certain.
    """
    strength = HierShrink().strength
    names, at, counts = np.unique(tasks, return_inverse=True, return_counts=True)
    means = np.bincount(at, values) / counts
    weights = np.array([n_whole[name] for name in names.tolist()], dtype=np.float64)
    weights /= weights.sum()
    own = weights * counts / (counts + strength)
    # What shrinking takes from the tasks goes to the mean of all documents.
    coefficients = own + (1 - own.sum()) * counts / counts.sum()
    within = values - means[at]
    variance = float((within**2).sum() / max(len(values) - len(names), 1))
    return float(coefficients @ means), sqrt(variance * float((coefficients**2 / counts).sum()))


def _gain(tried: Tried, size: int, n_whole: Mapping[str, int]) -> Gain | None:
    """None if the model's best pool is right exactly where a smaller one without it is."""
    said, sizes = tried.said, tried.sizes
    with_it = tried.best((sizes == size) & tried.has_it)
    without = tried.best((sizes <= size) & ~tried.has_it)
    assert with_it is not None
    assert without is not None
    right = [tried.right(at)[said.is_train].astype(np.float64) for at in (with_it, without)]
    if sizes[without] < size and (right[0] == right[1]).all():
        return None
    mean, stderr = shrunk_mean(right[0] - right[1], said.tasks[said.is_train], n_whole)
    reach = NormalDist().inv_cdf((1 + LEVEL) / 2) * stderr
    return Gain(said.benchmark, size, mean, mean - reach, mean + reach)
