"""LLM-TOPLA: the team with the best mix of diversity and accuracy, fused by a network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import comb
from typing import TYPE_CHECKING, Annotated

import numpy as np

from rlfocal.base.arrays import Bools, Floats, Ints
from rlfocal.data.calls import Answers, Calls
from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import Budget
from rlfocal.methods.checking import Range
from rlfocal.methods.registry import MethodBase, answer_policy
from rlfocal.statistics.diversity import every_pool, focal_diversity, plurality_accuracy

if TYPE_CHECKING:
    from torch import nn


@answer_policy(
    "topla",
    "the team with the best focal diversity and plurality on train",
    "a network on the team's centred log-probs side by side",
    fewest_models=2,
    has_budgets=True,
    source="LLM-TOPLA, arXiv 2410.03953; its team search as in the same group's pruning code",
    differs="standardised log-probs where their code feeds distributions, and one softmax where it has "
    "two; answers are numbered by the team's own votes, not by all "
    "models'; no test document is dropped, and no held-out one is trained on; of few train documents "
    "none is held out; TOPLA-Summary needs texts of answers and is left out",
)
@dataclass(frozen=True)
class Topla(MethodBase):
    """Chooses a team by focal-diversity pruning, and fuses it by a network (TOPLA-Weighted).

    The team S maximises focal_weight · λ(S) + (1 - focal_weight) · a(S) - size_penalty · |S| / N on train. λ
    is its focal diversity (Eq 8), and a its plurality's accuracy. If there are at most `enumerable` teams of
    two models or more, all are tried. Otherwise a genetic search chooses (two-point crossover, steady-state
    selection, no mutation). The network has two hidden layers of sigmoids, and is trained by cross-entropy
    and Adam. Its inputs are log-probs, centred over a document's choices and standardised on train; for free
    answers, shares of samples. The weights of the epoch with the best held-out accuracy are used.
    """

    focal_weight: Annotated[float, Range(0.0, 1.0)] = 0.5
    size_penalty: Annotated[float, Range(0.0, 0.3)] = 0.0
    """The penalty on a team of all models; 0.1 is an option in the authors' code."""
    enumerable: int = 100_000
    """The most teams that an exhaustive search tries; to try all teams of 16 models takes seconds."""
    population: int = 100
    generations: int = 1000
    parents: int = 50
    saturation: int = 100
    hidden: Annotated[int, Range(25, 200, log=True)] = 100
    learning_rate: Annotated[float, Range(1e-4, 1e-2, log=True)] = 1e-3
    batch: int = 64
    few: int = 1000
    """With fewer train documents, none is held out; training has `small_epochs` of batches of `small_batch`.

    An eighth of them would be too few to tell which epoch is best.
    """
    small_batch: int = 4
    """The batch size for few train documents, which the authors use for BBH."""
    small_epochs: int = 100
    """The number of epochs for few train documents.

    On held-out documents of BBH's tasks (two folds of train), it gives 55.1 % accuracy. The best of 300
    epochs, chosen on an eighth of the documents, gives 53.7 %.
    """
    epochs: int = 300
    patience: int = 200
    """Training stops after so many epochs without a better held-out accuracy."""
    validation: float = 0.125
    """The share of train that is held out: 10 of 80 %, as in the paper."""
    slots: int = 30
    """The most free answers of a document that are fused: those with the most votes of the team."""
    seeded = True
    revision = "2"

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[FusedTeam]:
        teams: dict[bytes, tuple[Bools, list[int]]] = {}
        for seed in seeds:
            team = self.team(train, seed, Budget(np.inf))
            assert team is not None  # of two models or more, and no limit
            teams.setdefault(team.tobytes(), (team, []))[1].append(seed)
        fused = {
            team_of_seed.seed: team_of_seed
            for team, same in teams.values()
            for team_of_seed in self.fuse(train, team, same)
        }
        return [fused[seed] for seed in seeds]

    def team(self, train: Dataset, seed: int, budget: Budget) -> Bools | None:
        """(N,) the fittest team of at least two models within the budget; None if there is none.

        Ties go to the smaller team, then to the alphabetically first.
        """
        n, largest = len(train.models), most_affordable(train.prices, budget)

        def value(teams: Bools) -> Floats:
            fit = (teams.sum(axis=1) >= 2) & budget.covers(teams, train.prices)
            values = np.full(len(teams), _UNFIT_FITNESS)
            values[fit] = fitness(train, teams[fit], self.focal_weight, self.size_penalty)
            return values

        if sum(comb(n, size) for size in range(2, largest + 1)) > self.enumerable:
            teams = breed(self, value, n, largest, seed)
        else:
            teams = every_pool(n, largest)
        values = value(teams)
        return teams[values.argmax()] if values.max(initial=_UNFIT_FITNESS) > _UNFIT_FITNESS else None

    def fuse(self, train: Dataset, team: Bools, seeds: Sequence[int]) -> list[FusedTeam]:
        """Policies for the team (N,), one per seed, each with its own trained network."""
        # torch takes seconds to import, and listing the methods must not.
        from rlfocal_rivals.networks import fit_mlps

        C = train.probs.shape[2]
        n_slots = C if train.kind == "choices" else min(C, self.slots)
        calls = Calls(train)
        documents = calls.call(team)
        reader = fit_reader(documents, team, n_slots)
        given = reader.read(documents)
        labels = numbered_as_called(calls, train.labels)
        has_label = (labels >= 0) & (labels < n_slots)
        networks = fit_mlps(given[has_label], labels[has_label], n_slots, seeds, self)
        return [
            FusedTeam(self, train, seed, reader, network)
            for seed, network in zip(seeds, networks, strict=True)
        ]


@dataclass(frozen=True)
class FusedTeam:
    """Asks its team on every document, and answers the slot that its network finds likeliest."""

    method: Topla
    train: Dataset
    seed: int
    reader: Reader
    network: nn.Module

    def decide(self, calls: Calls) -> Answers:
        import torch

        documents = calls.call(self.reader.team)
        given = self.reader.read(documents)
        with torch.no_grad():
            logits = self.network(torch.tensor(given, dtype=torch.float32)).double()
        exists = np.arange(self.reader.n_slots) < documents.n_choices[:, None]
        slots = np.where(exists, logits.numpy(), -np.inf).argmax(axis=1)
        closed = logits.masked_fill(~torch.tensor(exists), -torch.inf)
        probability = np.nan_to_num(torch.softmax(closed, 1).amax(1).numpy())
        return Answers(np.where(exists.any(axis=1), slots, -1).astype(np.int64), probability)

    def hold_to_budget(self, budget: Budget) -> FusedTeam | None:
        """The fittest team within the budget, with a newly trained network; None if there is none."""
        team = self.method.team(self.train, self.seed, budget)
        if team is None or (team == self.reader.team).all():
            return None if team is None else self
        [fused] = self.method.fuse(self.train, team, [self.seed])
        return fused


_MIN_PROBABILITY = np.exp(-50.0)
"""The lower bound on probabilities, so that logarithms of vanishing ones do not dominate."""


@dataclass(frozen=True)
class Reader:
    """Turns a team's outputs into a network's inputs."""

    team: Bools
    """(N,) which models are in the team"""
    n_slots: int
    """The number of slots that are read: the first ones of each document."""
    is_log: bool
    """Whether inputs are log-probs, centred over a document's slots; if not, probabilities."""
    middle: Floats | float = 0.0
    """(F,) the mean that is subtracted from each input"""
    scale: Floats | float = 1.0
    """(F,) the factor on each input after the subtraction"""

    def read(self, documents: Dataset) -> Floats:
        """(T, |S| · n_slots) the inputs: the members' outputs side by side, 0 where a slot does not exist."""
        shares = documents.probs[:, self.team, : self.n_slots]
        exists = np.arange(shares.shape[2]) < documents.n_choices[:, None, None]
        exists = np.broadcast_to(exists, shares.shape)
        if self.is_log:
            shares = np.where(exists, np.log(shares.clip(min=_MIN_PROBABILITY)), 0.0)
            n_slots = exists.sum(axis=2, keepdims=True).clip(min=1)
            shares = shares - shares.sum(axis=2, keepdims=True) / n_slots
        missing = ((0, 0), (0, 0), (0, self.n_slots - shares.shape[2]))
        given = np.pad(shares, missing).reshape(len(shares), -1)
        there = np.pad(exists, missing).reshape(given.shape)
        return np.where(there, (given - self.middle) * self.scale, 0.0)


def fit_reader(train: Dataset, team: Bools, n_slots: int) -> Reader:
    """A reader that standardises log-probs by their means and standard deviations on train. Shares of
    samples, the inputs for free answers, are not standardised."""
    if train.kind == "answers":
        return Reader(team, n_slots, is_log=False)
    reader = Reader(team, n_slots, is_log=True)
    given = reader.read(train)
    spread = given.std(axis=0)
    return replace(reader, middle=given.mean(axis=0), scale=1 / np.where(spread > 1e-6, spread, 1.0))


def numbered_as_called(calls: Calls, labels: Ints) -> Ints:
    """(T,) the dataset's labels, as numbers of slots in `calls`; -1 where no called model is right."""
    if calls.kind == "choices":
        return labels
    width = int(calls.n_choices.max(initial=0))
    stored = [calls.stored_slots(np.full(len(calls), slot)) for slot in range(width)]
    is_label = (np.stack(stored, axis=1, dtype=np.int64) if stored else np.empty((len(calls), 0))) == labels[
        :, None
    ]
    is_label &= labels[:, None] >= 0
    return np.where(is_label.any(axis=1), is_label.argmax(axis=1) if width else -1, -1).astype(np.int64)


# ---- the fittest team, by exhaustive or genetic search


_UNFIT_FITNESS = -99.0
"""The fitness of a team of fewer than two models, or beyond the budget."""


def fitness(train: Dataset, teams: Bools, focal_weight: float, size_penalty: float) -> Floats:
    """(P,) the fitness w λ + (1 - w) a - p |S| / N of each of P teams (P, N) on train.

    w is `focal_weight`, p `size_penalty`, λ a team's focal diversity (Eq 8) and a its plurality's accuracy. A
    team in which no model ever fails has λ = 1, as in the authors' code.
    """
    diversity = focal_diversity(train.correct, teams)
    accuracy = plurality_accuracy(train.predictions, train.labels, teams, train.kind)
    value = focal_weight * np.where(np.isnan(diversity), 1.0, diversity) + (1 - focal_weight) * accuracy
    return np.asarray((value - size_penalty * teams.mean(axis=1)).round(12))


def breed(how: Topla, value: Callable[[Bools], Floats], n: int, most: float, seed: int) -> Bools:
    """(P, N) all teams with the highest `value` that a genetic search over n models found, the smallest
    first. The teams that it starts from have at most `most` models on average."""
    fitness_of_team = dict[tuple[bool, ...], float]()

    def fitness_of(teams: Bools) -> Floats:
        keys = [tuple(team.tolist()) for team in teams]
        new = np.array([key for key in dict.fromkeys(keys) if key not in fitness_of_team], dtype=np.bool_)
        new = new.reshape(-1, n)
        fitness_of_team.update(zip(map(tuple, new.tolist()), value(new).tolist(), strict=True))
        return np.array([fitness_of_team[key] for key in keys])

    teams = np.random.default_rng(seed).random((how.population, n)) < min(0.5, most / n)
    draws, fit, unchanged = np.random.RandomState(seed), fitness_of(teams), 0
    for _ in range(how.generations):
        fittest = np.argsort(fit, kind="stable")[::-1]
        parents = teams[fittest[: how.parents]]
        teams = np.vstack([teams[fittest[:1]], _cross(parents, how.population - 1, draws)])
        before, fit = fit.max(), fitness_of(teams)
        unchanged = unchanged + 1 if fit.max() == before else 0
        if unchanged >= how.saturation:
            break
    best = max(fitness_of_team.values())
    fittest_teams = sorted(
        (team for team, fitness in fitness_of_team.items() if fitness == best), reverse=True
    )
    return np.array(sorted(fittest_teams, key=sum), dtype=np.bool_)


def _cross(parents: Bools, n_children: int, draws: np.random.RandomState) -> Bools:
    """(n_children, N) children of neighbouring parents (P, N), by two-point crossover with random points."""
    n = parents.shape[1]
    first_parent, second_parent = draws.randint(0, n + 1, n_children), draws.randint(0, n, n_children)
    second_parent[second_parent >= first_parent] += 1
    first, last = (
        np.minimum(first_parent, second_parent)[:, None],
        np.maximum(first_parent, second_parent)[:, None],
    )
    member, child = np.arange(n), np.arange(n_children)
    inside = (member >= first) & (member < last)
    return np.where(inside, parents[(child + 1) % len(parents)], parents[child % len(parents)])


def most_affordable(prices: Floats, budget: Budget) -> int:
    """The size of the largest pool that the budget pays for, at the models' prices (N,)."""
    cheapest_first = np.argsort(prices, kind="stable")
    largest = np.tri(len(prices), dtype=np.bool_)[:, np.argsort(cheapest_first, kind="stable")]
    return int(budget.covers(largest, prices).sum())
