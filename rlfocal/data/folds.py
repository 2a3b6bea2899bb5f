"""Cross-validation on train documents: which fold holds each of them, and what is decided without it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from rlfocal.base.arrays import Ints
from rlfocal.base.errors import InputError
from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import Decisions, Fitted, decide


def folds(data: Dataset, k: int, by: Literal["document", "task"] = "document", seed: int = 0) -> Ints:
    """(T,) the fold of each document, from 0 to k - 1, drawn by the seed.

    Folds differ by at most one document, or by at most one task where tasks are held out whole. Fewer
    documents or tasks than k make as many folds. Raises InputError if there are fewer than two of them.
    """
    _, groups = np.unique(data.tasks, return_inverse=True)
    if by == "document":
        groups = np.arange(len(data))
    n_groups = int(groups.max(initial=-1)) + 1
    if min(n_groups, k) < 2:
        raise InputError(
            f"benchmark {data.benchmark!r} has {n_groups} {by}s to hold out in {k} folds; give two or more"
        )
    drawn = np.random.default_rng(seed).permutation(np.arange(n_groups) % min(k, n_groups))
    return np.asarray(drawn[groups])


def out_of_fold(fit: Callable[[Dataset], Sequence[Fitted]], data: Dataset, fold: Ints) -> list[Decisions]:
    """What each fitted policy decides on each document, fitted to the documents of all other folds.

    `fit` returns the same number of policies for every fold, one per candidate or seed. It is called once
    per fold.
    """
    parts: list[list[Decisions]] = []
    rows = [np.flatnonzero(fold == number) for number in range(int(fold.max()) + 1)]
    for out in rows:
        rest = data.take(np.setdiff1d(np.arange(len(data)), out))
        parts.append([decide(policy, data.take(out)) for policy in fit(rest)])
    back = np.argsort(np.concatenate(rows))
    return [_join(of_policy, back) for of_policy in zip(*parts, strict=True)]


def _join(parts: Sequence[Decisions], back: Ints) -> Decisions:
    """The decisions of all folds, in the documents' order."""
    joined = Decisions(
        np.concatenate([part.pools for part in parts])[back],
        np.concatenate([part.predictions for part in parts])[back],
    )
    rounds = [part.rounds for part in parts if part.rounds is not None]
    probability = [part.probability for part in parts if part.probability is not None]
    if len(rounds) == len(parts):
        joined = replace(joined, rounds=np.concatenate(rounds)[back])
    if len(probability) == len(parts):
        joined = replace(joined, probability=np.concatenate(probability)[back])
    return joined
