"""Advice on a pool: its best team for a budget, which model it could do without, and which would help; and
what similar pools gained by `rl_focal` over their best single model.

A team is a few models whose soft vote answers. Such teams stand for RL-Focal, because it would have to be
trained anew for each question. Teams are chosen on train documents and measured on test documents.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from math import comb, log
from typing import NamedTuple

import numpy as np

from rlfocal.base.arrays import Bools, Floats
from rlfocal.base.errors import InputError, unknown_name
from rlfocal.base.wording import interval, number_or_none, percent
from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import Budget
from rlfocal.statistics.ceiling import PoolCeiling, ceiling
from rlfocal.statistics.diversity import every_pool
from rlfocal.statistics.intervals import Difference, mean_over_seeds, paired_difference
from rlfocal.statistics.votes import soft_vote

MAX_TEAM_SIZE = 6
"""The most models in a team."""
MAX_TEAMS = 5_000
"""The most teams that are tried; with many models, only the smaller sizes of teams are."""
SOURCE = "docs/research.md#by-how-many-labels-does-it-pay"


@dataclass(frozen=True)
class SoftVoteTeam:
    """Models that are asked together, and how often their soft vote is right."""

    models: tuple[str, ...]
    cost: float | None
    """Cents per 1,000 queries; None if a price is unknown."""
    train: float
    """The accuracy on train documents, by which the team was chosen."""
    test: float
    stderr: float
    """The standard error of `test` over documents."""


@dataclass(frozen=True)
class Advice:
    """The best team under one condition, and the difference of its accuracy to another team's."""

    about: str
    """The budget, or the name of the model, that the advice is about."""
    team: SoftVoteTeam
    difference: Difference | None
    """The test accuracy of `team` minus the other team's; None if the two teams are the same."""


class Teams:
    """Every team of up to MAX_TEAM_SIZE of some models of a benchmark, tried on train documents."""

    def __init__(self, data: Dataset, models: Sequence[str]) -> None:
        self.data, self.train, self.test = data, data.train, data.test
        if not len(self.train) or not len(self.test):
            raise InputError(
                f"{data.benchmark} has {len(self.train)} train and {len(self.test)} test documents; advice "
                "needs both"
            )
        for name in models:
            _check_answered(data, name)
        members = np.array([data.models.index(name) for name in models])
        n_teams = np.cumsum([comb(len(members), k) for k in range(1, MAX_TEAM_SIZE + 1)])
        largest = max(1, int((n_teams <= MAX_TEAMS).sum()))
        every = np.vstack(
            [np.eye(len(members), dtype=np.bool_), every_pool(len(members), min(largest, len(members)))]
        )
        self.pools = np.zeros((len(every), len(data.models)), dtype=np.bool_)
        self.pools[:, members] = every
        self.accuracies = self.train_accuracies(self.pools)

    def train_accuracies(self, pools: Bools) -> Floats:
        """(P,) the accuracy of each team of `pools` (P, N) on train documents."""
        return np.array([self._mark_right(self.train, pool).mean() for pool in pools])

    def choose_best(self, is_allowed: Bools) -> Bools | None:
        """(N,) the team with the best train accuracy where `is_allowed` (P,); ties: the smaller.

        None if no team is allowed.
        """
        return self.pools[np.where(is_allowed, self.accuracies, -1.0).argmax()] if is_allowed.any() else None

    @property
    def winner(self) -> Bools:
        """(N,) the team with the best train accuracy."""
        return np.asarray(self.pools[self.accuracies.argmax()])

    def team(self, pool: Bools) -> SoftVoteTeam:
        """The members, cost and accuracies of a team (N,)."""
        right, cost = self._mark_right(self.test, pool), self.data.mean_costs[pool].sum()
        names = tuple(name for name, is_in in zip(self.data.models, pool, strict=True) if is_in)
        train = float(self._mark_right(self.train, pool).mean())
        test, _, error = mean_over_seeds([float(right.mean())], len(right))
        return SoftVoteTeam(names, number_or_none(float(cost)), train, test, error)

    def difference(self, pool: Bools, other_pool: Bools) -> Difference:
        """The accuracy of the team `pool` (N,) minus that of `other_pool`, on test documents."""
        hits, other_hits = (
            self._mark_right(self.test, team)[None].astype(np.float64) for team in (pool, other_pool)
        )
        return paired_difference(hits, other_hits)

    def advice(self, about: str, pool: Bools, other_pool: Bools) -> Advice:
        """Advice to ask the team `pool` (N,), compared with the team `other_pool`."""
        same = bool((pool == other_pool).all())
        return Advice(about, self.team(pool), None if same else self.difference(pool, other_pool))

    @staticmethod
    def _mark_right(documents: Dataset, pool: Bools) -> Bools:
        everyone, votes = np.ones(int(pool.sum()), dtype=np.bool_), documents.predictions[:, pool]
        # The dataset's numbers of free answers would tell what other models answer.
        ranks = documents.text_ranks if documents.kind == "answers" else None
        return documents.is_right(soft_vote(documents.probs[:, pool], everyone, documents.kind, votes, ranks))


def find_ceiling(data: Dataset, models: Sequence[str]) -> PoolCeiling:
    """The ceiling of a pool on test documents. Raises InputError for a model without all answers."""
    for name in models:
        _check_answered(data, name)
    members = np.array([data.models.index(name) for name in sorted(set(models))])
    best, test = int(data.train.correct[:, members].sum(axis=0).argmax()), data.test
    about = (test.probs[:, members], test.n_choices) if data.kind == "choices" else ()
    return ceiling(test.predictions[:, members], test.labels, best, *about)


def advise_budgets(teams: Teams, budgets: Sequence[Budget]) -> tuple[Advice, ...]:
    """The best team within each budget, compared with the single model that is best on train.

    Raises InputError for a budget that pays for no model.
    """
    single = teams.choose_best(teams.pools.sum(axis=1) == 1)
    assert single is not None
    advice = []
    for budget in budgets:
        best = teams.choose_best(budget.covers(teams.pools, teams.data.mean_costs))
        if best is None:
            raise InputError(
                f"--budget {budget}: no model of {teams.data.benchmark} is that cheap, by known prices"
            )
        advice.append(teams.advice(str(budget), best, single))
    return tuple(advice)


def advise_drop(teams: Teams) -> tuple[Advice, ...]:
    """For each model, the best team without it, compared with the best of all teams.

    The model whose loss costs least comes first.
    """
    best, advice = teams.winner, []
    for model in np.flatnonzero(teams.pools.any(axis=0)):
        without = teams.choose_best(~teams.pools[:, model])
        if without is not None:
            advice.append(teams.advice(teams.data.models[model], without, best))
    return tuple(sorted(advice, key=_read_gain, reverse=True))


def advise_add(teams: Teams) -> tuple[Advice, ...]:
    """For each model outside the pool, the best team with it, compared with the best team without it.

    The largest gain comes first. If no team with the model is better on train, the best team stays as it is.
    """
    best, advice = teams.winner, []
    for model in np.flatnonzero(~teams.pools.any(axis=0)):
        alone = np.eye(len(teams.data.models), dtype=np.bool_)[model]
        with_it = np.vstack([alone, teams.pools | alone])
        accuracies = teams.train_accuracies(with_it)
        enters = accuracies.max() > teams.accuracies.max()
        advice.append(
            teams.advice(teams.data.models[model], with_it[accuracies.argmax()] if enters else best, best)
        )
    return tuple(sorted(advice, key=_read_gain, reverse=True))


def _check_answered(data: Dataset, model: str) -> None:
    if model not in data.models:
        raise unknown_name("model", model, data.models, f"those that answered all of {data.benchmark}")


def _read_gain(advice: Advice) -> float:
    return advice.difference.mean if advice.difference else 0.0


class Room(NamedTuple):
    """The possible gains of a pool from asking several models, as shares of documents."""

    ceiling: float
    """How much more often some model is right than the best single model."""
    spread: float
    """How much more often the best model is right than the median one."""


def room(correct: Bools) -> Room:
    """The possible gain of a pool. `correct` (T, N): which models are right on which documents."""
    alone = correct.mean(axis=0)
    best = float(alone.max())
    return Room(float(correct.any(axis=1).mean()) - best, best - float(np.median(alone)))


class MeasuredGain(NamedTuple):
    """The mean gain in accuracy over several pools with similar ceilings, at one number of labels."""

    labels: int
    low_ceiling: float
    high_ceiling: float
    pools: int
    gain: tuple[float, float, float]
    """The mean, and the ends of its 95 % interval over pools, as fractions."""

    def sentence(self, here: Room, n_labels: int) -> str:
        """A sentence on this gain, for a reader whose pool has the room `here` and `n_labels` labels."""
        low, high = (percent(share, 0) for share in (self.low_ceiling, self.high_ceiling))
        return (
            f"Some model is right {percent(here.ceiling, 0)} points more often than the best model is, and "
            f"there are {n_labels:,} labels to train on. In {self.pools} pools where this lead was {low} to "
            f"{high} points, `rl_focal` gained {interval(self.gain)} points over the best single model from "
            f"{self.labels:,} labels ({SOURCE})."
        )


def measured_gains() -> list[MeasuredGain]:
    """All measured gains, from the file that `make tables` writes."""
    text = (resources.files("rlfocal.evaluation") / "gains.json").read_text("utf-8")
    return [MeasuredGain._make((*row[:4], tuple(row[4]))) for row in json.loads(text)]


def gain_of_like_pools(here: Room, n_labels: int) -> MeasuredGain:
    """The measured gain of the most similar pools: first by number of labels (as a ratio), then by
    ceiling."""

    def distance(one: MeasuredGain) -> tuple[float, float]:
        outside = max(one.low_ceiling - here.ceiling, here.ceiling - one.high_ceiling, 0.0)
        return abs(log(max(n_labels, 1) / one.labels)), outside

    return min(measured_gains(), key=distance)
