"""Many ridge-penalised softmax regressions over the same rows, solved side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

_BIAS_RIDGE = 1e-2
"""Keeps the biases of slots that are never right finite."""
_CURVATURE = 0.1
"""About p (1 - p) on average: what a row adds to the Hessian."""


@dataclass(frozen=True)
class Rows:
    """T documents with C slots: what logits are made of."""

    shared: Tensor
    """(T, C, G) numbers about each slot; one weight each, the same for all slots"""
    own: Tensor
    """(T, F) numbers about the document; one weight per slot"""
    open: Tensor
    """(T, C) whether there is such a slot"""
    labels: Tensor
    """(T,) int64 the right slot; -1 where none is"""


@dataclass(frozen=True)
class Priors:
    """Standard deviations of the weights' Gaussian priors: d is a ridge of 1 / d², 0 holds a weight at 0."""

    shared: Tensor
    """(B, G)"""
    own: Tensor
    """(B, F)"""

    def at(self, index: Tensor) -> Priors:
        """Some of the regressions'."""
        return Priors(self.shared[index], self.own[index])


@dataclass(frozen=True)
class Weights:
    """What B regressions learned: logit of slot c is shared_c @ a + b_c + own @ W_c."""

    shared: Tensor
    """(B, G) a"""
    bias: Tensor
    """(B, C) b; (B, 1), zeros, where slots have no meaning of their own"""
    own: Tensor
    """(B, F, C) W; (B, 0, 1) where slots have no meaning of their own"""

    def probabilities(self, rows: Rows) -> Tensor:
        """(B, T, C) distributions over the open slots; a row without any is all 0."""
        logits = torch.einsum("tcg,bg->btc", rows.shared, self.shared) + self.bias[:, None]
        logits = logits + torch.einsum("tf,bfc->btc", rows.own, self.own)
        return torch.softmax(logits.masked_fill(~rows.open, -torch.inf), -1).nan_to_num(0.0)

    def at(self, index: slice | Tensor) -> Weights:
        """Some of the regressions."""
        return Weights(self.shared[index], self.bias[index], self.own[index])


def fit_many(
    rows: Rows, taken: Tensor, priors: Priors, *, biased: bool, start: Weights | None = None,
    tolerance: float = 0.1,
) -> Weights:  # fmt: skip
    """Solve B problems: the cross-entropy summed over the rows that each takes, plus the priors' ridges.

    `taken` (B, T) holds 0 or 1. Cross-entropy is the policy gradient over all slots: the logarithm of the
    reward expected when the right slot earns 1. Rows without a right slot teach nothing. Not `biased`, slots
    have no meaning of their own, and rows no `own` numbers. `start` holds B earlier solutions to set out
    from; the solution is one where no gradient exceeds `tolerance`.
    """
    n_problems, n_rows = taken.shape
    n_shared, n_slots, n_own = rows.shared.shape[2], rows.open.shape[1], rows.own.shape[1]
    weight = taken * (rows.labels >= 0) * rows.open.any(1)
    right = torch.nn.functional.one_hot(rows.labels.clamp(min=0), n_slots).to(rows.shared.dtype)
    closed = torch.where(rows.open, 0.0, -torch.inf).to(rows.shared.dtype)
    closed[~rows.open.any(1)] = 0.0
    flat = rows.shared.reshape(n_rows * n_slots, n_shared)
    sizes = [n_shared, n_slots if biased else 1, n_own * n_slots]

    def loss(x: Tensor) -> tuple[Tensor, Tensor]:
        a, b, w = torch.split(x, sizes, 1)  # a and w in deviations of their priors
        own = (w.view(n_problems, n_own, n_slots) * priors.own[..., None]).permute(1, 0, 2)
        logits = (rows.own @ own.reshape(n_own, n_problems * n_slots)).view(n_rows, n_problems, n_slots)
        logits = logits + (flat @ (a * priors.shared).T).view(n_rows, n_slots, n_problems).transpose(1, 2)
        logits = logits + b + closed[:, None]
        log_p = torch.log_softmax(logits, -1)
        at_label = log_p.gather(-1, rows.labels.clamp(min=0)[:, None, None].expand(-1, n_problems, 1))
        value = -(at_label[..., 0] * weight.T).sum(0) + 0.5 * (
            a.square().sum(1) + _BIAS_RIDGE * b.square().sum(1) + w.square().sum(1)
        )
        residual = (log_p.exp() - right[:, None]) * weight.T[..., None]  # (T, B, C)
        to_shared = (flat.T @ residual.transpose(1, 2).reshape(-1, n_problems)).T * priors.shared + a
        to_bias = residual.sum(0) + _BIAS_RIDGE * b if biased else torch.zeros_like(b)
        to_own = (rows.own.T @ residual.reshape(n_rows, -1)).view(n_own, n_problems, n_slots).transpose(0, 1)
        to_own = (to_own * priors.own[..., None]).reshape(n_problems, -1) + w
        return value, torch.cat([to_shared, to_bias, to_own], 1)

    def precondition(x: Tensor) -> Tensor:
        """The inverse of a bound of the Hessian, block by block (Böhning 1992)."""
        a, b, w = torch.split(x, sizes, 1)
        to_shared = torch.cholesky_solve(a[..., None], shared_factors)[..., 0]
        to_own = torch.cholesky_solve(w.view(n_problems, n_own, n_slots), own_factors)
        return torch.cat([to_shared, b / n_rows, to_own.flatten(1)], 1)

    shared_factors, own_factors = _factors(flat, priors.shared), _factors(rows.own, priors.own)
    x = rows.shared.new_zeros((n_problems, sum(sizes)))
    if start is not None:
        a, w = _over(start.shared, priors.shared), _over(start.own, priors.own[..., None])
        x = torch.cat([a, start.bias, w.flatten(1)], 1)
    a, b, w = torch.split(minimise(loss, x, precondition, tolerance), sizes, 1)
    own = w.view(n_problems, n_own, n_slots) * priors.own[..., None]
    return Weights(a * priors.shared, b, own if biased else own[..., :1])


def _factors(numbers: Tensor, deviations: Tensor) -> Tensor:
    """(B, F, F) Cholesky factors of the curvature bound, for rows of F numbers."""
    gram = _CURVATURE * numbers.T @ numbers
    # numpy's, because torch's takes no rows of nothing
    _, first, kind = np.unique(deviations.cpu().numpy(), axis=0, return_index=True, return_inverse=True)
    distinct = deviations[torch.from_numpy(first)]
    identity = torch.eye(gram.shape[0], dtype=gram.dtype, device=gram.device)
    factors: Tensor = torch.linalg.cholesky(distinct[:, :, None] * gram * distinct[:, None] + identity)
    return factors[torch.from_numpy(kind)]


def _over(weights: Tensor, deviations: Tensor) -> Tensor:
    """Weights in deviations of their priors."""
    return torch.where(deviations > 0, weights / deviations, 0.0)


def minimise(
    loss: Callable[[Tensor], tuple[Tensor, Tensor]],
    x: Tensor,
    precondition: Callable[[Tensor], Tensor] = lambda gradient: gradient,
    tolerance: float = 1e-3,
    *,
    iterations: int = 300,
    memory: int = 10,
) -> Tensor:
    """L-BFGS (Nocedal and Wright, algorithm 7.5) on B problems at once; `x` is (B, P).

    `loss` returns values (B,) and gradients (B, P). A problem is done when no gradient exceeds `tolerance` or
    no step lowers its value.
    """
    value, gradient = loss(x)
    steps: list[tuple[Tensor, Tensor, Tensor]] = []
    active = gradient.abs().amax(1) > tolerance
    for _ in range(iterations):
        if not active.any():
            break
        direction = -_two_loops(gradient, steps, precondition)
        descent = (gradient * direction).sum(1)  # the directional derivative
        uphill = descent >= 0
        direction = torch.where(uphill[:, None], -precondition(gradient), direction)
        descent = torch.where(uphill, (gradient * direction).sum(1), descent)
        length = torch.ones_like(value)
        direction = direction * active[:, None]
        for _halving in range(20):
            candidate = x + length[:, None] * direction
            new_value, new_gradient = loss(candidate)
            accepted = (new_value <= value + 1e-4 * length * descent) | ~active
            if accepted.all():
                break
            length = torch.where(accepted, length, length / 2)
        moved = (active & accepted)[:, None]
        step = torch.where(moved, candidate - x, 0.0)
        change = torch.where(moved, new_gradient - gradient, 0.0)
        curvature = (step * change).sum(1)
        steps = [*steps[1 - memory :], (step, change, torch.where(curvature > 1e-12, 1 / curvature, 0.0))]
        x = x + step
        value = torch.where(moved[:, 0], new_value, value)
        gradient = torch.where(moved, new_gradient, gradient)
        active = active & accepted & (gradient.abs().amax(1) > tolerance)
    return x


def _two_loops(
    gradient: Tensor,
    steps: Sequence[tuple[Tensor, Tensor, Tensor]],
    precondition: Callable[[Tensor], Tensor],
) -> Tensor:
    """The inverse Hessian, as the last steps suggest it, times the gradient."""
    q, alphas = gradient, []
    for step, change, inverse in reversed(steps):
        alpha = inverse * (step * q).sum(1)
        q = q - alpha[:, None] * change
        alphas.append(alpha)
    q = precondition(q)
    if steps:
        step, change, _ = steps[-1]
        bend = (step * change).sum(1) / (change * precondition(change)).sum(1)
        q = q * torch.where(bend > 0, bend, 1.0)[:, None]
    for (step, change, inverse), alpha in zip(steps, reversed(alphas), strict=True):
        q = q + (alpha - inverse * (change * q).sum(1))[:, None] * step
    return q
