"""The highest accuracy of a policy that returns a model's answer: the twin of the SQL macro `ceiling`.

Such a policy is wrong wherever all models are, on a share beta of the documents, which is known before any
training.
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
    """The ceiling of a pool's accuracy, and its parts.

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
    """The shares where the best single model is wrong, and one other model, two or more are right.

    The shares are `lead_by_one`, `lead_by_two` and this one, and add up to the oracle's lead.
    """
    guessing: float
    """The accuracy of random guesses among a document's choices."""
    unnamed_right: float
    """The accuracy of the likeliest choice that no model gave, on documents on which no model is right."""
    unnamed_guessing: float
    """The accuracy of random guesses among choices that no model gave, on these documents."""


def ceiling(
    predictions: Ints,
    labels: Ints,
    best: int,
    probs: Floats | None = None,
    n_choices: Ints | None = None,
) -> PoolCeiling:
    """The ceiling of N models on T documents; the model at position `best` was chosen on train.

    `predictions` (T, N) and `labels` (T,) are as in `rlfocal.statistics.agreement`. For choices, `probs` (T,
    N, C) are the models' probabilities, and `n_choices` (T,) the numbers of choices.
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
    """(T, width) which choices of a document no model predicts, from predictions (T, N)."""
    choices = np.arange(width)
    named = (predictions[:, :, None] == choices).any(axis=1)
    return np.asarray(~named & (choices < n_choices[:, None]))


def likeliest_unnamed(logits: Floats, is_unnamed: Bools) -> Ints:
    """(T,) the `is_unnamed` (T, C) choice with the highest logit (T, C); ties: the lowest; -1 for none."""
    likeliest = np.where(is_unnamed, logits.round(9), -np.inf).argmax(axis=1)
    return np.where(is_unnamed.any(axis=1), likeliest, -1).astype(np.int64)


def _mean(values: Floats | Bools) -> float:
    return float(values.mean()) if len(values) else NAN
