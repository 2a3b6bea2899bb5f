"""Diversity metrics: formulas on counts, the same for numpy arrays and torch tensors.

A metric is a function under `@metric`: the Decider can then observe it, the study `diversity` tries it, and
`pool_diversity` returns it. Its SQL twin is in `warehouse/sql/statistics.sql`. An undefined value is NaN: its
denominator is 0, and so is its numerator. The paper's sections 1.3 and 1.7 have the definitions.
"""

# mypy: disable-error-code="no-any-return"
# No type describes the operators that both libraries share.

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from math import log
from typing import Any, Generic, Protocol, TypeVar

Array = TypeVar("Array", bound=Any)
"""A numpy array or a torch tensor."""


@dataclass(frozen=True)
class PairCounts(Generic[Array]):
    """Counts of documents for pairs of models a and b, and statistics of the pairs; all have one shape."""

    n: Array
    both_right: Array
    both_wrong: Array
    only_a: Array
    only_b: Array

    @property
    def q_statistic(self) -> Array:
        """Yule's Q: (n11 n00 - n01 n10) / (n11 n00 + n01 n10)."""
        return ratio(self._excess, self.both_right * self.both_wrong + self.only_a * self.only_b)

    @property
    def correlation(self) -> Array:
        """The Pearson correlation of being right."""
        right_a, wrong_a, right_b, wrong_b = self._margins
        return ratio(self._excess, (right_a * wrong_a) ** 0.5 * (right_b * wrong_b) ** 0.5)

    @property
    def disagreement(self) -> Array:
        """The share of documents on which exactly one of the two models is right."""
        return ratio(self.only_a + self.only_b, self.n)

    @property
    def kappa(self) -> Array:
        """The paper's pairwise kappa: Cohen's kappa whose denominator has the margins of each model alone."""
        right_a, wrong_a, right_b, wrong_b = self._margins
        return ratio(2 * self._excess, right_a * wrong_a + right_b * wrong_b)

    @property
    def cohens_kappa(self) -> Array:
        """Cohen's kappa of being right."""
        right_a, wrong_a, right_b, wrong_b = self._margins
        return ratio(2 * self._excess, right_a * wrong_b + right_b * wrong_a)

    @property
    def double_fault(self) -> Array:
        """The share of documents on which both models are wrong."""
        return ratio(self.both_wrong, self.n)

    @property
    def _excess(self) -> Array:
        return self.both_right * self.both_wrong - self.only_a * self.only_b

    @property
    def _margins(self) -> tuple[Array, Array, Array, Array]:
        """How often a is right, a is wrong, b is right and b is wrong, for a pair (a, b)."""
        a = self.both_right + self.only_a, self.both_wrong + self.only_b
        return *a, self.both_right + self.only_b, self.both_wrong + self.only_a


class FailureCounts(Protocol[Array]):
    """Counts of joint failures in any number of pools, (..., P). k_t members of a pool fail on document t.

    `n`, the number of documents, and `size`, that of members, broadcast to (..., P). `members` (..., P, N) is
    1 for a pool's models, else 0. `failures` is Σ k_t and `joint_failures` Σ k_t (k_t - 1). `failures_beside`
    (..., P, N) has both sums over the documents on which a model fails. `average_pairs` averages a statistic
    of `pairs` over the pairs of each pool for which it is defined.
    """

    @property
    def n(self) -> Array: ...
    @property
    def size(self) -> Array: ...
    @property
    def members(self) -> Array: ...
    @property
    def failures(self) -> Array: ...
    @property
    def joint_failures(self) -> Array: ...
    @property
    def failures_beside(self) -> tuple[Array, Array]: ...
    @property
    def pairs(self) -> PairCounts[Array]: ...
    def average_pairs(self, statistic: Array) -> Array: ...


class Counts(FailureCounts[Array], Protocol[Array]):
    """Counts of joint failures and of agreement among a pool's members, (..., P) each.

    `same_votes` is the number of ordered pairs of members with equal predictions, over all documents.
    `chance` is the sum of the squared shares of all predictions. `plurality_right` is the number of documents
    on which the plurality is right.
    """

    @property
    def same_votes(self) -> Array: ...
    @property
    def chance(self) -> Array: ...
    @property
    def plurality_right(self) -> Array: ...


Formula = TypeVar("Formula", bound=Callable[[Counts[Any]], Any])
METRICS: dict[str, Callable[[Counts[Any]], Any]] = {}
"""The diversity metrics by name, in the order in which studies try them."""


def metric(formula: Formula) -> Formula:
    """Registers a diversity metric under its function's name."""
    METRICS[formula.__name__] = formula
    return formula


@metric
def focal_diversity(counts: FailureCounts[Array]) -> Array:
    """The focal diversity of Eq (8): the mean focal correlation of the members that ever fail."""
    once, twice = counts.failures_beside
    fails = counts.members * (once > 0)
    rho = fails * focal_correlation(once + (once == 0), twice, counts.size[..., None])
    return ratio(rho.sum(-1), fails.sum(-1))


@metric
def generalized_diversity(counts: Counts[Array]) -> Array:
    """The generalised diversity 1 - P(2)/P(1) over all documents (Partridge and Krzanowski)."""
    return 1 - ratio(counts.joint_failures, (counts.size - 1) * counts.failures)


@metric
def plurality_accuracy(counts: Counts[Array]) -> Array:
    """The share of documents on which the pool's plurality is right."""
    return ratio(counts.plurality_right, counts.n)


@metric
def fleiss_kappa(counts: Counts[Array]) -> Array:
    """Fleiss' kappa over the predictions, among which a missing answer is a category."""
    observed = ratio(counts.same_votes, counts.n * counts.size * (counts.size - 1))
    return ratio(observed - counts.chance, 1 - counts.chance)


def _mean_over_pairs_of(name: str) -> Callable[[Counts[Any]], Any]:
    def formula(counts: Counts[Any]) -> Any:
        return counts.average_pairs(getattr(counts.pairs, name))

    formula.__name__, formula.__doc__ = name, f"The mean of `PairCounts.{name}` over pairs."
    return formula


for _name in ("q_statistic", "correlation", "disagreement", "kappa", "double_fault"):
    metric(_mean_over_pairs_of(_name))


@metric
def binary_entropy(counts: Counts[Array]) -> Array:
    """The entropy, in bits, of the share of right answers among all members' answers."""
    wrong = ratio(counts.failures, counts.n * counts.size)
    return -(_x_log_x(wrong) + _x_log_x(1 - wrong)) / log(2)


def focal_correlation(once: Array, twice: Array, size: Array) -> Array:
    """1 - P(2)/P(1) on a model's failures, Eq (8), from the two parts of `Counts.failures_beside`.

    P(1) = Σ F_tf k_t / (S n_f) and P(2) = Σ F_tf k_t (k_t - 1) / (S (S-1) n_f). k_t of S members fail on
    document t, and F_tf is 1 on the n_f documents where model f fails.
    """
    return 1 - ratio(twice, (size - 1) * once)


def mean_over_pairs(statistic: Array, members: Array) -> Array:
    """(..., P) the mean of a symmetric statistic (..., N, N) over the pairs of each pool that are not NaN.

    `members` (..., P, N) is 1 for a pool's models, else 0.
    """
    library = _library(statistic)
    defined = library.triu(statistic == statistic, 1)
    total = ((members @ library.where(defined, statistic, 0.0)) * members).sum(-1)
    return ratio(total, ((members @ library.asarray(defined, dtype=members.dtype)) * members).sum(-1))


def ratio(numerator: Array, denominator: Array) -> Array:
    """The quotient, which is NaN for 0 / 0, without numpy's warning."""
    library = _library(denominator)
    if library.__name__ == "torch":
        return numerator / denominator
    with library.errstate(invalid="ignore"):
        return numerator / denominator


def _x_log_x(x: Any) -> Any:
    """x log x, which is 0 at 0."""
    if hasattr(x, "xlogy"):
        return x.xlogy(x)
    from scipy.special import xlogy  # numpy has none

    return xlogy(x, x)


def _library(values: Any) -> Any:
    """The module of the values' type, numpy or torch, without importing either."""
    return sys.modules[type(values).__module__.partition(".")[0]]
