"""How Fusion is fitted at one stage: every recipe, and their mixture by cross-validation."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from rlfocal.base.arrays import Floats, Ints
from rlfocal.methods.rl_focal_sequential.softmax_regression import Mixture, Priors, Rows, Weights, fit_many

_TELLING = 3_000
_HELD_OUT_TOLERANCE = 0.5
"""Out-of-fold fits only serve to choose shares and train the Decider."""


def telling(n: int) -> Ints:
    """Evenly spaced positions among n documents, on which models and recipes are compared."""
    return np.linspace(0, n - 1, min(n, _TELLING)).round().astype(np.int64)


class Stage(NamedTuple):
    """Fusion after one stage of asking, of S seeds."""

    weights: Weights
    """One regression per recipe, on all train rows"""
    shares: Floats
    """(S, R) each seed's mixture of the recipes"""
    out_of_fold: Floats
    """(S, T, C) each document's distribution by Fusion fitted without it"""

    def fusion(self, seed: int) -> Mixture:
        return Mixture(self.weights, self.shares[seed])


def fit_stage(rows: Rows, priors: Priors, held_out: Ints, *, biased: bool) -> Stage:
    """Fits every recipe on all of train, then for each seed on all but each fold (S, T), side by side."""
    n_recipes, n_rows = len(priors.shared), len(rows.labels)
    whole = fit_many(rows, rows.shared.new_ones((n_recipes, n_rows)), priors, biased=biased)
    out_of_fold = np.zeros((len(held_out), n_recipes, n_rows, rows.open.shape[1]))

    def fit_out_of_fold(of_seed: Floats, part: Tensor) -> None:
        n_folds = int(part.max()) + 1
        taken = (part != torch.arange(n_folds)[:, None]).to(rows.shared.dtype)  # (folds, T)
        fitted = fit_many(
            rows,
            taken.repeat_interleave(n_recipes, 0),
            priors.at(torch.arange(n_recipes).repeat(n_folds)),
            biased=biased,
            tolerance=_HELD_OUT_TOLERANCE,
        )
        for fold in range(n_folds):
            at = torch.nonzero(part == fold)[:, 0]
            one = fitted.at(slice(fold * n_recipes, (fold + 1) * n_recipes))
            of_seed[:, at.numpy()] = one.probabilities(rows.take(at)).numpy()

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(fit_out_of_fold, out_of_fold, torch.from_numpy(held_out)))
    labels = rows.labels.numpy()
    known = np.flatnonzero(labels >= 0)
    shares = np.stack([mixture(of_seed[:, known, labels[known]].T) for of_seed in out_of_fold])
    return Stage(whole, shares, np.einsum("sr,srtc->stc", shares, out_of_fold))


def mixture(at_label: Floats, iterations: int = 200) -> Floats:
    """(R,) shares that maximise the likelihood of the labels, from (T, R) probabilities of them (EM); with
    one document's worth of prior, split evenly."""
    n, n_recipes = at_label.shape
    even = np.full(n_recipes, 1 / n_recipes)
    shares, everyone = even, np.ones(n)
    for _ in range(iterations):
        owed = np.maximum(at_label, 1e-6) * shares
        owed /= owed.sum(axis=1, keepdims=True)
        shares = everyone @ owed + even
        shares /= shares.sum()
    return shares
