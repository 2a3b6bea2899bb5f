"""Fusion: ridge-penalised softmax regressions over the same rows, solved side by side, and their mixture."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from rlfocal.base.arrays import Floats, Ints

MIN_PROBABILITY = 1e-6
"""The value to which lower probabilities are raised before logarithms are taken."""
_BIAS_RIDGE = 10.0
"""The ridge penalty of biases: the best of 0.01, 3, 10 and 30 on held-out train rows of BIG-Bench Hard."""
_MIN_THREADED_SIZE = 100_000
"""The size of arrays, in numbers, from which arithmetic takes longer than the overhead of a call."""
_BLOCK_ROWS = 16_384
"""The most rows whose losses are computed at once, because larger arrays leave the processor's caches.

The tolerance of fits grows with the rows beyond, so that the number of steps stays the same.
"""
_MEAN_CURVATURE = 0.1
"""The curvature p (1 - p) that a row adds to the Hessian, about its mean."""


@dataclass(frozen=True)
class RegressionRows:
    """Features of T documents with C slots."""

    shared: Tensor
    """(T, C, G) features of each slot, each with one weight that all slots share"""
    own: Tensor
    """(T, F) features of the document, each with one weight per slot"""
    open: Tensor
    """(T, C) whether the slot exists"""
    labels: Tensor
    """(T,) int64 the right slot; -1 where no slot is right"""

    def take(self, rows: Tensor) -> RegressionRows:
        """The documents at these positions."""
        return RegressionRows(self.shared[rows], self.own[rows], self.open[rows], self.labels[rows])


@dataclass(frozen=True)
class Priors:
    """The Gaussian priors of the weights of B regressions, by their standard deviations.

    A deviation d is a ridge of 1 / d²; at 0 the weight is 0.
    """

    shared: Tensor
    """(B, G) the deviations of the weights that slots share"""
    own: Tensor
    """(B, F) the deviations of the weights that each slot has"""
    bias: Tensor | None = None
    """(B,) ridge penalties on the biases; None: _BIAS_RIDGE"""

    def select(self, index: Tensor) -> Priors:
        """The priors of the regressions at these positions."""
        return Priors(self.shared[index], self.own[index], None if self.bias is None else self.bias[index])


@dataclass(frozen=True)
class Weights:
    """The weights of B regressions: the logit of slot c is shared_c @ a + b_c + own @ W_c."""

    shared: Tensor
    """(B, G) the weights that slots share, a"""
    bias: Tensor
    """(B, C) b, the biases; (B, 1) zeros for regressions without biases"""
    own: Tensor
    """(B, F, C) W, the weights of each slot; (B, 0, 1) for regressions without biases"""

    def probabilities(self, rows: RegressionRows, offset: Tensor | None = None) -> Tensor:
        """(B, T, C) distributions over the open slots, from logits to which `offset` (B, T, C) is added.

        A row without any open slot is all 0.
        """
        logits = torch.einsum("tcg,bg->btc", rows.shared, self.shared) + self.bias[:, None]
        logits = logits + torch.einsum("tf,bfc->btc", rows.own, self.own)
        logits = logits if offset is None else logits + offset
        return torch.softmax(logits.masked_fill(~rows.open, -torch.inf), -1).nan_to_num(0.0)

    def select(self, index: slice) -> Weights:
        """The weights of the regressions in this slice."""
        return Weights(self.shared[index], self.bias[index], self.own[index])


@dataclass(frozen=True)
class Mixture:
    """Fusion at one stage of asking: a mixture of regressions over the outputs of the asked models."""

    weights: Weights
    """The weights of R regressions."""
    shares: Floats
    """(R,) each regression's share of the mixture"""

    def probabilities(self, rows: RegressionRows) -> Floats:
        """(T, C) distributions over the open slots."""
        return np.asarray(np.einsum("r,rtc->tc", self.shares, self.weights.probabilities(rows).numpy()))


def fit_many(
    rows: RegressionRows, row_mask: Tensor, priors: Priors, *,
    has_biases: bool, tolerance: float = 0.1, offset: Tensor | None = None,
) -> Weights:  # fmt: skip
    """Fits B regressions side by side, each by cross-entropy summed over some rows, plus its ridge penalties.

    `row_mask` (B, T): 1 for the rows of each regression, else 0. `offset` (B, T, C) is added to the logits.
    Rows without a right slot are ignored. Without `has_biases`, slots have no fixed meaning, and rows have no
    `own` features. At the solution no gradient component exceeds `tolerance`, which grows with the rows
    beyond _BLOCK_ROWS. Every fit starts from zero, so that other rows cannot affect it.
    """
    n_slots = rows.open.shape[1]
    slots = torch.nonzero(rows.open.any(0))[:, 0] if has_biases else torch.arange(n_slots)
    occurs = (rows.own != 0).any(0)
    n_problems, width = len(row_mask), n_slots if has_biases else 1
    shared = rows.shared.new_zeros((n_problems, rows.shared.shape[2]))
    bias = rows.shared.new_zeros((n_problems, width))
    own = rows.shared.new_zeros((n_problems, rows.own.shape[1], width))
    for problems in _group_problems(priors, rows.shared.numel() >= _MIN_THREADED_SIZE):
        some = priors.select(problems)
        shared_at = torch.nonzero((some.shared > 0).any(0))[:, 0]
        own_at = torch.nonzero((some.own > 0).any(0) & occurs)[:, 0]
        solved = _solve(
            RegressionRows(
                rows.shared[:, slots][..., shared_at],
                rows.own[:, own_at],
                rows.open[:, slots],
                _place_labels(rows.labels, slots, n_slots),
            ),
            row_mask[problems],
            replace(some, shared=some.shared[:, shared_at], own=some.own[:, own_at]),
            None if offset is None else offset[problems][:, :, slots],
            has_biases=has_biases,
            tolerance=tolerance,
        )
        places = slots[:width]
        shared[problems[:, None], shared_at] = solved.shared
        bias[problems[:, None], places] = solved.bias
        own[problems[:, None, None], own_at[:, None], places] = solved.own
    return Weights(shared, bias, own)


def _group_problems(priors: Priors, many: bool) -> list[Tensor]:
    """The positions of regressions, grouped by the features that they use, to compute no other features.

    There is one group unless the rows have `many` numbers.
    """
    n_problems = len(priors.shared)
    if not many:
        return [torch.arange(n_problems)]
    uses = torch.cat([priors.shared > 0, priors.own > 0], 1).numpy()
    _, kind = np.unique(uses, axis=0, return_inverse=True)
    return [torch.from_numpy(np.flatnonzero(kind == number)) for number in range(int(kind.max()) + 1)]


def _place_labels(labels: Tensor, slots: Tensor, n_slots: int) -> Tensor:
    """(T,) labels as positions among `slots`; -1 where the right slot is not among these."""
    place = torch.full((n_slots + 1,), -1, dtype=labels.dtype)
    place[slots] = torch.arange(len(slots), dtype=labels.dtype)
    return place[labels]  # -1 finds the last entry, -1


def _solve(
    rows: RegressionRows,
    row_mask: Tensor,
    priors: Priors,
    offset: Tensor | None,
    *,
    has_biases: bool,
    tolerance: float,
) -> Weights:
    """Fits B regressions as `fit_many` does, but to rows in which all slots and features occur."""
    n_problems, n_rows = row_mask.shape
    n_shared, n_slots, n_own = rows.shared.shape[2], rows.open.shape[1], rows.own.shape[1]
    weight = (row_mask * ((rows.labels >= 0) & rows.open.any(1))).T  # (T, B)
    label = rows.labels.clamp(min=0)
    right = torch.nn.functional.one_hot(label, n_slots).to(rows.shared.dtype)
    closed = torch.where(rows.open, 0.0, -torch.inf).to(rows.shared.dtype)
    closed[~rows.open.any(1)] = 0.0
    fixed = closed[:, None] if offset is None else closed[:, None] + offset.transpose(0, 1)
    bias_ridge = _BIAS_RIDGE if priors.bias is None else priors.bias[:, None]
    at_label = label[:, None, None].expand(-1, n_problems, 1)
    flat = rows.shared.reshape(n_rows * n_slots, n_shared)
    sizes = [n_shared, n_slots if has_biases else 1, n_own * n_slots]
    blocks = [slice(first, first + _BLOCK_ROWS) for first in range(0, max(n_rows, 1), _BLOCK_ROWS)]

    def loss(x: Tensor) -> tuple[Tensor, Tensor]:
        a, b, w = torch.split(x, sizes, 1)  # a and w in deviations of their priors
        own = (w.view(n_problems, n_own, n_slots) * priors.own[..., None]).transpose(0, 1)
        own = own.reshape(n_own, n_problems * n_slots)
        parts = [loss_of(at, (a * priors.shared).T, b, own) for at in blocks]
        log_score, to_shared, to_bias, to_own = (sum(part[1:], part[0]) for part in zip(*parts, strict=True))
        value = -log_score + 0.5 * (a.square().sum(1) + (bias_ridge * b.square()).sum(1) + w.square().sum(1))
        to_shared = to_shared.T * priors.shared + a
        to_bias = to_bias + bias_ridge * b if has_biases else torch.zeros_like(b)
        to_own = to_own.view(n_own, n_problems, n_slots).transpose(0, 1) * priors.own[..., None]
        return value, torch.cat([to_shared, to_bias, to_own.reshape(n_problems, -1) + w], 1)

    def loss_of(at: slice, shared: Tensor, bias: Tensor, own: Tensor) -> tuple[Tensor, ...]:
        """(B,) the log score of the rows `at`, and the gradients of its negative in the three weights."""
        taken_rows, of_own_rows = weight[at], rows.own[at]
        of_shared_rows = rows.shared[at].reshape(-1, n_shared)
        logits = (of_own_rows @ own).view(-1, n_problems, n_slots)
        logits = logits + (of_shared_rows @ shared).view(-1, n_slots, n_problems).transpose(1, 2)
        log_p = torch.log_softmax(logits + bias + fixed[at], -1)
        log_score = (log_p.gather(-1, at_label[at])[..., 0] * taken_rows).sum(0)
        residual = (log_p.exp() - right[at, None]) * taken_rows[..., None]  # (rows, B, C)
        to_shared = of_shared_rows.T @ residual.transpose(1, 2).reshape(-1, n_problems)
        return log_score, to_shared, residual.sum(0), of_own_rows.T @ residual.reshape(len(residual), -1)

    def precondition(x: Tensor) -> Tensor:
        """(B, P) x times the inverse of a bound on the Hessian, block by block (Böhning 1992)."""
        a, b, w = torch.split(x, sizes, 1)
        to_shared = of_shared(a[..., None])[..., 0]
        to_own = of_own(w.view(n_problems, n_own, n_slots)).flatten(1)
        return torch.cat([to_shared, b / n_rows, to_own], 1)

    of_shared, of_own = _make_divider(flat, priors.shared), _make_divider(rows.own, priors.own)
    start = rows.shared.new_zeros((n_problems, sum(sizes)))
    tolerance *= max(1.0, n_rows / _BLOCK_ROWS)
    a, b, w = torch.split(minimise(loss, start, precondition, tolerance), sizes, 1)
    own = w.view(n_problems, n_own, n_slots) * priors.own[..., None]
    return Weights(a * priors.shared, b, own if has_biases else own[..., :1])


def _make_divider(numbers: Tensor, deviations: Tensor) -> Callable[[Tensor], Tensor]:
    """A function that divides (B, F, C) by the curvature bound of the rows `numbers` (T, F).

    `deviations` (B, F) are those of the priors.
    """
    gram = _MEAN_CURVATURE * numbers.T @ numbers
    # numpy's, because torch's rejects empty rows
    _, first, kind = np.unique(deviations.numpy(), axis=0, return_index=True, return_inverse=True)
    distinct = deviations[torch.from_numpy(first)]
    identity = torch.eye(len(gram), dtype=gram.dtype)
    factors = torch.linalg.cholesky(distinct[:, :, None] * gram * distinct[:, None] + identity)
    members = [torch.from_numpy(np.flatnonzero(kind == number)) for number in range(len(first))]

    def divide(x: Tensor) -> Tensor:
        out = torch.empty_like(x)
        for factor, problems in zip(factors, members, strict=True):
            sides = x[problems].transpose(0, 1)
            out[problems] = torch.cholesky_solve(sides.flatten(1), factor).view(sides.shape).transpose(0, 1)
        return out

    return divide


def minimise(
    loss: Callable[[Tensor], tuple[Tensor, Tensor]],
    x: Tensor,
    precondition: Callable[[Tensor], Tensor] = lambda gradient: gradient,
    tolerance: float = 1e-3,
    *,
    iterations: int = 300,
    memory: int = 10,
) -> Tensor:
    """(B, P) the minima of B functions, found at once by L-BFGS (Nocedal and Wright, algorithm 7.5) from `x`.

    `loss` returns values (B,) and gradients (B, P). A function is done when no gradient component exceeds
    `tolerance` or no step lowers its value.
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
    """(B, P) the inverse Hessian, estimated from the last steps, times the gradient."""
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


# ---- Fusion at one stage of asking


_MAX_WEIGHING_DOCUMENTS = 3_000
_MAX_HELD_OUT_DOCUMENTS = 2 * _BLOCK_ROWS
"""The most train documents to which out-of-fold regressions are fitted; they then decide on all."""
_HELD_OUT_TOLERANCE = 0.5
"""The tolerance of out-of-fold fits, which only choose shares and train the Decider."""


def select_comparison_rows(n: int, most: int = _MAX_WEIGHING_DOCUMENTS) -> Ints:
    """At most `most` evenly spaced positions among n documents, on which models and recipes are compared."""
    return np.linspace(0, n - 1, min(n, most)).round().astype(np.int64)


class Stage(NamedTuple):
    """Fusion after one stage of asking, for S seeds."""

    weights: Weights
    """One regression per recipe, on all train rows"""
    shares: Floats
    """(S, R) the shares of the recipes in each seed's mixture"""
    out_of_fold: Floats
    """(S, T, C) each document's distribution by Fusion fitted without the document's fold"""

    def fusion(self, seed: int) -> Mixture:
        return Mixture(self.weights, self.shares[seed])


def fit_stage(rows: RegressionRows, priors: Priors, held_out: Ints, *, has_biases: bool) -> Stage:
    """Fits the regressions of all recipes to all of train, and to all but each fold of each seed.

    `held_out` (S, T): the fold of each document, for each seed.
    """
    n_recipes, n_rows = len(priors.shared), len(rows.labels)
    whole = fit_many(rows, rows.shared.new_ones((n_recipes, n_rows)), priors, has_biases=has_biases)
    out_of_fold = np.zeros((len(held_out), n_recipes, n_rows, rows.open.shape[1]))

    sample = torch.from_numpy(select_comparison_rows(n_rows, _MAX_HELD_OUT_DOCUMENTS))
    sampled = rows if len(sample) == n_rows else rows.take(sample)

    def fit_out_of_fold(of_seed: Floats, part: Tensor) -> None:
        n_folds = int(part.max()) + 1
        taken = (part[sample] != torch.arange(n_folds)[:, None]).to(rows.shared.dtype)  # (folds, sample)
        fitted = fit_many(
            sampled,
            taken.repeat_interleave(n_recipes, 0),
            priors.select(torch.arange(n_recipes).repeat(n_folds)),
            has_biases=has_biases,
            tolerance=_HELD_OUT_TOLERANCE,
        )
        for fold in range(n_folds):
            out = torch.nonzero(part == fold)[:, 0]
            of_fold = fitted.select(slice(fold * n_recipes, (fold + 1) * n_recipes))
            of_seed[:, out.numpy()] = of_fold.probabilities(rows.take(out)).numpy()

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(fit_out_of_fold, out_of_fold, torch.from_numpy(held_out)))
    labels = rows.labels.numpy()
    labelled = np.flatnonzero(labels >= 0)
    shares = np.stack([mixture(of_seed[:, labelled, labels[labelled]].T) for of_seed in out_of_fold])
    return Stage(whole, shares, np.einsum("sr,srtc->stc", shares, out_of_fold))


def mixture(at_label: Floats, iterations: int = 200) -> Floats:
    """(R,) shares of the recipes that maximise the likelihood of the labels, by EM.

    `at_label` (T, R) are the labels' probabilities. The prior counts as one document, split evenly.
    """
    n, n_recipes = at_label.shape
    even = np.full(n_recipes, 1 / n_recipes)
    shares, everyone = even, np.ones(n)
    for _ in range(iterations):
        owed = np.maximum(at_label, 1e-6) * shares
        owed /= owed.sum(axis=1, keepdims=True)
        shares = everyone @ owed + even
        shares /= shares.sum()
    return shares
