"""The fittest team by focal diversity and accuracy, by exhaustive or genetic search."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import comb

import numpy as np

from rlfocal.base.arrays import Bools, Floats, Ints
from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import Budget
from rlfocal.methods.pools._budgets import affordable, most_affordable
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
            teams = self._bred(value, prices, budget, largest, seed)
        else:
            teams = every_pool(n, largest)
        teams = teams[affordable(teams, prices, budget)]
        return teams[value(teams).argmax()] if len(teams) else None

    def _bred(
        self, value: Callable[[Bools], Floats], prices: Floats, budget: Budget, largest: int, seed: int
    ) -> Bools:
        """(P, N) the fittest teams that a genetic search found, smaller ones first."""
        import pygad

        n, known = len(prices), dict[tuple[bool, ...], float]()

        def fitness_of(_: object, genes: Ints, __: object) -> list[float]:
            teams = genes > 0
            keys = [tuple(team.tolist()) for team in teams]
            new = np.array(list({key: None for key in keys if key not in known}), dtype=np.bool_).reshape(
                -1, n
            )
            fit = (new.sum(axis=1) >= 2) & affordable(new, prices, budget)
            values = np.full(len(new), _UNFIT)
            values[fit] = value(new[fit])
            known.update(zip(map(tuple, new.tolist()), values.tolist(), strict=True))
            return [known[key] for key in keys]

        # Some teams should be within the budget; without one, each model joins with probability 1/2.
        start = np.random.default_rng(seed).random((self.population, n)) < min(0.5, largest / n)
        search = pygad.GA(
            num_generations=self.generations,
            num_parents_mating=self.parents,
            fitness_func=fitness_of,
            fitness_batch_size=self.population,
            initial_population=start.astype(np.int64),
            gene_type=int,
            gene_space=[0, 1],
            parent_selection_type="sss",
            crossover_type="two_points",
            mutation_type=None,
            stop_criteria=f"saturate_{self.saturation}",
            random_seed=seed,
            suppress_warnings=True,
        )
        search.run()
        best = max(known.values())
        teams = np.array(sorted(team for team, found in known.items() if found == best), dtype=np.bool_)[::-1]
        return np.asarray(teams[np.argsort(teams.sum(axis=1), kind="stable")])
