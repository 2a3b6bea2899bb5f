"""Training of `rl_focal_sequential`: Fusion at every stage of asking, then the Decider on that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from rlfocal.base.arrays import Floats, Ints
from rlfocal.data.dataset import Dataset, Kind
from rlfocal.data.policy import Episode
from rlfocal.methods.learning.agents import Progress, check_train, refuse_broken
from rlfocal.methods.learning.queries import QueryFeatures, TaskSurfaces, fit_queries, fit_task_surfaces
from rlfocal.methods.learning.stacked import one_thread
from rlfocal.methods.learning.store import Unfinished
from rlfocal.methods.rl_focal_sequential.agents import SequentialAgents
from rlfocal.methods.rl_focal_sequential.asking import (
    Order,
    asking_order,
    paid_by_stage,
    price_shares,
    priced_orders,
    stage_sizes,
)
from rlfocal.methods.rl_focal_sequential.config import Recipe, SequentialConfig
from rlfocal.methods.rl_focal_sequential.decider import Ledger, StageView, view, worthwhile_stages
from rlfocal.methods.rl_focal_sequential.fitting import (
    Fitted,
    Stage,
    fit_stage,
    fit_tasks,
    hold_out,
    hold_out_rows,
    task_counts,
    telling,
)
from rlfocal.methods.rl_focal_sequential.observations import (
    Outputs,
    about,
    best_slots,
    fit_scales,
    knows_tasks,
    outputs,
    real_slots,
    recipe_priors,
    stage_rows,
    task_places,
    task_widths,
    widths,
)
from rlfocal.methods.rl_focal_sequential.softmax_regression import Rows, Weights
from rlfocal.methods.rl_focal_sequential.storing import read_stages, write_stages
from rlfocal.statistics.temperature import fit_temperature

_LEAST_SHARE = 0.03
"""A recipe with a smaller share of the last stage's mixture is not fitted at any stage."""
_LONG = 2_000
"""Number of train documents from which a stage takes long enough to be saved."""


@one_thread()
def train(
    train_rows: Dataset,
    config: SequentialConfig,
    seeds: Sequence[int],
    on_progress: Progress | None = None,
    kept: Path | None = None,
) -> list[SequentialAgents]:
    """One pair of agents per seed; seeds differ in the cross-validation folds.

    Finished stages are saved in the folder `kept`, and a killed training resumes after the last of them.
    Raises InputError for a pool of one model, too few train documents to hold some out, and a probability
    that is not a finite number.
    """
    check_train(train_rows)
    refuse_broken(train_rows)
    work = prepare(train_rows, config, seeds)
    unfinished: Unfinished | None = None
    if kept is not None and len(train_rows) >= _LONG:
        unfinished = Unfinished.beside(kept, config.revision, train_rows, seeds, config)
    recipes, stages = (
        (config.recipes, []) if unfinished is None else (read_stages(unfinished, work.order, config.recipes))
    )
    if not stages:
        recipes = work.worthwhile(recipes)
    for size in work.sizes[len(stages) :]:
        stages.append(work.fit(size, recipes))
        if unfinished is not None:
            write_stages(unfinished, work.order, recipes, stages)
        if on_progress is not None:
            on_progress(len(stages) / len(work.sizes))
    if unfinished is not None:
        unfinished.forget()
    return [work.agents(at, stages) for at in range(len(seeds))]


class Work(NamedTuple):
    """What all stages of a training have in common."""

    train_rows: Dataset
    config: SequentialConfig
    seeds: Sequence[int]
    tasks: tuple[str, ...]
    """The tasks that Fusion tells apart."""
    queries: QueryFeatures
    surfaces: TaskSurfaces
    order: Order
    shares: Floats
    """(N,) each model's share of all prices; zeros where prices do not count"""
    sizes: tuple[int, ...]
    seen: Outputs
    held_out: Ints
    """(S, T) each document's fold: whole tasks where there are many"""
    rows_held_out: Ints
    """(S, T) the same, with tasks split among folds"""
    counts: Floats
    """(T,) each document's weight when recipes are mixed"""

    @property
    def kind(self) -> Kind:
        return self.train_rows.kind

    def rows(self, size: int) -> Rows:
        return stage_rows(self.seen, size, self.kind)

    def general(self, rows: Rows, size: int, recipes: Sequence[Recipe], parts: Ints, counts: Floats) -> Stage:
        numbers = widths(self.seen, size, self.kind, len(self.tasks), self.queries)
        priors = recipe_priors(recipes, numbers, self.config)
        return fit_stage(rows, priors, parts, counts, biased=self.kind == "choices")

    def worthwhile(self, recipes: tuple[Recipe, ...]) -> tuple[Recipe, ...]:
        """The recipes with a large enough share of the last stage's mixture."""
        if self.kind == "answers" or len(recipes) == 1:
            return recipes[:1]
        size, at = self.sizes[-1], telling(len(self.train_rows))
        some = self.rows(size).take(torch.from_numpy(at))
        shares = self.general(some, size, recipes, self.held_out[:1, at], self.counts[at]).shares[0]
        least = min(_LEAST_SHARE, shares.max())
        return tuple(r for r, share in zip(recipes, shares, strict=True) if share >= least)

    def fit(self, size: int, recipes: Sequence[Recipe]) -> Fitted:
        rows = self.rows(size)
        general = self.general(rows, size, recipes, self.held_out, self.counts)
        if not knows_tasks(self.kind, self.tasks):
            return Fitted(general, None)
        numbers = task_widths(self.seen, size, self.surfaces, self.queries)
        priors = recipe_priors(self.config.task_recipes, numbers, self.config)
        particular = self.seen.about.particular
        task = task_places(self.train_rows.tasks.tolist(), self.tasks)
        found = [
            fit_tasks(rows, particular, task, opinion, priors, part)
            for opinion, part in zip(general.out_of_fold, self.rows_held_out, strict=True)
        ]
        weights, shares, out_of_fold = zip(*found, strict=True)
        stacked = (torch.stack([getattr(w, name) for w in weights]) for name in ("shared", "bias", "own"))
        return Fitted(general, Stage(Weights(*stacked), np.stack(shares), np.stack(out_of_fold)))

    def look(self, distributions: Floats, size: int) -> tuple[Ints, Floats]:
        """Fusion's slots, and what the Decider sees."""
        votes = self.train_rows.predictions[:, list(self.order[:size])]
        real = real_slots(distributions, self.kind)
        said = best_slots(real, self.seen, size, self.train_rows.slots)
        return said, view(real, said, votes, self.seen.given.shape[2])

    def agents(self, at: int, stages: Sequence[Fitted]) -> SequentialAgents:
        """The agents of the seed at this place."""
        rows, n = self.train_rows, len(self.train_rows.models)
        accuracy, ledgers = self.ledgers(at, stages)
        kept = worthwhile_stages(ledgers, self.sizes, self.paid, self.config, n)
        sizes = tuple(self.sizes[stage] for stage in kept)
        ledgers = [ledger.at(kept, self.paid(sizes)) for ledger in ledgers]
        deciders = [ledger.decider(self.config, n) for ledger in ledgers]
        history = [
            Episode("stage", done, None, accuracy[stage], float(self.sizes[stage]))
            for done, stage in enumerate(kept)
        ]
        return SequentialAgents(
            config=self.config, benchmark=rows.benchmark, kind=self.kind, models=rows.models,
            seed=self.seeds[at], snapshot=rows.snapshot, n_slots=rows.probs.shape[2], tasks=self.tasks,
            order=self.order, sizes=sizes, scales=fit_scales(rows), queries=self.queries,
            surfaces=self.surfaces, fusions=tuple(stages[stage].fusion(at) for stage in kept),
            task_fusions=tuple(one for stage in kept for one in stages[stage].task_fusions(at)),
            decider=deciders[0][0], task_decider=deciders[1][0] if deciders[1:] else deciders[0][0][:0],
            penalty=deciders[0][1], task_penalty=deciders[1][1] if deciders[1:] else 0.0,
            temperature=fit_temperature(
                [stages[stage].general.out_of_fold[at] for stage in kept],
                [self.rows(size).labels.numpy() for size in sizes], self.counts,
            ),
            history=tuple(history), train_accuracy=tuple(rows.correct.mean(axis=0).tolist()),
            held_out_accuracy=max(stage.accuracy for stage in history),
        )  # fmt: skip

    def ledgers(self, at: int, stages: Sequence[Fitted]) -> tuple[list[float], list[Ledger]]:
        """Fusion's out-of-fold accuracy at each stage, and what the Deciders of the seed at this place are
        fitted on: for all documents, then for those of known tasks.
        """
        task = task_places(self.train_rows.tasks.tolist(), self.tasks)
        accuracy: list[float] = []
        general, particular = Ledger([], []), Ledger([], [])
        for size, stage in zip(self.sizes, stages, strict=True):
            numbers = self.rows(size)
            said, features = self.look(stage.general.out_of_fold[at], size)
            opinion = stage.fusion(at).probabilities(numbers)
            general.views.append(StageView(features, size))
            general.deployed.append(self.look(opinion, size)[1])
            accuracy.append(float(((said == self.seen.labels) & (said >= 0)).mean()))
            for of_tasks in stage.task_fusions(at):
                assert stage.of_tasks is not None
                particulars = self.seen.about.particular
                distributions = of_tasks.probabilities(numbers, particulars, opinion, task)
                particular.views.append(StageView(self.look(stage.of_tasks.out_of_fold[at], size)[1], size))
                particular.deployed.append(self.look(distributions, size)[1])
        return accuracy, [general, particular] if particular.views else [general]

    def paid(self, sizes: Sequence[int]) -> list[float]:
        """What prices and rounds have cost once stages of these sizes have answered."""
        return paid_by_stage(self.order, sizes, self.shares, self.config)

    def earned(self) -> float:
        """What a train document earns on average, by agents of the first seed."""
        _, ledgers = self.ledgers(0, [self.fit(size, self.config.recipes) for size in self.sizes])
        n = len(self.train_rows.models)
        kept = worthwhile_stages(ledgers, self.sizes, self.paid, self.config, n)
        paid = self.paid([self.sizes[stage] for stage in kept])
        return float(np.mean([ledger.at(kept, paid).earned(self.config, n) for ledger in ledgers]))


def affordable_order(train_rows: Dataset, config: SequentialConfig, shares: Floats) -> Order:
    """The asking order: where prices count, the one of `priced_orders` whose agents, with the first recipe
    alone, earn most on a part of train.
    """
    if not shares.any():
        return asking_order(train_rows, config)
    some = train_rows.take(telling(len(train_rows)))
    quick = replace(config, recipes=config.recipes[:1], task_recipes=config.task_recipes[:1])
    return max(
        priced_orders(train_rows, config, shares),
        key=lambda order: prepare(some, quick, [0], order, shares).earned(),
    )


def prepare(
    train_rows: Dataset,
    config: SequentialConfig,
    seeds: Sequence[int],
    order: Order | None = None,
    shares: Floats | None = None,
) -> Work:
    """What all stages need, from checked train rows; `order` and `shares` are computed if not given.

    Raises InputError if prices count and one is unknown.
    """
    tasks = tuple(dict.fromkeys(train_rows.tasks.tolist()))
    known_tasks = tasks if len(tasks) > 1 else ()
    questions = train_rows.questions or ("",) * len(train_rows)
    if shares is None:
        shares = price_shares(train_rows, config)
    if order is None:
        order = affordable_order(train_rows, config, shares)
    queries = fit_queries(questions, config.word_directions, config.gate_directions, config.landmarks)
    apart = known_tasks if knows_tasks(train_rows.kind, known_tasks) else ()
    places = task_places(train_rows.tasks.tolist(), apart)
    surfaces = fit_task_surfaces(questions, places, len(apart), config.landmarks)
    known = about(train_rows, queries, surfaces, known_tasks)
    seen = outputs(train_rows, known, fit_scales(train_rows), order, train_rows.probs.shape[2])
    return Work(
        train_rows, config, seeds, known_tasks, queries, surfaces, order, shares,
        stage_sizes(len(train_rows.models), config.budget(len(train_rows.models))), seen,
        np.stack([hold_out(train_rows, config.folds, seed) for seed in seeds]),
        np.stack([hold_out_rows(len(train_rows), config.folds, seed) for seed in seeds]),
        task_counts(train_rows),
    )  # fmt: skip
