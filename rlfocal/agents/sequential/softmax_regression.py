"""Many ridge-penalised softmax regressions over the same rows, solved side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

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
    rows: Rows, taken: Tensor, scales: Tensor, *, shared_ridge: float, own_ridge: float, biased: bool,
    start: Weights | None = None, tolerance: float = 0.1,
) -> Weights:  # fmt: skip
    """Solve B problems: the cross-entropy summed over the rows that each takes, plus ridges.

    `taken` (B, T) holds 0 or 1. `scales` (B, F) shrinks or, at 0, leaves out a document's numbers: scale s is
    a ridge of own_ridge / s². Cross-entropy is the policy gradient over all slots: the logarithm of the
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
        a, b, w = torch.split(x, sizes, 1)
        own = (w.view(n_problems, n_own, n_slots) * scales[..., None]).permute(1, 0, 2)
        logits = (rows.own @ own.reshape(n_own, n_problems * n_slots)).view(n_rows, n_problems, n_slots)
        logits = logits + (flat @ a.T).view(n_rows, n_slots, n_problems).transpose(1, 2)
        logits = logits + b + closed[:, None]
        log_p = torch.log_softmax(logits, -1)
        at_label = log_p.gather(-1, rows.labels.clamp(min=0)[:, None, None].expand(-1, n_problems, 1))
        value = -(at_label[..., 0] * weight.T).sum(0) + 0.5 * (
            shared_ridge * a.square().sum(1) + _BIAS_RIDGE * b.square().sum(1) + own_ridge * w.square().sum(1)
        )
        surplus = (log_p.exp() - right[:, None]) * weight.T[..., None]  # (T, B, C)
        to_shared = (flat.T @ surplus.transpose(1, 2).reshape(-1, n_problems)).T + shared_ridge * a
        to_bias = surplus.sum(0) + _BIAS_RIDGE * b if biased else torch.zeros_like(b)
        to_own = (rows.own.T @ surplus.reshape(n_rows, -1)).view(n_own, n_problems, n_slots).transpose(0, 1)
        to_own = (to_own * scales[..., None]).reshape(n_problems, -1) + own_ridge * w
        return value, torch.cat([to_shared, to_bias, to_own], 1)

    def precondition(x: Tensor) -> Tensor:
        """The inverse of a bound of the Hessian, block by block (Böhning 1992)."""
        a, b, w = torch.split(x, sizes, 1)
        to_own = torch.cholesky_solve(w.view(n_problems, n_own, n_slots), own_factor[kinds])
        return torch.cat([torch.cholesky_solve(a.T, shared_factor).T, b / n_rows, to_own.flatten(1)], 1)

    named: dict[bytes, int] = {}
    kinds = torch.tensor([named.setdefault(row.numpy().tobytes(), len(named)) for row in scales.cpu()])
    distinct = scales[[kinds.tolist().index(kind) for kind in range(len(named))]]
    gram = _CURVATURE * rows.own.T @ rows.own
    identity = torch.eye(n_own, dtype=gram.dtype, device=gram.device)
    own_factor = torch.linalg.cholesky(distinct[:, :, None] * gram * distinct[:, None] + own_ridge * identity)
    identity = torch.eye(n_shared, dtype=gram.dtype, device=gram.device)
    shared_factor = torch.linalg.cholesky(_CURVATURE * flat.T @ flat + shared_ridge * identity)
    x = rows.shared.new_zeros((n_problems, sum(sizes)))
    if start is not None:
        unscaled = start.own * torch.where(scales > 0, 1 / scales, 0.0)[..., None]
        x = torch.cat([start.shared, start.bias, unscaled.flatten(1)], 1)
    a, b, w = torch.split(minimise(loss, x, precondition, tolerance), sizes, 1)
    own = w.view(n_problems, n_own, n_slots) * scales[..., None]
    return Weights(a, b, own if biased else own[..., :1])


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
        slope = (gradient * direction).sum(1)
        uphill = slope >= 0
        direction = torch.where(uphill[:, None], -precondition(gradient), direction)
        slope = torch.where(uphill, (gradient * direction).sum(1), slope)
        length = torch.ones_like(value)
        direction = direction * active[:, None]
        for _halving in range(20):
            candidate = x + length[:, None] * direction
            new_value, new_gradient = loss(candidate)
            accepted = (new_value <= value + 1e-4 * length * slope) | ~active
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
