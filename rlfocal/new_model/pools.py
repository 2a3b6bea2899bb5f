"""The best pools of each size with and without a model, and what else it brings."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import compress

import numpy as np

from rlfocal.base.arrays import Bools, Floats, Ints
from rlfocal.new_model.copies import PairedAnswers
from rlfocal.report.pools import largest_enumerable
from rlfocal.statistics.diversity import every_pool, plurality_accuracy
from rlfocal.statistics.intervals import Difference, paired_bootstrap
from rlfocal.statistics.votes import plurality


@dataclass(frozen=True)
class Pool:
    """Models, and how often their plurality is right."""

    models: tuple[str, ...]
    train: float
    """Accuracy on train documents, by which it was chosen."""
    test: float | None
    """None without test documents."""


@dataclass(frozen=True)
class BestPools:
    """The best pools of one size on train documents."""

    size: int
    without: Pool | None
    """None if there are too few other models."""
    with_it: Pool
    gain: Difference | None
    """On test documents: the accuracy with it minus that without it; None without test documents or other
    pool."""

    @property
    def enters(self) -> bool:
        """Whether the best pool of this size includes it."""
        return self.without is None or self.with_it.train > self.without.train

    @property
    def gains(self) -> bool:
        """Whether the best pool of this size is better for it on test documents: its interval excludes 0."""
        return self.enters and self.gain is not None and self.gain.low > 0


@dataclass(frozen=True)
class Tried:
    """Every pool up to a size on train documents."""

    said: PairedAnswers
    pools: Bools
    """(P, N) smaller pools first, then in the order of names."""
    accuracies: Floats
    """(P,) of their pluralities."""

    @cached_property
    def sizes(self) -> Ints:
        """(P,)"""
        return np.asarray(self.pools.sum(axis=1))

    @property
    def has_it(self) -> Bools:
        """(P,)"""
        return self.pools[:, self.said.at]

    def best(self, allowed: Bools) -> int | None:
        """The place of the best allowed pool; ties: the first."""
        return int(np.where(allowed, self.accuracies, -1.0).argmax()) if allowed.any() else None

    def right(self, at: int) -> Bools:
        """(T,) whether the plurality of the pool at this place is right."""
        said = self.said
        winner = plurality(said.predictions, self.pools[at], said.kind)
        return np.asarray((winner == said.labels) & (said.labels >= 0))

    def pool(self, at: int) -> Pool:
        """The pool at this place."""
        test = self.right(at)[~self.said.is_train]
        names = tuple(compress(self.said.models, self.pools[at]))
        return Pool(names, float(self.accuracies[at]), float(test.mean()) if len(test) else None)


def every_pool_of(said: PairedAnswers) -> Tried | None:
    """Every pool of up to as many models as are quick to try; None if there is no train document."""
    n, at = len(said.models), said.is_train
    if not at.any():
        return None
    pools = np.vstack([np.eye(n, dtype=np.bool_), every_pool(n, min(largest_enumerable(n), n))])
    return Tried(said, pools, plurality_accuracy(said.predictions[at], said.labels[at], pools, said.kind))


def best_pools(tried: Tried) -> tuple[BestPools, ...]:
    """For each size, the smallest first."""
    found = []
    for size in range(1, int(tried.sizes.max()) + 1):
        with_it = tried.best((tried.sizes == size) & tried.has_it)
        without = tried.best((tried.sizes == size) & ~tried.has_it)
        assert with_it is not None
        gain = None if without is None else _gain(tried, with_it, without)
        other = None if without is None else tried.pool(without)
        found.append(BestPools(size, other, tried.pool(with_it), gain))
    return tuple(found)


def _gain(tried: Tried, with_it: int, without: int) -> Difference | None:
    hits = [tried.right(at)[None, ~tried.said.is_train].astype(np.float64) for at in (with_it, without)]
    return paired_bootstrap(*hits) if hits[0].size else None


@dataclass(frozen=True)
class Score:
    """Accuracy on the documents of one task, or of all (`*`)."""

    task: str
    n: int
    accuracy: float
    stderr: float | None
    """None for a single document."""


@dataclass(frozen=True)
class Pair:
    """The new model and another on the documents both answered, by `pairwise_diversity` and `agreement`."""

    model: str
    n: int
    disagreement: float
    q_statistic: float | None
    double_fault: float
    focal_diversity: float | None
    same_error: float | None


@dataclass(frozen=True)
class Agents:
    """One of RL-Focal's methods with the pool before or after: its means over seeds in `evaluations`."""

    method: str
    has_it: bool
    seeds: int
    n: int
    accuracy: float
    mean_pool_size: float
    cost: float | None
    """Cents per 1,000 queries; None if a price is unknown."""


@dataclass(frozen=True)
class Standing:
    """The model on one benchmark, beside the others."""

    benchmark: str
    score: Score
    rank: int
    """1: the most accurate model of the benchmark."""
    n_models: int
    tasks: tuple[Score, ...]
    pairs: tuple[Pair, ...]
    pools: tuple[BestPools, ...]
    agents: tuple[Agents, ...]


@dataclass(frozen=True)
class Price:
    """What the model costs to run; None: not known."""

    params_b: float | None
    active_params_b: float | None
    gpus: int
    """GPUs that it is split over; 0 for a service's."""
    price: float | None
    """Cents per 1,000 queries."""
    price_input: float | None
    price_output: float | None
    """Cents per million tokens."""
    n_docs: int
    seconds: float
    """Seconds that its engine took to answer so many documents."""
    paid: float | None = None
    """Cents that its service was paid for them; None where nothing is paid."""
