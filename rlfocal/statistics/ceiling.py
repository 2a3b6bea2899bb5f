"""The highest accuracy of a policy that returns a member's answer: the twin of the macro `ceiling`.

A policy that returns an answer of a model it asked is wrong wherever all are: on a share beta of the
documents, which is known before anything is trained.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlfocal.base.arrays import Bools, Floats, Ints
from rlfocal.statistics.intervals import clopper_pearson
from rlfocal.statistics.votes import mark_correct

NAN, MIN_PROBABILITY = float("nan"), 1e-300


@dataclass(frozen=True)
class PoolCeiling:
    """The ceiling of a pool.

    Shares are of documents; NaN where undefined, such as figures on choices for free answers.
    """

    n: int
    n_none_right: int
    """The number of documents on which no model is right."""
    beta: float
    beta_low: float
    beta_high: float
    """The upper end of Clopper and Pearson's 95 % interval of beta; `beta_low` is the lower end."""
    oracle: float
    best_single: float
    """The share of documents on which the best single model is right."""
    lead_by_one: float
    lead_by_two: float
    lead_by_more: float
    """The three parts of the oracle's lead over the best single model: where one, two or more are right."""
    guessing: float
    """The accuracy of guessing among a document's choices."""
    unnamed_right: float
    """Where no model is right: the share of documents on which the likeliest choice that no model named is
    right."""
    unnamed_guessing: float
    """Where no model is right: the accuracy of guessing among the choices that no model named."""


def ceiling(
    predictions: Ints,
    labels: Ints,
    best: int,
    probs: Floats | None = None,
    n_choices: Ints | None = None,
) -> PoolCeiling:
    """The ceiling of N models on T documents; the model at position `best` was chosen on train.

    `predictions` (T, N) and `labels` (T,) as in `rlfocal.statistics.agreement`; for choices also the models'
    probabilities (T, N, C) and how many choices each document has (T,).
    """
    correct = mark_correct(predictions, labels)
    n, n_right = len(labels), correct.sum(axis=1)
    none_right, lead = n_right == 0, (n_right > 0) & ~correct[:, best]
    beta = clopper_pearson(int(none_right.sum()), n)
    guessing = unnamed_right = unnamed_guessing = NAN
    if probs is not None and n_choices is not None:
        guessing = _mean(1 / n_choices)
        unnamed = find_unnamed(predictions[none_right], n_choices[none_right], probs.shape[2])
        likeliest = likeliest_unnamed(
            np.log(np.maximum(probs[none_right].mean(axis=1), MIN_PROBABILITY)), unnamed
        )
        unnamed_right = _mean(likeliest == labels[none_right])
        n_unnamed = unnamed.sum(axis=1)
        unnamed_guessing = _mean(1 / n_unnamed[n_unnamed > 0])
    return PoolCeiling(
        n=n,
        n_none_right=int(none_right.sum()),
        beta=beta.mean,
        beta_low=beta.low,
        beta_high=beta.high,
        oracle=1 - beta.mean,
        best_single=_mean(correct[:, best]),
        lead_by_one=_mean(lead & (n_right == 1)),
        lead_by_two=_mean(lead & (n_right == 2)),
        lead_by_more=_mean(lead & (n_right > 2)),
        guessing=guessing,
        unnamed_right=unnamed_right,
        unnamed_guessing=unnamed_guessing,
    )


def find_unnamed(predictions: Ints, n_choices: Ints, width: int) -> Bools:
    """(T, width) the choices of a document that no model predicts, from predictions (T, N)."""
    choices = np.arange(width)
    named = (predictions[:, :, None] == choices).any(axis=1)
    return np.asarray(~named & (choices < n_choices[:, None]))


def likeliest_unnamed(logits: Floats, unnamed: Bools) -> Ints:
    """(T,) the unnamed choice with the highest logit (T, C); ties: the lowest; -1 where all are named."""
    likeliest = np.where(unnamed, logits.round(9), -np.inf).argmax(axis=1)
    return np.where(unnamed.any(axis=1), likeliest, -1).astype(np.int64)


def _mean(values: Floats | Bools) -> float:
    return float(values.mean()) if len(values) else NAN
