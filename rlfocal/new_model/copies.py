"""Finds models that copy another one: of documents that both get wrong, they get too many wrong in the same
way.

Agreement on right answers says little, because there is one way to be right. Documents with two choices say
nothing and are left out. The pool's other pairs show the usual share of common errors that are the same. The
log-odds of their shares are treated as a normal sample. Its prediction interval contains one more honest pair
with a probability of 99.9 %. A pair counts as one model if the lower end of its own 99.9 % interval (Wilson,
1927) is above that interval.

Measured: none of the 12 models of `lab`, 16 on MMLU, 5 on BIG-Bench Hard and 44 on GSM8K is called a copy.
Noise of standard deviation 0.1 on the log-probs of a copy hides 0 of 12 copies (`lab`) and 1 of 16 (MMLU).
Noise of 0.5 hides 0 and 14.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import exp, log, sqrt
from statistics import fmean, stdev

import numpy as np
from scipy.stats import binomtest
from scipy.stats import t as student

from rlfocal.base.arrays import Bools, Ints
from rlfocal.data.dataset import Dataset


@dataclass(frozen=True)
class PairedAnswers:
    """The answers of N models to the same T documents."""

    models: tuple[str, ...]
    """The names of the N models."""
    predictions: Ints
    """The predicted choices, or numbers of a document's distinct answers; -1 for no answer: (T, N)."""
    labels: Ints
    """The right choice or number of each document; -1 if no model is right: (T,)."""
    has_several_wrong: Bools
    """Whether a document can be wrong in more than one way, which two choices rule out: (T,)."""

    @classmethod
    def from_dataset(cls, data: Dataset) -> PairedAnswers:
        has_several = data.n_choices > 2 if data.kind == "choices" else np.ones(len(data), dtype=np.bool_)
        return cls(data.models, data.predictions, data.labels, has_several)

    @property
    def errors(self) -> Bools:
        """Whether each model is wrong on each document: (T, N)."""
        errors: Bools = (self.predictions != self.labels[:, None]) | (self.labels[:, None] < 0)
        return errors


COPY_CONFIDENCE = 0.999
MIN_ERRORS = 20
"""The least number of documents that both models of a pair get wrong for the pair to inform the limit."""
MIN_PAIRS = 3
COPY_CORRELATION = 0.8
"""The largest limit on the share of common errors with the same answer. A pair whose interval lies above it
is a copy, however alike other pairs are.

The highest share of an honest pair was 0.721 on MMLU (Yi-34B and Qwen-72B), 0.409 on BIG-Bench Hard and 0.597
on GSM8K.
"""

Pair = tuple[str, str]


@dataclass(frozen=True)
class CommonErrors:
    """The numbers of documents that two models both get wrong."""

    both_wrong: int
    same: int
    """The number of documents that both models get wrong with the same answer."""

    @property
    def share(self) -> float:
        """The share of common errors with the same answer; NaN if the two are never wrong together."""
        return self.same / self.both_wrong if self.both_wrong else float("nan")


@dataclass(frozen=True)
class ErrorCorrelation:
    """A comparison of a model's errors with those of the model that errs most alike."""

    model: str
    errors: CommonErrors
    low: float
    """The lower end of the 99.9 % interval of `errors.share`."""
    limit: float
    """The share below which a pair of two honest models stays."""
    n_pairs: int
    """The number of other pairs that `limit` is computed from. With too few, `limit` is COPY_CORRELATION."""

    @property
    def is_copy(self) -> bool:
        return self.low > self.limit


def count_common_errors(benchmarks: Sequence[PairedAnswers]) -> dict[Pair, CommonErrors]:
    """The common errors of every two models over all benchmarks, by their names in alphabetical order."""
    counted: dict[Pair, CommonErrors] = {}
    for answers in benchmarks:
        kept = answers.has_several_wrong
        wrong, predictions = answers.errors[kept], answers.predictions[kept]
        for a, b in combinations(range(len(answers.models)), 2):
            both = wrong[:, a] & wrong[:, b]
            same = both & (predictions[:, a] == predictions[:, b]) & (predictions[:, a] >= 0)
            first, second = sorted((answers.models[a], answers.models[b]))
            pair = first, second
            before = counted.get(pair, CommonErrors(0, 0))
            counted[pair] = CommonErrors(
                before.both_wrong + int(np.count_nonzero(both)), before.same + int(np.count_nonzero(same))
            )
    return counted


def most_like(model: str, errors: Mapping[Pair, CommonErrors]) -> ErrorCorrelation | None:
    """The comparison with the model that `model` errs most like, by the lower end of the interval; None
    without common errors."""
    own = {(a if b == model else b): e for (a, b), e in errors.items() if model in (a, b) and e.both_wrong}
    if not own:
        return None
    usual = [e for pair, e in errors.items() if model not in pair and e.both_wrong >= MIN_ERRORS]
    low, name = max(
        (binomtest(e.same, e.both_wrong).proportion_ci(COPY_CONFIDENCE, "wilson").low, name)
        for name, e in own.items()
    )
    return ErrorCorrelation(name, own[name], float(low), _find_limit(usual), len(usual))


def _find_limit(usual: Sequence[CommonErrors]) -> float:
    """The limit of `CommonErrors.share`. One more honest pair stays below it with a probability of 99.9 %."""
    if len(usual) < MIN_PAIRS:
        return COPY_CORRELATION
    odds = [log((e.same + 0.5) / (e.both_wrong - e.same + 0.5)) for e in usual]
    reach = float(student.ppf(COPY_CONFIDENCE, len(odds) - 1)) * stdev(odds) * sqrt(1 + 1 / len(odds))
    return min(COPY_CORRELATION, 1 / (1 + exp(-fmean(odds) - reach)))
