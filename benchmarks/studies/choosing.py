"""Choosing a team of models by a linear rule on what a few labelled documents say about every candidate.

Shapes: P candidate teams of N models, E occasions to choose one, K features of a team.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

from rlfocal.base.arrays import Bools, Floats, Ints, Texts
from rlfocal.data.dataset import Dataset
from rlfocal.statistics.diversity import every_pool, pool_diversity
from rlfocal.statistics.metrics import METRICS
from rlfocal.statistics.votes import pluralities

MAX_TEAM_SIZE, MAX_TEAMS = 4, 300
"""Models in the largest candidate team, and how many candidates are drawn where there are more."""
RIDGE = 1e-3
"""The ridge of rules, as a share of a feature's sum of squares; that of log-linear weights, as it is."""
N_BASE_FEATURES = 3
"""Features that every rule reads: the team's accuracy, its members' mean accuracy, and its size."""
_MAX_FITTED_DOCUMENTS, _STEPS = 2_000, 12
"""Documents that a log-linear ensemble is fitted on, at most, and its Newton steps."""


def candidate_teams(n_models: int) -> Bools:
    """(P, N) every team of 2 to MAX_TEAM_SIZE models; of more than MAX_TEAMS, as many drawn of each size."""
    largest = min(MAX_TEAM_SIZE, n_models)
    teams = every_pool(n_models, largest)
    if len(teams) <= MAX_TEAMS:
        return teams
    rng, sizes = np.random.default_rng(0), teams.sum(axis=1)
    share = MAX_TEAMS // (largest - 1)
    kept = [rng.permutation(np.flatnonzero(sizes == size))[:share] for size in range(2, largest + 1)]
    drawn: Bools = teams[np.sort(np.concatenate(kept))]
    return drawn


def vote_hits(data: Dataset, teams: Bools) -> Floats:
    """(T, P) 1 where a team's plurality is right."""
    hits = np.zeros((len(data), len(teams)))
    for rows, team, right in pluralities(data.predictions, data.labels, teams, data.kind):
        hits[rows, team] = right
    return hits


def log_linear_hits(data: Dataset, teams: Bools) -> Floats:
    """(T, P) 1 where a team's log-linear ensemble is right: a weight per member, fitted on train.

    Each half of train is answered by weights fitted on the other, so that train's accuracies are not those of
    the documents that were fitted.
    """
    exists = np.arange(data.logprobs.shape[2]) < data.n_choices[:, None]
    x = np.where(exists[:, None], np.maximum(data.logprobs, np.log(1e-6)), 0.0)
    closed = np.where(exists, 0.0, -np.inf)
    half = np.arange(len(data)) % 2
    draw = np.random.default_rng(0).permutation(len(data))
    parts = [(data.is_train & (half == 1 - h), data.is_train & (half == h)) for h in (0, 1)]
    parts.append((data.is_train, ~data.is_train))
    hits = np.zeros((len(data), len(teams)))
    for fitted, answered in parts:
        on = draw[(fitted & (data.labels >= 0))[draw]][:_MAX_FITTED_DOCUMENTS]
        for p, team in enumerate(teams):
            weights = _fit_weights(x[on][:, team], closed[on], data.labels[on])
            logits = np.einsum("tmc,m->tc", x[answered][:, team], weights) + closed[answered]
            hits[answered, p] = logits.argmax(axis=1) == data.labels[answered]
    return hits


def _fit_weights(x: Floats, closed: Floats, labels: Ints) -> Floats:
    """(M,) the weights of (T, M, C) log-probs with the least cross-entropy, by Newton's method."""
    weights = np.full(x.shape[1], 1 / x.shape[1])
    right = np.take_along_axis(x, labels[:, None, None], axis=2)[:, :, 0]
    for _ in range(_STEPS):
        p = softmax(np.einsum("tmc,m->tc", x, weights) + closed, axis=1)
        mean = np.einsum("tmc,tc->tm", x, p)
        weighted = (x * p[:, None]).transpose(1, 0, 2).reshape(x.shape[1], -1)
        second = weighted @ x.transpose(1, 0, 2).reshape(x.shape[1], -1).T - mean.T @ mean
        slope = (right - mean).sum(axis=0) - RIDGE * weights
        step = np.linalg.solve(second + (RIDGE + 1e-6 * len(x)) * np.eye(len(weights)), slope)
        weights = weights + step
        if np.abs(step).max() < 1e-4:
            break
    return weights


@dataclass(frozen=True)
class Occasions:
    """Occasions to choose a team from labelled documents, and what a choice is worth."""

    features: Floats
    """(E, P, N_BASE_FEATURES + K + 1) accuracies and size, the K metrics, and the first of them shuffled."""
    accuracies: Floats
    """(E, P) each team's accuracy on the documents that it is chosen for."""
    groups: Texts
    """(E,) the group of each occasion; the rule for a group is fitted on all others."""
    tasks: Texts
    """(E,) the task of the documents that it is chosen for."""


def describe(data: Dataset, teams: Bools, hits: Floats, names: Sequence[str], draw: int) -> Floats:
    """(P, N_BASE_FEATURES + K + 1) features of the teams, from labelled documents and their `hits` (T, P)."""
    members = teams @ data.correct.mean(axis=0) / teams.sum(axis=1)
    metrics = pool_diversity(data.predictions, data.labels, teams, kind=data.kind, wanted=names).metrics
    columns = [hits.mean(axis=0), members, teams.sum(axis=1), *(metrics[name] for name in names)]
    noise = np.random.default_rng(draw).permutation(columns[N_BASE_FEATURES])
    return np.column_stack([*columns, noise])


def centred(values: Floats) -> Floats:
    """(E, P, ...) minus the mean over the teams of an occasion; 0 where a metric is not defined."""
    is_known = np.isfinite(values)
    filled = np.where(is_known, values, 0.0)
    mean = filled.sum(axis=1, keepdims=True) / np.maximum(is_known.sum(axis=1, keepdims=True), 1)
    return np.where(is_known, filled - mean, 0.0)


@dataclass(frozen=True)
class Rules:
    """Least-squares rules for a team's worth, one for each group, fitted on all other groups."""

    squares: Floats
    """(F, F) sums over all groups"""
    products: Floats
    """(F,)"""
    of_group: dict[str, tuple[Floats, Floats]]

    @classmethod
    def fit(cls, learned: Occasions) -> Rules:
        x, y = centred(learned.features), centred(learned.accuracies)
        of_group = {
            group: (
                np.einsum("epf,epg->fg", x[occasions], x[occasions]),
                np.einsum("epf,ep->f", x[occasions], y[occasions]),
            )
            for group, occasions in _groups(learned.groups)
        }
        squares, products = (np.sum([sums[i] for sums in of_group.values()], axis=0) for i in (0, 1))
        return cls(squares, products, of_group)

    def weights(self, group: str, columns: Sequence[int]) -> Floats:
        """(K,) the weights of the features in these columns, by the rule for this group."""
        squares, products = self.squares, self.products
        if group in self.of_group and len(self.of_group) > 1:
            squares, products = squares - self.of_group[group][0], products - self.of_group[group][1]
        squares = squares[np.ix_(columns, columns)]
        ridge = np.diag(RIDGE * squares.diagonal() + 1e-9)
        return np.asarray(np.linalg.solve(squares + ridge, products[list(columns)]))


def choose(rules: Rules, occasions: Occasions, columns: Sequence[int]) -> Floats:
    """(E,) the accuracy of the team that the rule on these columns chooses; of tied teams, their mean."""
    x = centred(occasions.features[:, :, columns])
    accuracy = np.empty(len(x))
    for group, rows in _groups(occasions.groups):
        scores = x[rows] @ rules.weights(group, columns)
        best = scores >= scores.max(axis=1, keepdims=True) - 1e-9
        accuracy[rows] = (occasions.accuracies[rows] * best).sum(axis=1) / best.sum(axis=1)
    return accuracy


def gains(
    learned: Occasions, occasions: Occasions, names: Sequence[str] = tuple(METRICS)
) -> dict[str, Floats]:
    """(E,) by metric, the accuracy of the teams chosen with it; "": without any, "noise": a shuffled one."""
    rules, base = Rules.fit(learned), list(range(N_BASE_FEATURES))
    columns = {"": base} | {name: [*base, N_BASE_FEATURES + k] for k, name in enumerate([*names, "noise"])}
    return {name: choose(rules, occasions, of) for name, of in columns.items()}


def _groups(names: Texts) -> Iterator[tuple[str, Ints]]:
    for name in np.unique(names):
        yield str(name), np.flatnonzero(names == name)
