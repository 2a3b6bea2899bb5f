"""The pool from which training starts: the best constant log-linear ensemble, weighted by its members' odds.

Few labels are enough, because only four things depend on them. They are the models' accuracies, the number of
models asked, one factor on all weights, and whether the pool is better than its best model.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rlfocal.base.arrays import Bools, Floats, Ints
from rlfocal.data.dataset import Dataset, Kind
from rlfocal.methods.constant_pools import MAX_POOL_SIZE
from rlfocal.methods.rl_focal_sequential.observations import Outputs
from rlfocal.methods.rl_focal_sequential.softmax_regression import MIN_PROBABILITY

_LOGIT_SCALES = 3.0 * np.logspace(-1.5, 1.5, 49)
MIN_GAIN = 0.005
"""The least gain in log-score per document, in nats, of one more model; models that guess gain less."""
_USUAL_SCALE = 3.0
"""The median of the prior on the sum of weights; the prior counts as one document."""


class StartingPool(NamedTuple):
    """The best constant pool: its first models in asking order, weighted by their odds."""

    size: int
    """The number of models asked, which are the first in asking order that are not down"""
    odds: tuple[float, ...]
    """(N,) each model's odds of being right, in asking order"""
    scale: float
    """The sum of the members' weights, which are in proportion to their odds"""

    def members(self, down: Bools) -> Bools:
        """(N,) which models are asked, without those that are `down` (N,); both in asking order."""
        return np.asarray(~down & (np.cumsum(~down) <= self.size))

    def fuse(self, outputs: Outputs, members: Bools, kind: Kind) -> Floats:
        """(T, C) distributions over the open slots, from the outputs of the members (N,)."""
        return _fuse(*_compute_logits(outputs, np.array(self.odds), members), self.scale, kind)


class StartTrials(NamedTuple):
    """Starting pools of 1 to S models, with their results on held-out train documents."""

    start: StartingPool
    """The pool with the highest reward."""
    right: Bools
    """(S, T) whether each pool's answer is right"""
    confidence: Floats
    """(S, T) the probability that each pool gives its answer"""


def try_starts(
    rows: Dataset, outputs: Outputs, order: Ints, fold: Ints, costs: Floats, most: float
) -> StartTrials:
    """Fits starting pools of up to `most` models, and returns their results on held-out train documents.

    `fold` (T,): the fold of each document. `costs` (N,): the penalty of asking the first 1, 2, ... models of
    the order, where a right answer has a reward of 1.
    """
    n, largest = len(rows), max(min(MAX_POOL_SIZE, len(order), int(most)), 1)
    correct = rows.correct[:, order]
    right = np.zeros((largest, n), dtype=np.bool_)
    confidence = np.zeros((largest, n))
    score = np.zeros((largest, n))
    for number in range(int(fold.max()) + 1):
        out, rest = np.flatnonzero(fold == number), np.flatnonzero(fold != number)
        odds = _estimate_odds(correct[rest])
        for size in range(1, largest + 1):
            members = np.arange(len(order)) < size
            scale = _find_best_scale(_take(outputs, rest), odds, members, rows.kind)
            unseen = _take(outputs, out)
            chances = _fuse(*_compute_logits(unseen, odds, members), scale, rows.kind)
            slots = chances.argmax(axis=1)
            right[size - 1, out] = (slots == unseen.labels) & chances.any(axis=1)
            confidence[size - 1, out] = chances.max(axis=1)
            score[size - 1, out] = _score_labels(chances, unseen.labels)
    # Of few documents, log-scores tell sizes apart where numbers of right answers are equal.
    worth = score.mean(axis=1) - costs[:largest] - MIN_GAIN * np.arange(largest)
    size = int(worth.argmax()) + 1
    odds = _estimate_odds(correct)
    scale = _find_best_scale(outputs, odds, np.arange(len(order)) < size, rows.kind)
    return StartTrials(StartingPool(size, tuple(odds.tolist()), scale), right, confidence)


def _estimate_odds(correct: Bools) -> Floats:
    """(N,) odds of being right, from `correct` (T, N), with one more document counted as right and wrong."""
    accuracy = (correct.sum(axis=0) + 1) / (len(correct) + 2)
    return np.asarray(accuracy / (1 - accuracy))


def _take(outputs: Outputs, rows: Ints) -> Outputs:
    """The outputs for the documents at these positions, except votes, questions and `own`."""
    return outputs._replace(
        shared=outputs.shared[rows], has_answer=outputs.has_answer[rows], labels=outputs.labels[rows]
    )


def _compute_logits(outputs: Outputs, odds: Floats, members: Bools) -> tuple[Floats, Bools]:
    """(T, C) the logits of the members (N,) with weights that sum to 1, and (T, C) which slots are open."""
    weights = np.where(members, odds, 0.0)
    logits = np.einsum("tnc,n->tc", outputs.shared, weights / max(weights.sum(), 1e-9))
    return np.asarray(logits), np.asarray(outputs.has_answer[:, members].any(axis=1))


def _fuse(logits: Floats, is_open: Bools, scale: float, kind: Kind) -> Floats:
    """(T, C) distributions from logits times `scale`; those of free answers sum to less than 1.

    The rest is the probability that no member's answer is right.
    """
    logits = np.where(is_open, scale * logits, -np.inf)
    nobody = np.zeros(len(logits)) if kind == "answers" else np.full(len(logits), -np.inf)
    top = np.maximum(logits.max(axis=1), nobody)
    top = np.where(np.isfinite(top), top, 0.0)
    weights = np.exp(logits - top[:, None])
    total = weights.sum(axis=1) + np.exp(nobody - top)
    return np.asarray(weights / np.maximum(total, 1e-300)[:, None])


def _find_best_scale(outputs: Outputs, odds: Floats, members: Bools, kind: Kind) -> float:
    """The sum of the members' weights with the highest posterior probability, given the labels."""
    logits, is_open = _compute_logits(outputs, odds, members)
    scores = [
        _score_labels(_fuse(logits, is_open, scale, kind), outputs.labels).sum()
        - 0.5 * np.log(scale / _USUAL_SCALE) ** 2
        for scale in _LOGIT_SCALES.tolist()
    ]
    return float(_LOGIT_SCALES[int(np.argmax(scores))])


def _score_labels(chances: Floats, labels: Ints) -> Floats:
    """(T,) the log-probability of the right slot, or that no member is right where no member gave it."""
    is_there = (labels >= 0) & (labels < chances.shape[1])
    at_label = np.where(is_there, chances[np.arange(len(labels)), np.where(is_there, labels, 0)], 0.0)
    unnamed = 1 - chances.sum(axis=1)
    return np.asarray(np.log(np.maximum(np.where(at_label > 0, at_label, unnamed), MIN_PROBABILITY)))
