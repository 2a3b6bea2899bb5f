"""Agreement of models, right or wrong: the Python twins of the SQL macro `agreement` and view `consensus`.

`predictions` (T, N) are choice indices, or codes that are equal for equal answers, -1 for no answer. `labels`
(T,) are codes of the same kind, -1 where no model can be right.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rlfocal.base.arrays import Floats, Ints
from rlfocal.data.dataset import Kind
from rlfocal.statistics.votes import mark_correct, plurality


class Agreement(NamedTuple):
    """Agreement of every two models, (N, N); NaN where undefined."""

    agreement: Floats
    """The share of documents to which both give the same answer; a missing answer agrees with nothing."""
    same_error: Floats
    """Among documents that both models get wrong, the share with the same answer."""


class Consensus(NamedTuple):
    """The joint answers of all models to each of T documents."""

    prediction: Ints
    """(T,) the answer of most models, with the ties of `plurality`; -1 if no model has an answer."""
    n_agree: Ints
    """(T,) the number of models that give the answer of most models."""
    n_right: Ints
    """(T,) the number of models that are right."""


def agreement(predictions: Ints, labels: Ints) -> Agreement:
    """For every two of N models, how often they give the same answer: on all documents, and if both err."""
    same = (predictions[:, :, None] == predictions[:, None, :]) & (predictions >= 0)[:, :, None]
    wrong = ~mark_correct(predictions, labels)
    both_wrong = wrong[:, :, None] & wrong[:, None, :]
    with np.errstate(invalid="ignore"):
        return Agreement(
            same.sum(axis=0) / np.float64(len(labels)),
            (same & both_wrong).sum(axis=0) / both_wrong.sum(axis=0),
        )


def consensus(predictions: Ints, labels: Ints, kind: Kind) -> Consensus:
    """For each document, the answer that most models give, how many give it, and how many are right."""
    winner = plurality(predictions, np.ones(predictions.shape[1], bool), kind)
    says_it = (predictions == winner[:, None]) & (winner >= 0)[:, None]
    return Consensus(winner, says_it.sum(axis=1), mark_correct(predictions, labels).sum(axis=1))
