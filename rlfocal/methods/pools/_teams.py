"""The fittest team by focal diversity and accuracy, by exhaustive or genetic search."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import comb

import numpy as np

from rlfocal.base.arrays import Bools, Floats
from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import Budget
from rlfocal.methods.pools import affordable, most_affordable
from rlfocal.statistics.diversity import every_pool, focal_diversity, plurality_accuracy

_UNFIT = -99.0
"""The fitness of a team of fewer than two models, or beyond the budget."""


def fitness(train: Dataset, teams: Bools, focal_weight: float, size_penalty: float) -> Floats:
    """(P,) w λ + (1 - w) a - p |S| / N of each team (P, N): λ its focal diversity, Eq (8), a its plurality's
    accuracy, both on train. A team in which no model ever fails has λ = 1, as in the group's code."""
    diversity = focal_diversity(train.correct, teams)
    accuracy = plurality_accuracy(train.predictions, train.labels, teams, train.kind)
    value = focal_weight * np.where(np.isnan(diversity), 1.0, diversity) + (1 - focal_weight) * accuracy
    return np.asarray((value - size_penalty * teams.mean(axis=1)).round(12))


@dataclass(frozen=True)
class Search:
    """How the fittest team is found. Ties: the smaller team, then the alphabetically first."""

    enumerable: int
    """Up to this many teams are tried one by one; beyond that, the genetic search is used."""
    population: int
    generations: int
    parents: int
    saturation: int
    """Generations without a fitter team after which the search stops."""

    def fittest(
        self, value: Callable[[Bools], Floats], prices: Floats, budget: Budget, seed: int
    ) -> Bools | None:
        """(N,) the team of at least two with the highest `value` (of teams (P, N)) within the budget; None if
        there is none. `prices` (N,) are only read for a budget in cents."""
        n, largest = len(prices), most_affordable(prices, budget)
        if sum(comb(n, size) for size in range(2, largest + 1)) > self.enumerable:
            teams = self._breed(value, prices, budget, largest, seed)
        else:
            teams = every_pool(n, largest)
        teams = teams[affordable(teams, prices, budget)]
        return teams[value(teams).argmax()] if len(teams) else None

    def _breed(
        self, value: Callable[[Bools], Floats], prices: Floats, budget: Budget, largest: int, seed: int
    ) -> Bools:
        """(P, N) the fittest teams that a genetic search found, smaller ones first."""
        n, known = len(prices), dict[tuple[bool, ...], float]()

        def fitness_of(teams: Bools) -> Floats:
            keys = [tuple(team.tolist()) for team in teams]
            new = np.array([key for key in dict.fromkeys(keys) if key not in known], dtype=np.bool_)
            new = new.reshape(-1, n)
            fit = (new.sum(axis=1) >= 2) & affordable(new, prices, budget)
            values = np.full(len(new), _UNFIT)
            values[fit] = value(new[fit])
            known.update(zip(map(tuple, new.tolist()), values.tolist(), strict=True))
            return np.array([known[key] for key in keys])

        # Some teams should be within the budget; without one, each model joins with probability 1/2.
        teams = np.random.default_rng(seed).random((self.population, n)) < min(0.5, largest / n)
        draws, fit, unchanged = np.random.RandomState(seed), fitness_of(teams), 0
        for _ in range(self.generations):
            fittest = np.argsort(fit, kind="stable")[::-1]
            parents = teams[fittest[: self.parents]]
            teams = np.vstack([teams[fittest[:1]], _cross(parents, self.population - 1, draws)])
            before, fit = fit.max(), fitness_of(teams)
            unchanged = unchanged + 1 if fit.max() == before else 0
            if unchanged >= self.saturation:
                break
        best = max(known.values())
        found = sorted((team for team, fitness in known.items() if fitness == best), reverse=True)
        return np.array(sorted(found, key=sum), dtype=np.bool_)


def _cross(parents: Bools, n_children: int, draws: np.random.RandomState) -> Bools:
    """(n_children, N) children of neighbouring parents (P, N): the genes between two points, drawn anew for
    each, are the second parent's."""
    n = parents.shape[1]
    one, other = draws.randint(0, n + 1, n_children), draws.randint(0, n, n_children)
    other[other >= one] += 1
    first, last = np.minimum(one, other)[:, None], np.maximum(one, other)[:, None]
    at, child = np.arange(n), np.arange(n_children)
    inside = (at >= first) & (at < last)
    return np.where(inside, parents[(child + 1) % len(parents)], parents[child % len(parents)])
