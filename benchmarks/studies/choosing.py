"""Chooses a team of models by a linear rule on features of every candidate, from a few labelled documents.

Shapes: P candidate teams of N models, E occasions to choose one, K diversity metrics, F features of a team.
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
"""The number of models in the largest candidate team, and the largest number of candidates."""
RIDGE = 1e-3
"""The ridge on log-linear weights; for rules, the ridge as a share of a feature's sum of squares."""
N_BASE_FEATURES = 3
"""The features that every rule reads: a team's accuracy, its members' mean accuracy, and its size."""
_MAX_FITTED_DOCUMENTS, _STEPS = 2_000, 12
"""The largest number of documents that a log-linear ensemble is fitted to, and of its Newton steps."""


def candidate_teams(n_models: int) -> Bools:
    """(P, N) the candidates: teams of 2 to MAX_TEAM_SIZE models, at most MAX_TEAMS, drawn evenly by size."""
    largest = min(MAX_TEAM_SIZE, n_models)
    teams = every_pool(n_models, largest)
    if len(teams) <= MAX_TEAMS:
        return teams
    rng, sizes = np.random.default_rng(0), teams.sum(axis=1)
    share = MAX_TEAMS // (largest - 1)
    rows = [rng.permutation(np.flatnonzero(sizes == size))[:share] for size in range(2, largest + 1)]
    drawn: Bools = teams[np.sort(np.concatenate(rows))]
    return drawn


def vote_hits(data: Dataset, teams: Bools) -> Floats:
    """(T, P) 1 where a team's plurality is right."""
    hits = np.zeros((len(data), len(teams)))
    for rows, team, right in pluralities(data.predictions, data.labels, teams, data.kind):
        hits[rows, team] = right
    return hits


def log_linear_hits(data: Dataset, teams: Bools) -> Floats:
    """(T, P) 1 where a team's log-linear ensemble is right; its weights, one per member, are fitted on train.

    Each half of train is answered with weights fitted on the other half, so that train's accuracies are
    held-out ones.
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
    """(M,) the weights of M models' log-probs x (T, M, C) with the least cross-entropy, by Newton's method.
    `closed` (T, C) is -inf where a choice does not exist, else 0."""
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
    """E occasions to choose a team by features from labelled documents, and the accuracy of each choice."""

    features: Floats
    """(E, P, N_BASE_FEATURES + K + 1) accuracies and size, the K metrics, and the first metric shuffled."""
    accuracies: Floats
    """(E, P) each team's accuracy on the documents that a team is chosen for."""
    groups: Texts
    """(E,) the group of each occasion; the rule for a group is fitted on all other groups."""
    tasks: Texts
    """(E,) the task of the documents that a team is chosen for."""


def describe(data: Dataset, teams: Bools, hits: Floats, names: Sequence[str], draw: int) -> Floats:
    """(P, N_BASE_FEATURES + K + 1) the teams' features, from labelled documents and where teams are right.
    `hits` (T, P) is 1 where a team is right, `names` are the K metrics, and `draw` seeds the shuffled one."""
    members = teams @ data.correct.mean(axis=0) / teams.sum(axis=1)
    metrics = pool_diversity(data.predictions, data.labels, teams, kind=data.kind, wanted=names).metrics
    columns = [hits.mean(axis=0), members, teams.sum(axis=1), *(metrics[name] for name in names)]
    noise = np.random.default_rng(draw).permutation(columns[N_BASE_FEATURES])
    return np.column_stack([*columns, noise])


def centred(values: Floats) -> Floats:
    """(E, P, ...) the values minus their mean over the teams of an occasion; 0 where a value is undefined."""
    is_known = np.isfinite(values)
    filled = np.where(is_known, values, 0.0)
    mean = filled.sum(axis=1, keepdims=True) / np.maximum(is_known.sum(axis=1, keepdims=True), 1)
    return np.where(is_known, filled - mean, 0.0)


@dataclass(frozen=True)
class Rules:
    """Least-squares rules for a team's accuracy from F features, one for each group, fitted on all others."""

    squares: Floats
    """(F, F) the sums of products of two features, over all groups"""
    products: Floats
    """(F,) the sums of products of a feature and the accuracy, over all groups"""
    of_group: dict[str, tuple[Floats, Floats]]
    """The same two sums for each group alone."""

    @classmethod
    def fit(cls, train_occasions: Occasions) -> Rules:
        x, y = centred(train_occasions.features), centred(train_occasions.accuracies)
        of_group = {
            group: (
                np.einsum("epf,epg->fg", x[occasions], x[occasions]),
                np.einsum("epf,ep->f", x[occasions], y[occasions]),
            )
            for group, occasions in _groups(train_occasions.groups)
        }
        squares, products = (np.sum([sums[i] for sums in of_group.values()], axis=0) for i in (0, 1))
        return cls(squares, products, of_group)

    def weights(self, group: str, columns: Sequence[int]) -> Floats:
        """(len(columns),) the weights of the features in these columns, by the rule for this group."""
        squares, products = self.squares, self.products
        if group in self.of_group and len(self.of_group) > 1:
            squares, products = squares - self.of_group[group][0], products - self.of_group[group][1]
        squares = squares[np.ix_(columns, columns)]
        ridge = np.diag(RIDGE * squares.diagonal() + 1e-9)
        return np.asarray(np.linalg.solve(squares + ridge, products[list(columns)]))


def choose(rules: Rules, occasions: Occasions, columns: Sequence[int]) -> Floats:
    """(E,) the accuracy of the team chosen by features in `columns`; for tied teams, their mean."""
    x = centred(occasions.features[:, :, columns])
    accuracy = np.empty(len(x))
    for group, rows in _groups(occasions.groups):
        scores = x[rows] @ rules.weights(group, columns)
        best = scores >= scores.max(axis=1, keepdims=True) - 1e-9
        accuracy[rows] = (occasions.accuracies[rows] * best).sum(axis=1) / best.sum(axis=1)
    return accuracy


def gains(
    train_occasions: Occasions, occasions: Occasions, names: Sequence[str] = tuple(METRICS)
) -> dict[str, Floats]:
    """By metric, (E,) the accuracy of teams chosen with it; "": with none, "noise": with a shuffled one."""
    rules, base = Rules.fit(train_occasions), list(range(N_BASE_FEATURES))
    columns = {"": base} | {name: [*base, N_BASE_FEATURES + k] for k, name in enumerate([*names, "noise"])}
    return {name: choose(rules, occasions, of) for name, of in columns.items()}


def _groups(names: Texts) -> Iterator[tuple[str, Ints]]:
    for name in np.unique(names):
        yield str(name), np.flatnonzero(names == name)
