"""Fusion's core: a log-linear pool with weights that depend on the question, and cross-choice weights."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from rlfocal.data.dataset import Kind
from rlfocal.methods.agents.networks import Sizes
from rlfocal.methods.rl_focal.config import PoolConfig
from rlfocal.methods.rl_focal.questions import Columns

LEAST = -50.0
"""Log-probs are clipped here: lower ones tell no more."""


class Evidence(NamedTuple):
    """Models' outputs for M documents, standardised on train."""

    shared: Tensor
    """(..., N, C) log-probs centred over the open slots, in deviations; for free answers, shares of passes"""
    own: Tensor
    """(..., N, C) the same, standardised for each slot by its own mean and deviation; 0 for free answers"""


class LogLinear(nn.Module):
    """logit_c(x) = Σ_i w_i(x) z_ic + Σ_i Σ_c' W_ic'c u_ic' + bias_c(x), over the selected models i.

    z is the shared, u the own evidence; w and bias are linear in the question features. Free answers, whose
    slots have no fixed meaning, have only the first sum.
    """

    deviation: Tensor
    mean: Tensor
    scale: Tensor

    def __init__(self, sizes: Sizes, kind: Kind, n_seeds: int) -> None:
        super().__init__()
        n, c, g = sizes.models, sizes.slots, sizes.question
        self.kind = kind
        self.weight = nn.Parameter(torch.zeros(n_seeds, g, n))
        self.slots = nn.Parameter(torch.zeros(n_seeds, n * c if kind == "choices" else 0, c))
        self.bias = nn.Parameter(torch.zeros(n_seeds, g if kind == "choices" else 0, c))
        self.register_buffer("deviation", torch.ones(n_seeds, 1, n, 1))
        self.register_buffer("mean", torch.zeros(n_seeds, 1, n, c))
        self.register_buffer("scale", torch.ones(n_seeds, 1, n, c))

    @torch.no_grad()
    def learn(self, outputs: Tensor, is_open: Tensor, accuracy: Tensor, start: float) -> None:
        """Sets scales from the outputs (T, N, C) of all models on train and the slots that exist (T, C), and
        initial weights that sum to `start`, in proportion to the models' odds of being right, from `accuracy`
        (N,)."""
        odds = accuracy / (1 - accuracy)
        self.weight[:, 0] = start * odds / odds.sum()
        if self.kind == "choices":
            centred = _centre(outputs, is_open)
            total = centred.square().sum((0, 2)) / is_open.sum().clamp(min=1)
            self.deviation.copy_(total.sqrt().clamp(min=1e-6)[:, None].expand_as(self.deviation))
            self.mean.copy_(centred.mean(0).expand_as(self.mean))
            spread = centred.std(0, correction=0)
            usual = torch.where(spread > 1e-6, 1 / spread.clamp(min=1e-6), 0)
            self.scale.copy_(usual.expand_as(self.scale))

    def evidence(self, outputs: Tensor, is_open: Tensor) -> Evidence:
        """Evidence from distributions (S, M, N, C), 0 for models not asked, and open slots (S, M, C)."""
        if self.kind == "answers":
            return Evidence(outputs, torch.zeros_like(outputs))
        asked = outputs.sum(-1, keepdim=True) > 0
        centred = _centre(outputs, is_open)
        own = (centred - self.mean) * self.scale * is_open[..., None, :]
        return Evidence(torch.where(asked, centred / self.deviation, 0), torch.where(asked, own, 0))

    def contributions(self, seen: Evidence, question: Tensor) -> Tensor:
        """(S, M, N, C) what each model adds to the logits; `question` is (S, M, G)."""
        added = (question @ self.weight)[..., None] * seen.shared
        if self.kind == "choices":
            n, c = seen.own.shape[-2:]
            added = added + torch.einsum("smnc,sncd->smnd", seen.own, self.slots.view(-1, n, c, c))
        return added

    def biases(self, question: Tensor) -> Tensor:
        """(S, M, C), or 0 for free answers."""
        return question @ self.bias if self.kind == "choices" else question.new_zeros(())

    def forward(self, seen: Evidence, question: Tensor) -> Tensor:
        """(S, M, C) logits; the caller masks closed slots."""
        logits = (seen.shared.transpose(-1, -2) @ (question @ self.weight)[..., None])[..., 0]
        if self.kind == "choices":
            logits = logits + seen.own.flatten(2) @ self.slots + question @ self.bias
        return logits

    def penalty(self, config: PoolConfig, columns: Columns) -> Tensor:
        """(S,) the ridge penalty, a weighted sum of squares; half of it is the negative log prior."""
        ridges = config.weight_ridge, config.task_ridge, config.words_ridge, config.budget_ridge
        of_question = self.weight.new_tensor(columns.each(*ridges))[:, None]
        total = (of_question * self.weight.square()).sum((1, 2))
        if self.kind == "choices":
            total = total + config.slots_ridge * self.slots.square().sum((1, 2))
            total = total + (of_question * self.bias.square()).sum((1, 2))
        return total


def accuracies(right: Tensor) -> Tensor:
    """(N,) from right or wrong (T, N), shrunk towards a half by one more document right and one wrong."""
    return (right.sum(0) + 1) / (len(right) + 2)


def _centre(outputs: Tensor, is_open: Tensor) -> Tensor:
    """Log-probs minus their mean over the open slots; 0 elsewhere."""
    is_open = is_open[..., None, :]
    logs = outputs.clamp(min=torch.finfo(torch.float32).tiny).log().clamp(min=LEAST)
    logs = torch.where(is_open, logs, 0)
    mean = logs.sum(-1, keepdim=True) / is_open.sum(-1, keepdim=True).clamp(min=1)
    return torch.where(is_open, logs - mean, 0)
