"""How Fusion is fitted at one stage: every recipe, their mixture by cross-validation, and tasks' own fits."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from rlfocal.base.arrays import Floats, Ints
from rlfocal.data.dataset import Dataset
from rlfocal.methods.rl_focal_sequential.fusion import Fusion, TaskFusion, task_rows
from rlfocal.methods.rl_focal_sequential.observations import MANY_TASKS
from rlfocal.methods.rl_focal_sequential.softmax_regression import Priors, Rows, Weights, fit_groups, fit_many

_TELLING = 3_000


def telling(n: int) -> Ints:
    """Evenly spaced positions among n documents, on which models and recipes are compared."""
    return np.linspace(0, n - 1, min(n, _TELLING)).round().astype(np.int64)


def task_counts(train_rows: Dataset) -> Floats:
    """(T,) weights that sum to T; each of many tasks weighs the same: test has others, of any size."""
    tasks = np.unique(train_rows.tasks, return_inverse=True)[1]
    sizes = np.bincount(tasks)
    if len(sizes) < MANY_TASKS:
        return np.ones(len(tasks))
    return np.asarray(len(tasks) / len(sizes) / sizes[tasks])


def hold_out(train_rows: Dataset, folds: int, seed: int) -> Ints:
    """(T,) each document's fold: whole tasks where there are many."""
    tasks = np.unique(train_rows.tasks, return_inverse=True)[1]
    if tasks.max() + 1 < MANY_TASKS:
        return hold_out_rows(len(train_rows), folds, seed)
    return hold_out_rows(int(tasks.max()) + 1, folds, seed)[tasks]


def hold_out_rows(n: int, folds: int, seed: int) -> Ints:
    """(n,) folds of equal size, drawn at random."""
    return np.asarray(np.random.default_rng(seed).permutation(np.arange(n) % folds))


_HELD_OUT_TOLERANCE = 0.5
"""Out-of-fold fits only serve to choose shares and train the Decider."""
_OPINION_RIDGE = 1.0
"""Ridge on the weight of Fusion's opinion in a task's own regressions."""
_TASK_PRIOR = 10.0
"""Number of documents that the mixture over all tasks counts as, in the prior of a task's mixture."""


class Stage(NamedTuple):
    """Fusion after one stage of asking, for documents of any task; or what it adds for each of J tasks."""

    weights: Weights
    """One regression per recipe, on all train rows; or S seeds' J groups of them, each on its task's rows."""
    shares: Floats
    """(S, R) each seed's mixture of the recipes; or (S, J, 1 + R)"""
    out_of_fold: Floats
    """(S, T, C) each document's distribution by Fusion fitted without it"""


class Fitted(NamedTuple):
    """All of Fusion after one stage of asking, of S seeds."""

    general: Stage
    of_tasks: Stage | None

    def fusion(self, seed: int) -> Fusion:
        return Fusion(self.general.weights, self.general.shares[seed])

    def task_fusions(self, seed: int) -> tuple[TaskFusion, ...]:
        """One, or none where no task has regressions of its own."""
        if self.of_tasks is None:
            return ()
        return (TaskFusion(self.of_tasks.weights.at(seed), self.of_tasks.shares[seed]),)


def fit_stage(rows: Rows, priors: Priors, held_out: Ints, counts: Floats, *, biased: bool) -> Stage:
    """Fits every recipe on all of train, then for each seed on all but each fold, side by side.

    `counts` (T,): each document's weight when recipes are mixed.
    """
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
    counts = counts[labels >= 0]
    shares = np.stack([mixture(_at_label(of_seed, labels), counts=counts) for of_seed in out_of_fold])
    return Stage(whole, shares, np.einsum("sr,srtc->stc", shares, out_of_fold))


def fit_tasks(
    rows: Rows, particular: Floats, task: Ints, opinion: Floats, priors: Priors, part: Ints
) -> tuple[Weights, Floats, Floats]:
    """One seed's weights (J, R, ...), shares (J, 1 + R) and out-of-fold distributions (T, C) of every task.

    `task` (T,) numbers the tasks, `opinion` (T, C) is Fusion's on documents whose whole task was held out,
    `part` (T,) is each document's fold here, `particular` (T, F) as in `About`.
    """
    n_models = priors.shared.shape[1] // 2
    n_tasks, n_recipes = int(task.max()) + 1, len(priors.shared)
    mine = task_rows(rows, n_models, particular, opinion)
    on_opinion = torch.full((n_recipes, 1), _OPINION_RIDGE**-0.5, dtype=torch.float64)
    priors = Priors(torch.cat([priors.shared, on_opinion], 1), priors.own)
    n_slots, n_folds = rows.open.shape[1], int(part.max()) + 1
    weights = Weights(
        rows.shared.new_zeros((n_tasks, n_recipes, 2 * n_models + 1)),
        rows.shared.new_zeros((n_tasks, n_recipes, n_slots)),
        rows.shared.new_zeros((n_tasks, n_recipes, mine.own.shape[1], n_slots)),
    )
    out_of_fold = np.zeros((1 + n_recipes, len(task), n_slots))
    out_of_fold[0] = opinion
    for tasks in _alike(rows.open.numpy().sum(axis=1), task):
        at, real = _pad_tasks([np.flatnonzero(task == one) for one in tasks])
        group = Rows(mine.shared[at], mine.own[at], mine.open[at], torch.where(real, mine.labels[at], -1))
        taken = real[:, None].expand(-1, n_recipes, -1).to(rows.shared.dtype)
        whole = fit_groups(group, taken, priors, biased=True)
        for name in ("shared", "bias", "own"):
            getattr(weights, name)[tasks] = getattr(whole, name)
        parts = torch.from_numpy(part)[at]
        left = (parts[:, None] != torch.arange(n_folds)[:, None]) & real[:, None]  # (J, folds, T)
        held = fit_groups(
            group,
            left.repeat_interleave(n_recipes, 1).to(rows.shared.dtype),
            priors.at(torch.arange(n_recipes).repeat(n_folds)),
            biased=True,
            tolerance=_HELD_OUT_TOLERANCE,
        )
        every = held.probabilities(group).view(len(tasks), n_folds, n_recipes, *group.open.shape[1:])
        mask = real.numpy()
        chosen = np.take_along_axis(every.numpy(), parts.numpy()[:, None, None, :, None], 1)[:, 0]
        out_of_fold[1:, at.numpy()[mask]] = chosen.transpose(1, 0, 2, 3)[:, mask]
    shares = _task_shares(out_of_fold, rows.labels.numpy(), task)
    return weights, shares, np.einsum("tr,rtc->tc", shares[task], out_of_fold)


def _task_shares(out_of_fold: Floats, labels: Ints, task: Ints) -> Floats:
    """(J, 1 + R) each task's mixture, shrunk towards that of all tasks."""
    of_all = mixture(_at_label(out_of_fold, labels))
    return np.stack(
        [
            mixture(_at_label(out_of_fold[:, task == one], labels[task == one]), of_all * _TASK_PRIOR)
            for one in range(int(task.max()) + 1)
        ]
    )


def _alike(n_choices: Ints, task: Ints) -> Iterator[list[int]]:
    """Groups of tasks with equally many choices and at least half as many documents as the group's largest,
    so that little is padded."""
    sizes = np.bincount(task)
    most = np.zeros(len(sizes), dtype=np.int64)
    np.maximum.at(most, task, n_choices)
    group: list[int] = []
    for one in sorted(range(len(sizes)), key=lambda one: (most[one], -sizes[one], one)):
        if group and (most[one] != most[group[0]] or 2 * sizes[one] < sizes[group[0]]):
            yield group
            group = []
        group.append(one)
    yield group


def _pad_tasks(members: list[Ints]) -> tuple[Tensor, Tensor]:
    """(J, T) positions, padded with each task's last one, and which are real."""
    longest = max(len(at) for at in members)
    at = np.stack([np.pad(one, (0, longest - len(one)), mode="edge") for one in members])
    real = np.arange(longest) < np.array([len(one) for one in members])[:, None]
    return torch.from_numpy(at), torch.from_numpy(real)


def _at_label(distributions: Floats, labels: Ints) -> Floats:
    """(T', R) the probability of the right slot, where there is one, by each of (R, T, C)."""
    known = np.flatnonzero(labels >= 0)
    return np.asarray(distributions[:, known, labels[known]].T)


def mixture(
    at_label: Floats, prior: Floats | None = None, counts: Floats | None = None, iterations: int = 200
) -> Floats:
    """(R,) shares that maximise the likelihood of the labels, from (T, R) probabilities of them (EM).

    `prior` (R,) is a number of documents in favour of each; None: one, split evenly. `counts` (T,) weights
    the documents; None: 1 each.
    """
    n_recipes = at_label.shape[1]
    before = np.full(n_recipes, 1 / n_recipes) if prior is None else prior
    shares = np.full(n_recipes, 1 / n_recipes)
    for _ in range(iterations):
        owed = np.maximum(at_label, 1e-6) * shares
        owed /= owed.sum(axis=1, keepdims=True)
        shares = (owed.sum(axis=0) if counts is None else counts @ owed) + before
        shares /= shares.sum()
    return shares
