"""Probabilities of answers, and promises about errors; both are learned from held-out train documents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from rlfocal.base.arrays import Bools, Floats, Ints
from rlfocal.data.dataset import Dataset
from rlfocal.data.folds import folds, split_folds
from rlfocal.data.policy import Budget, Decisions, Fitted, OmniscientPolicy, decide
from rlfocal.evaluation.fitting import hold_to_budget
from rlfocal.evaluation.planning import hide_names
from rlfocal.methods import Method
from rlfocal.statistics.selective import Promise, make_promise

CALIBRATION_FOLDS = 3
"""The number of folds of train. A policy fitted on the other folds decides each of them."""
MIN_HELD_OUT_ANSWERS = 30
"""The fewest held-out answers from which probabilities are learned."""


class HeldOutDecisions(NamedTuple):
    """The decisions of a method's policies on train documents that they were not fitted on."""

    score: Floats
    """(T,) a score for each answer, higher for more likely right; NaN where nothing was answered"""
    right: Bools
    """(T,) whether each held-out answer is right"""
    part: Ints
    """(T,) the fold of each document; the policy that decided it was fitted on the other folds"""
    is_probability: bool
    """Whether the scores are probabilities that the method itself gives."""

    def calibrate(self, scores: Floats) -> Floats:
        """(K,) the probability for each of these scores (K,); NaN if there are too few held-out answers.

        Probabilities of the method itself stay as they are. For other scores, isotonic regression on the
        held-out answers gives them.
        """
        return scores if self.is_probability else _fit_isotonic(self.score, self.right, scores)

    def choose_threshold(self, target: float) -> Promise:
        """The threshold that promises an error of at most `target`, from the held-out probabilities."""
        probability = self.score
        if not self.is_probability:
            probability = np.full(len(self.score), np.nan)
            for number in range(CALIBRATION_FOLDS):
                own, others = self.part == number, self.part != number
                probability[own] = _fit_isotonic(self.score[others], self.right[others], self.score[own])
        return make_promise(probability, self.right, target)


def hold_out(
    method: Method,
    dataset: Dataset,
    groups: Sequence[Bools],
    seed: int,
    budgets: Sequence[Budget | None],
    *,
    tasks: bool = False,
    on_progress: Callable[[float], None] | None = None,
) -> dict[Budget | None, HeldOutDecisions]:
    """For each budget, one seed's decisions on train rows (T,), each by a policy that did not see the row.

    Each policy is fitted on two thirds of a group. `on_progress` is called with the finished share.
    """
    train = hide_names(dataset, groups, tasks=tasks).train
    of_budget = {
        budget: HeldOutDecisions(
            np.full(len(train), np.nan), np.zeros(len(train), np.bool_), np.zeros(len(train), np.int64), True
        )
        for budget in budgets
    }
    for number, mask in enumerate(groups):
        rows = np.flatnonzero(mask[dataset.is_train])
        if len(rows) < CALIBRATION_FOLDS:
            continue
        parts = split_folds(folds(train.take(rows), CALIBRATION_FOLDS))
        for fold, (rest, out) in enumerate((rows[rest], rows[out]) for rest, out in parts):
            [policy] = method.fit(train.take(rest), [seed])
            documents = train.take(out)
            for budget in budgets:
                if (held := hold_to_budget(budget, [policy])) is None or isinstance(
                    held[0], OmniscientPolicy
                ):
                    continue
                decided = decide(held[0], documents.hide_labels())
                held_out = of_budget[budget]
                held_out.score[out] = estimate_confidence(decided, documents)
                held_out.right[out] = documents.is_right(decided.predictions)
                held_out.part[out] = fold
                of_budget[budget] = held_out._replace(is_probability=decided.probability is not None)
            if on_progress is not None:
                on_progress((number + (fold + 1) / CALIBRATION_FOLDS) / len(groups))
    return of_budget


@dataclass(frozen=True)
class Probabilities:
    """Probabilities for the answers of a method that gives none, fitted on train rows when first needed."""

    method: Method
    dataset: Dataset
    groups: Sequence[Bools]
    budgets: tuple[Budget | None, ...]
    tasks: bool = False
    _held_out_by_seed: dict[int, dict[Budget | None, HeldOutDecisions]] = field(default_factory=dict)

    def add_probabilities(
        self, decisions: Decisions, policies: Sequence[Fitted], seed: int, budget: Budget | None,
        answers: Dataset | None = None,
    ) -> Decisions:  # fmt: skip
        """Adds probabilities to one seed's decisions on the test rows of the dataset, or of `answers`.

        Decisions of policies that see all outputs stay as they are.
        """
        if decisions.probability is not None or any(
            isinstance(policy, OmniscientPolicy) for policy in policies
        ):
            return decisions
        if seed not in self._held_out_by_seed:
            self._held_out_by_seed[seed] = hold_out(
                self.method, self.dataset, self.groups, seed, self.budgets, tasks=self.tasks
            )
        test = (self.dataset if answers is None else answers).test
        probability = self._held_out_by_seed[seed][budget].calibrate(estimate_confidence(decisions, test))
        return replace(decisions, probability=probability)


def estimate_confidence(decisions: Decisions, documents: Dataset) -> Floats:
    """(T,) a policy's own probability of its answers, or else the mean of the asked models' probabilities.

    The mean is 0 where no model was asked. Documents without an answer get NaN.
    """
    if decisions.probability is not None:
        return np.where(decisions.predictions >= 0, decisions.probability, np.nan)
    slots = np.maximum(decisions.predictions, 0)[:, None, None]
    given = np.take_along_axis(documents.probs, slots, axis=2)[:, :, 0]
    n_asked = decisions.pools.sum(axis=1)
    mean = np.where(decisions.pools, given, 0.0).sum(axis=1) / np.maximum(n_asked, 1)
    return np.where(decisions.predictions >= 0, mean, np.nan)


def _fit_isotonic(score: Floats, right: Bools, scores: Floats) -> Floats:
    """(K,) the isotonic regression of `right` on `score` (T,), at `scores` (K,); NaN where those are NaN.

    All are NaN if fewer than MIN_HELD_OUT_ANSWERS of `score` are known.
    """
    # scikit-learn takes a second to import.
    from sklearn.isotonic import IsotonicRegression

    is_known = ~np.isnan(score)
    calibrated = np.full(len(scores), np.nan)
    if is_known.sum() < MIN_HELD_OUT_ANSWERS:
        return calibrated
    # Laplace's two answers, one of them wrong, at either end: no finite sample shows certainty.
    ends = np.array([score[is_known].min(), score[is_known].max()])
    x = np.concatenate([score[is_known], ends, ends])
    y = np.concatenate([right[is_known].astype(np.float64), [0.0, 0.0], [1.0, 1.0]])
    fitted = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip").fit(x, y)
    asked = ~np.isnan(scores)
    calibrated[asked] = fitted.predict(scores[asked])
    return calibrated
