"""Fusion at one stage of asking: for documents of any task, and for those of known tasks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from rlfocal.base.arrays import Floats, Ints
from rlfocal.methods.rl_focal_sequential.softmax_regression import Rows, Weights

LEAST_CHANCE = 1e-6
"""Probabilities are clipped below at this before logarithms are taken."""


@dataclass(frozen=True)
class Fusion:
    """A mixture of softmax regressions over what the asked models said."""

    weights: Weights
    """R regressions"""
    shares: Floats
    """(R,)"""

    def probabilities(self, rows: Rows) -> Floats:
        """(T, C) distributions over the open slots."""
        return np.asarray(np.einsum("r,rtc->tc", self.shares, self.weights.probabilities(rows).numpy()))


@dataclass(frozen=True)
class TaskFusion:
    """For each of J tasks, a mixture of Fusion's own opinion and of regressions fitted to the task's rows."""

    weights: Weights
    """J groups of R regressions; the last of the shared features is Fusion's opinion"""
    shares: Floats
    """(J, 1 + R) Fusion's own opinion comes first"""

    def probabilities(self, rows: Rows, particular: Floats, opinion: Floats, task: Ints) -> Floats:
        """(T, C) distributions over the open slots, from `particular` (T, F) of `About`; Fusion's `opinion`
        (T, C) unchanged for documents of unknown tasks, whose `task` (T,) is -1.
        """
        result = opinion.copy()
        for one in np.unique(task[task >= 0]):
            at = np.flatnonzero(task == one)
            mine = task_rows(rows.take(torch.from_numpy(at)), self.n_models, particular[at], opinion[at])
            said = self.weights.at(int(one)).probabilities(mine).numpy()
            share = self.shares[one]
            result[at] = share[0] * opinion[at] + np.einsum("r,rtc->tc", share[1:], said)
        return result

    @property
    def n_models(self) -> int:
        return (self.weights.shared.shape[-1] - 1) // 2


def task_rows(rows: Rows, n_models: int, particular: Floats, opinion: Floats) -> Rows:
    """The rows as a task's own regressions see them: without gates, with `particular` (T, F) and Fusion's
    opinion (T, C).
    """
    is_open = rows.open.numpy()
    said = np.where(is_open, np.log(np.maximum(opinion, LEAST_CHANCE)), 0.0)
    said -= said.sum(axis=1, keepdims=True) / np.maximum(is_open.sum(axis=1, keepdims=True), 1)
    said = np.where(is_open, said, 0.0)
    return Rows(
        torch.cat([rows.shared[:, :, : 2 * n_models], torch.from_numpy(said)[..., None]], 2),
        torch.cat([rows.own[:, : n_models * is_open.shape[1]], torch.from_numpy(particular)], 1),
        rows.open,
        rows.labels,
    )
