"""LLM-TOPLA: the team with the best mix of diversity and accuracy, fused by a network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from rlfocal.base.arrays import Bools, Floats, Ints
from rlfocal.data.calls import Answered, Calls
from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import Budget
from rlfocal.methods.checking import Range
from rlfocal.methods.pools._teams import Search, fitness
from rlfocal.methods.registry import Entry, MethodBase, register

if TYPE_CHECKING:
    from torch import nn


@register(
    Entry(
        "topla",
        "the team with the best focal diversity and plurality on train",
        "a network on the team's distributions side by side",
        fewest_models=2,
        has_budgets=True,
        is_default=False,
        source="LLM-TOPLA, arXiv 2410.03953; its team search as in the same group's pruning code",
        differs="one softmax where their code has two (`as_coded`); answers are numbered by the team's "
        "own votes, not by all models'; no test document is dropped, and no held-out one is trained on; "
        "TOPLA-Summary needs texts of answers and is left out",
        reads=("outputs",),
        space={
            "focal_weight": Range(0.0, 1.0),
            "size_penalty": Range(0.0, 0.3),
            "hidden": Range(25, 200, log=True),
            "learning_rate": Range(1e-4, 1e-2, log=True),
        },
    )
)
@dataclass(frozen=True)
class Topla(MethodBase):
    """Focal-diversity pruning, then TOPLA-Weighted.

    The team S maximises focal_weight · λ(S) + (1 - focal_weight) · a(S) - size_penalty · |S| / N, with λ its
    focal diversity (Eq 8) and a its plurality's accuracy, both on train: over all teams of at least two if
    they are at most `enumerable`, else by a genetic search (two-point crossover, steady-state selection, no
    mutation).
    A network with two hidden layers of sigmoids maps the team's distributions to a slot, by cross-entropy and
    Adam; the epoch that is best on a held-out part of train is kept.
    """

    focal_weight: float = 0.5
    size_penalty: float = 0.0
    """0.1 is an option in the group's code."""
    enumerable: int = 100_000
    """Every team of 16 models is tried one by one, in seconds."""
    population: int = 100
    generations: int = 1000
    parents: int = 50
    saturation: int = 100
    hidden: int = 100
    learning_rate: float = 1e-3
    batch: int = 64
    small_batch: int = 4
    """Batch size for fewer than 1,000 train documents, as the authors use for BBH."""
    epochs: int = 300
    patience: int = 200
    """Epochs without a better held-out accuracy after which training stops."""
    validation: float = 0.125
    """Share of train that is held out: the paper's 10 of 80 %."""
    slots: int = 30
    """With free answers, only this many of the team's most voted are fused."""
    as_coded: bool = False
    """Whether the network ends in a sigmoid and a softmax before a cross-entropy that takes another softmax,
    as in the authors' code. It hardly learns from few documents, so one softmax is the default."""
    seeded = True

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[FusedTeam]:
        teams: dict[bytes, tuple[Bools, list[int]]] = {}
        for seed in seeds:
            team = self.team(train, seed, Budget(np.inf))
            assert team is not None  # of two models or more, and no limit
            teams.setdefault(team.tobytes(), (team, []))[1].append(seed)
        fused = {one.seed: one for team, same in teams.values() for one in self.fuse(train, team, same)}
        return [fused[seed] for seed in seeds]

    def team(self, train: Dataset, seed: int, budget: Budget) -> Bools | None:
        """(N,) the fittest team within the budget; None if there is none."""
        value = partial(fitness, train, focal_weight=self.focal_weight, size_penalty=self.size_penalty)
        search = Search(self.enumerable, self.population, self.generations, self.parents, self.saturation)
        return search.fittest(value, train.prices, budget, seed)

    def fuse(self, train: Dataset, team: Bools, seeds: Sequence[int]) -> list[FusedTeam]:
        """The team with a network for each seed."""
        # torch takes seconds to import, and listing the methods must not.
        from rlfocal.methods.pools._mlp import fit_mlps

        C = train.probs.shape[2]
        n_slots = C if train.kind == "choices" else min(C, self.slots)
        calls = Calls(train)
        given = side_by_side(calls.call(team), team, n_slots)
        labels = numbered_as_called(calls, train.labels)
        taught = (labels >= 0) & (labels < n_slots)
        networks = fit_mlps(given[taught], labels[taught], n_slots, seeds, self)
        return [
            FusedTeam(self, train, seed, team, n_slots, network)
            for seed, network in zip(seeds, networks, strict=True)
        ]


@dataclass(frozen=True)
class FusedTeam:
    """Asks the team, and answers the slot that its network finds likeliest."""

    method: Topla
    train: Dataset
    seed: int
    team: Bools
    """(N,)"""
    n_slots: int
    network: nn.Module

    def decide(self, calls: Calls) -> Answered:
        import torch

        documents = calls.call(self.team)
        given = side_by_side(documents, self.team, self.n_slots)
        with torch.no_grad():
            logits = self.network(torch.tensor(given, dtype=torch.float32)[None])[0].double()
        exists = np.arange(self.n_slots) < documents.n_choices[:, None]
        slots = np.where(exists, logits.numpy(), -np.inf).argmax(axis=1)
        probability = None
        if not self.method.as_coded:  # squashed twice, the output is no probability
            closed = logits.masked_fill(~torch.tensor(exists), -torch.inf)
            probability = np.nan_to_num(torch.softmax(closed, 1).amax(1).numpy())
        return Answered(np.where(exists.any(axis=1), slots, -1).astype(np.int64), probability)

    def within(self, budget: Budget) -> FusedTeam | None:
        """The fittest team within the budget, with a newly trained network."""
        team = self.method.team(self.train, self.seed, budget)
        if team is None or (team == self.team).all():
            return None if team is None else self
        [fused] = self.method.fuse(self.train, team, [self.seed])
        return fused


def side_by_side(documents: Dataset, team: Bools, n_slots: int) -> Floats:
    """(T, |S| · n_slots) the members' distributions over the first slots, 0 where there is no slot."""
    probs = documents.probs[:, team, :n_slots]
    missing = n_slots - probs.shape[2]
    return np.pad(probs, ((0, 0), (0, 0), (0, missing))).reshape(len(documents), -1)


def numbered_as_called(calls: Calls, labels: Ints) -> Ints:
    """(T,) the labels, which are slots of the dataset, as the calls number them; -1 where no called
    model gave the right answer."""
    if calls.kind == "choices":
        return labels
    width = int(calls.n_choices.max(initial=0))
    stored = [calls.stored_slots(np.full(len(calls), slot)) for slot in range(width)]
    found = (np.stack(stored, axis=1, dtype=np.int64) if stored else np.empty((len(calls), 0))) == labels[
        :, None
    ]
    found &= labels[:, None] >= 0
    return np.where(found.any(axis=1), found.argmax(axis=1) if width else -1, -1).astype(np.int64)
