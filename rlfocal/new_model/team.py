"""The log-linear team of a pool, and how its answers would change if one more model joined.

The newcomer's log-probs are split in two: the part that the members already express, and the rest r. The
team's information matrix on the documents that the newcomer answered gives the split. Then one weight of r is
fitted. If all documents are answered, this is a Newton step towards the fit of all weights. Each of 16 models
on MMLU was the newcomer in turn: the effects of both fits correlate by 0.98 or more. With 300 documents, its
error is half that of fitting all weights on them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.special import softmax

from rlfocal.base.arrays import Bools, Floats, Ints
from rlfocal.data.dataset import Dataset
from rlfocal.data.folds import folds, split_folds
from rlfocal.methods.log_linear import LogLinearPool, answer_highest, evidence, fit_log_linear

TEAM_FOLDS = 5
MEMBER_INFORMATION_SHARE = 0.1
"""The weight per document of the members' information on all documents, relative to that on the newcomer's
documents."""
UNNAMED_LOG_ODDS = 99.0
"""The log-odds assumed against a right answer that no member gave."""


@dataclass(frozen=True)
class Team:
    """A log-linear team of N members on T documents. Each of its fits uses four fifths of them, and decides
    the others."""

    dataset: Dataset
    folds: Ints
    """The fold of each document: (T,)."""
    fits: tuple[LogLinearPool, ...]
    """One fit for each fold, on the documents of all other folds."""

    @cached_property
    def x(self) -> Floats:
        """The members' evidence and, for choices, a constant for each slot: (T, P, C)."""
        x, _ = self._evidence
        T, _, C = x.shape
        constants = np.broadcast_to(np.eye(C), (T, C, C))
        return np.concatenate([x, constants], axis=1) if self.dataset.kind == "choices" else x

    @property
    def exists(self) -> Bools:
        """Whether each slot exists: (T, C)."""
        return self._evidence[1]

    @cached_property
    def _evidence(self) -> tuple[Floats, Bools]:
        return evidence(self.dataset, np.ones(len(self.dataset.models), dtype=np.bool_))

    def parameters(self, fold: int) -> Floats:
        """The parameters of the fit without this fold: (P,)."""
        fit = self.fits[fold]
        return np.concatenate([fit.weights, fit.biases]) if self.dataset.kind == "choices" else fit.weights

    @cached_property
    def information(self) -> tuple[Floats, ...]:
        """The information matrix (P, P) of each fit, per document that it was fitted on."""
        parts = []
        for fold in range(len(self.fits)):
            away = self.folds != fold
            of_fold = _information(self.x, self.parameters(fold), self.exists, away.astype(np.float64))
            parts.append(of_fold / max(away.sum(), 1))
        return tuple(parts)

    @cached_property
    def logits(self) -> Floats:
        """The logits of each slot, by the fit without the document's fold: (T, C)."""
        every = np.stack([self.parameters(fold) for fold in range(len(self.fits))])
        logits: Floats = np.einsum("tpc,tp->tc", self.x, every[self.folds])
        return logits

    def is_right(self, logits: Floats, x: Floats, exists: Bools, labels: Ints) -> Bools:
        """Whether the answer with the highest logit is right, with ties decided as in `log_linear`: (n,)."""
        slots = answer_highest(logits, x, exists, self.dataset.kind).slots
        return np.asarray((slots == labels) & (labels >= 0))

    @cached_property
    def right(self) -> Bools:
        """Whether the team is right on each document: (T,)."""
        return self.is_right(self.logits, self._evidence[0], self.exists, self.dataset.labels)

    @cached_property
    def lead(self) -> Floats:
        """The right slot's logit minus that of the best other slot, above 0 where the team is right: (T,)."""
        has_right = self.dataset.labels >= 0
        rows, label = np.arange(len(has_right)), np.maximum(self.dataset.labels, 0)
        others = np.where(self.exists, self.logits, -np.inf)
        right = others[rows, label]
        others[rows, label] = -np.inf
        lead = np.clip(right - others.max(axis=1), -UNNAMED_LOG_ODDS, UNNAMED_LOG_ODDS)
        return np.where(has_right & np.isfinite(right), lead, -UNNAMED_LOG_ODDS)

    @cached_property
    def upsets(self) -> Floats:
        """The share of members without whom the team would be wrong instead of right, or right instead of
        wrong: (T,). Each member is left out by one Newton step, which is exact for a quadratic loss."""
        n_members = len(self.dataset.models)
        theta = np.mean([self.parameters(fold) for fold in range(len(self.fits))], axis=0)
        inverse = np.linalg.pinv(_information(self.x, theta, self.exists, np.ones(len(self.x))))
        spread = np.maximum(np.diag(inverse)[:n_members], 1e-12)
        steps = inverse[:, :n_members] * (theta[:n_members] / spread)
        flips = np.zeros(len(self.x))
        for member in range(n_members):
            without = self.logits - np.einsum("tpc,p->tc", self.x, steps[:, member])
            right = self.is_right(without, self._evidence[0], self.exists, self.dataset.labels)
            flips += right != self.right
        return flips / n_members

    def effects(
        self, rows: Ints, weights: Floats, newcomer: TeamEvidence, is_sure: bool = False
    ) -> tuple[Floats, Floats]:
        """The changes if the newcomer joins, on the documents at `rows` (n,) with these `weights` (n,).

        Returns two arrays (n,): 1 where the team becomes right, -1 where it becomes wrong, else 0; and how
        far the right slot's lead moves. Each document is decided by fits on the newcomer's answers to other
        documents. With `is_sure`, the fit shrinks the newcomer's weight no more than a fit on all T documents
        does.
        """
        chance = len(rows) / len(self.x) if is_sure else 1.0
        x, exists = newcomer.widen(self.x[rows], self.exists[rows])
        logits, _ = newcomer.widen(self.logits[rows], self.exists[rows])
        change, moved = np.zeros(len(rows)), np.zeros(len(rows))
        n_members = len(self.dataset.models)
        for fold in np.unique(self.folds[rows]):
            away, here = self.folds[rows] != fold, self.folds[rows] == fold
            theta = self.parameters(fold)
            step = _fit_step(
                x[away], exists[away], newcomer.x[away], newcomer.labels[away], weights[away],
                theta, self.information[fold], n_members, chance,
            )  # fmt: skip
            added = step[-1] * newcomer.x[here] - np.einsum("tpc,p->tc", x[here], step[:-1])
            after = logits[here] + added
            seen = np.concatenate([x[here, :n_members], newcomer.x[here, None]], axis=1)
            right = self.is_right(after, seen, exists[here], newcomer.labels[here])
            change[here] = right.astype(np.float64) - self.right[rows[here]]
            moved[here] = _move(logits[here], added, exists[here], newcomer.labels[here])
        return change, moved

    def expected_effects(self, changes: Floats, weights: Floats) -> Floats:
        """The expected effect on each document, if leads move everywhere as they did on drawn documents:
        (T,)."""
        order = np.argsort(changes)
        reached = np.concatenate([[0.0], np.cumsum(weights[order]) / weights.sum()])
        below = reached[np.searchsorted(changes[order], -self.lead, side="right")]
        return np.where(self.lead > 0, below, 1 - below)


@dataclass(frozen=True)
class TeamEvidence:
    """A model's answers to n documents, as evidence for a team. A free answer that only the model gave has
    its own slot."""

    x: Floats
    """The model's evidence for each slot: (n, C')."""
    exists: Bools
    """Whether each slot exists: (n, C')."""
    labels: Ints
    """The right slot, which may be one that only the model gave; -1 where no answer is right: (n,)."""
    correct: Bools
    """Whether the model is right: (n,)."""
    predictions: Ints
    """The slot that the model predicts; -1 for none: (n,)."""

    def take(self, rows: Ints | Bools) -> TeamEvidence:
        """The answers to the documents at positions `rows`."""
        of = self.labels[rows], self.correct[rows], self.predictions[rows]
        return TeamEvidence(self.x[rows], self.exists[rows], *of)

    def widen(self, values: Floats, exists: Bools) -> tuple[Floats, Bools]:
        """The members' values (n, ..., C) and slots (n, C), widened by the slots that only the newcomer
        has."""
        missing = self.exists.shape[1] - exists.shape[1]
        pads = [(0, 0)] * (values.ndim - 1) + [(0, missing)]
        return np.pad(values, pads), self.exists | np.pad(exists, [(0, 0), (0, missing)])


def leave_out(data: Dataset, model: str) -> tuple[Dataset, TeamEvidence]:
    """The other models' answers to all T documents, and those of `model`, with the same slots."""
    place = data.models.index(model)
    others = np.arange(len(data.models)) != place
    rest = replace(
        data,
        models=tuple(name for name in data.models if name != model),
        probs=data.probs[:, others],
        logprobs=data.logprobs[:, others] if len(data.logprobs) else data.logprobs,
        predictions=data.predictions[:, others],
        prices=data.prices[others],
    )
    x = data.probs[:, place]
    exists = x > 0
    if data.kind == "choices":
        exists = np.arange(x.shape[1]) < data.n_choices[:, None]
        x = np.where(exists, data.logprobs[:, place], 0.0)
    return rest, TeamEvidence(x, exists, data.labels, data.correct[:, place], data.predictions[:, place])


def form_team(dataset: Dataset, seed: int) -> Team:
    """The log-linear team of a dataset's models. Raises RunError if a fit does not converge."""
    fold = folds(dataset, TEAM_FOLDS, seed=seed)
    members = np.ones(len(dataset.models), dtype=np.bool_)
    fits = tuple(fit_log_linear(dataset.take(rest), members) for rest, _ in split_folds(fold))
    return Team(dataset, fold, fits)


def _information(x: Floats, theta: Floats, exists: Bools, weights: Floats) -> Floats:
    """The Hessian of the weighted cross-entropy, which does not depend on the labels: (P, P)."""
    p = softmax(np.where(exists, np.einsum("tpc,p->tc", x, theta), -np.inf), axis=1)
    mean = np.einsum("tpc,tc->tp", x, p)
    rooted = (x * np.sqrt(p * weights[:, None])[:, None]).transpose(1, 0, 2).reshape(x.shape[1], -1)
    information: Floats = rooted @ rooted.T - (mean * weights[:, None]).T @ mean
    return information


def _fit_step(
    x: Floats,
    exists: Bools,
    new: Floats,
    labels: Ints,
    weights: Floats,
    theta: Floats,
    of_members: Floats,
    n_members: int,
    chance: float,
) -> Floats:
    """The value to subtract from each of the team's P parameters, and the newcomer's weight: (P + 1,)."""
    has_right = labels >= 0
    x, exists, new, labels = x[has_right], exists[has_right], new[has_right], labels[has_right]
    n = len(labels)
    if n == 0:
        return np.zeros(len(theta) + 1)
    weights = weights[has_right] / weights[has_right].mean()
    both = np.concatenate([x, new[:, None]], axis=1)
    information = _information(both, np.append(theta, 0.0), exists, weights)
    inner = information[:-1, :-1] + MEMBER_INFORMATION_SHARE * n * of_members + 1e-6 * np.eye(len(theta))
    shared = np.linalg.solve(inner, information[:-1, -1])
    rest = new - np.einsum("tpc,p->tc", x, shared)
    logits = np.einsum("tpc,p->tc", x, theta)
    rows, weight = np.arange(n), 0.0
    usual = max(float(np.mean(theta[:n_members] ** 2)), 1e-6)
    reach = float(np.sqrt(usual))
    for _ in range(50):
        p = softmax(np.where(exists, logits + weight * rest, -np.inf), axis=1)
        mean = (p * rest).sum(axis=1)
        slope = float(weights @ (mean - rest[rows, labels])) + chance * weight / usual
        curve = float(weights @ ((p * rest**2).sum(axis=1) - mean**2)) + chance / usual
        step = float(np.clip(slope / curve, -reach, reach))
        weight -= step
        if abs(step) < 1e-6 * reach:
            break
    # As James and Stein's positive part: a weight that may well be chance is none.
    weight *= max(0.0, 1 - chance / (curve * weight**2)) if weight else 0.0
    return np.append(weight * shared, weight)


def _move(logits: Floats, added: Floats, exists: Bools, labels: Ints) -> Floats:
    """The distance that the right slot's lead over the team's best other slot moves: (n,)."""
    rows, label = np.arange(len(labels)), np.maximum(labels, 0)
    others = np.where(exists, logits, -np.inf)
    others[rows, label] = -np.inf
    best = others.argmax(axis=1)
    return np.where(labels >= 0, added[rows, label] - added[rows, best], 0.0)
