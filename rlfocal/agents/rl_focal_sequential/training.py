"""Training of `rl_focal_sequential`: Fusion at every stage of asking, then the Decider on that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlfocal.agents.rl_focal_sequential.agents import SequentialAgents
from rlfocal.agents.rl_focal_sequential.config import REVISION, Recipe, SequentialConfig
from rlfocal.agents.rl_focal_sequential.decider import StageView, fit_within, view
from rlfocal.agents.rl_focal_sequential.fitting import Stage, TaskStage, fit_stage, fit_tasks
from rlfocal.agents.rl_focal_sequential.fusion import Fusion
from rlfocal.agents.rl_focal_sequential.observations import (
    MANY_TASKS,
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
from rlfocal.agents.rl_focal_sequential.softmax_regression import Rows, Weights
from rlfocal.agents.shared.queries import (
    QueryFeatures,
    TaskSurfaces,
    fit_queries,
    fit_task_surfaces,
)
from rlfocal.agents.shared.slots import refuse_broken
from rlfocal.agents.shared.threads import one_thread
from rlfocal.agents.shared.variant import Progress, check_train
from rlfocal.agents.storage.resuming import Unfinished
from rlfocal.agents.storage.tensorfiles import under
from rlfocal.dataset import Dataset, Kind
from rlfocal.policy import Episode

Floats = NDArray[np.float64]
Slots = NDArray[np.int64]

_LEAST_SHARE = 0.03
"""A recipe that earns less than this of the mixture where all models are asked is not fitted anywhere."""
_TELLING = 3_000
"""Train documents, evenly drawn, that tell which recipes earn it."""
_LONG = 2_000
"""Train documents from which a stage takes long enough to be kept."""
_COPY = 0.75
"""Share of the documents on which either of two models errs where they err alike; unrelated LLMs: 0.4."""
_FEW_ERRORS = 2
"""Keeps a handful of errors from making copies."""


@one_thread()
def train(
    train_rows: Dataset,
    config: SequentialConfig,
    seeds: Sequence[int],
    on_progress: Progress | None = None,
    kept: Path | None = None,
) -> list[SequentialAgents]:
    """One pair of agents per seed; seeds differ by which parts of train are held out together.

    Stages go into the folder `kept` as they are done, and a killed training goes on after the last of them.
    Raises InputError for a pool of one model, too few train documents to hold some out, and a probability
    that is not a finite number.
    """
    check_train(train_rows)
    refuse_broken(train_rows)
    work = prepare(train_rows, config, seeds)
    unfinished: Unfinished | None = None
    if kept is not None and len(train_rows) >= _LONG:
        unfinished = Unfinished.beside(kept, REVISION, train_rows, seeds, [config])
    recipes, stages = (config.recipes, []) if unfinished is None else read_stages(unfinished, config.recipes)
    if not stages:
        recipes = work.worthwhile(recipes)
    for size in work.sizes[len(stages) :]:
        stages.append(work.fit(size, recipes))
        if unfinished is not None:
            write_stages(unfinished, recipes, stages)
        if on_progress is not None:
            on_progress(len(stages) / len(work.sizes))
    if unfinished is not None:
        unfinished.forget()
    return [work.agents(at, stages) for at in range(len(seeds))]


class Fitted(NamedTuple):
    """All of Fusion after one stage of asking."""

    general: Stage
    of_tasks: TaskStage | None


class Work(NamedTuple):
    """What all stages of a training have in common."""

    train_rows: Dataset
    config: SequentialConfig
    seeds: Sequence[int]
    tasks: tuple[str, ...]
    """Those that Fusion tells apart."""
    queries: QueryFeatures
    surfaces: TaskSurfaces
    order: tuple[int, ...]
    sizes: tuple[int, ...]
    seen: Outputs
    held_out: Slots
    """(S, T) the part that each document is held out with: whole tasks where there are many"""
    rows_held_out: Slots
    """(S, T) the same, tasks split among parts"""
    counts: Floats
    """(T,) for how many a document counts where recipes are mixed"""

    @property
    def kind(self) -> Kind:
        return self.train_rows.kind

    def rows(self, size: int) -> Rows:
        return stage_rows(self.seen, size, self.kind)

    def general(
        self, rows: Rows, size: int, recipes: Sequence[Recipe], parts: Slots, counts: Floats
    ) -> Stage:
        numbers = widths(self.seen, size, self.kind, len(self.tasks), self.queries)
        priors = recipe_priors(recipes, numbers, self.config)
        return fit_stage(rows, priors, parts, counts, biased=self.kind == "choices")

    def worthwhile(self, recipes: tuple[Recipe, ...]) -> tuple[Recipe, ...]:
        """The recipes that earn enough of the mixture where all models are asked."""
        if self.kind == "answers" or len(recipes) == 1:
            return recipes[:1]
        size, n = self.sizes[-1], len(self.train_rows)
        at = np.linspace(0, n - 1, min(n, _TELLING)).round().astype(np.int64)
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
        stacked = (torch.stack([getattr(w, name) for w in weights]) for name in WEIGHTS)
        return Fitted(general, TaskStage(Weights(*stacked), np.stack(shares), np.stack(out_of_fold)))

    def look(self, distributions: Floats, size: int) -> tuple[Slots, Floats]:
        """What Fusion says, and what the Decider sees."""
        votes = self.train_rows.predictions[:, list(self.order[:size])]
        real = real_slots(distributions, self.kind)
        said = best_slots(real, self.seen, size, self.train_rows.slots)
        return said, view(real, said, votes, self.seen.given.shape[2])

    def agents(self, at: int, stages: Sequence[Fitted]) -> SequentialAgents:
        """Those of the seed at this place."""
        rows, n = self.train_rows, len(self.train_rows.models)
        task = task_places(rows.tasks.tolist(), self.tasks)
        fusions = tuple(Fusion(stage.general.weights, stage.general.shares[at]) for stage in stages)
        of_tasks = tuple(stage.of_tasks.fusion(at) for stage in stages if stage.of_tasks is not None)
        particulars = self.seen.about.particular
        history: list[Episode] = []
        general, particular = Ledger([], []), Ledger([], [])
        for done, (size, stage, fusion) in enumerate(zip(self.sizes, stages, fusions, strict=True)):
            numbers = self.rows(size)
            said, features = self.look(stage.general.out_of_fold[at], size)
            opinion = fusion.probabilities(numbers)
            general.views.append(StageView(features, size))
            general.deployed.append(self.look(opinion, size)[1])
            accuracy = float(((said == self.seen.labels) & (said >= 0)).mean())
            history.append(Episode("stage", done, None, accuracy, float(size)))
            if stage.of_tasks is not None:
                distributions = of_tasks[done].probabilities(numbers, particulars, opinion, task)
                particular.views.append(StageView(self.look(stage.of_tasks.out_of_fold[at], size)[1], size))
                particular.deployed.append(self.look(distributions, size)[1])
        decider, penalty = general.decider(self.config, n)
        task_decider, task_penalty = particular.decider(self.config, n) if of_tasks else (decider[:0], 0.0)
        return SequentialAgents(
            config=self.config, benchmark=rows.benchmark, kind=self.kind, models=rows.models,
            seed=self.seeds[at], snapshot=rows.snapshot, n_slots=rows.probs.shape[2], tasks=self.tasks,
            order=self.order, sizes=self.sizes, scales=fit_scales(rows), queries=self.queries,
            surfaces=self.surfaces,
            fusions=fusions, task_fusions=of_tasks, decider=decider, task_decider=task_decider,
            penalty=penalty, task_penalty=task_penalty, history=tuple(history),
            train_accuracy=tuple(rows.correct.mean(axis=0).tolist()),
            held_out_accuracy=max(stage.accuracy for stage in history),
        )  # fmt: skip


class Ledger(NamedTuple):
    """What a Decider is fitted on, stage after stage."""

    views: list[StageView]
    deployed: list[Floats]

    def decider(self, config: SequentialConfig, n_models: int) -> tuple[Floats, float]:
        """Its weights, and the penalty a model."""
        return fit_within(self.views, self.deployed, config.budget(n_models), config.size_penalty / n_models)


def prepare(train_rows: Dataset, config: SequentialConfig, seeds: Sequence[int]) -> Work:
    """What all stages need, from train rows that can be learned from."""
    tasks = tuple(dict.fromkeys(train_rows.tasks.tolist()))
    known_tasks = tasks if len(tasks) > 1 else ()
    questions = train_rows.questions or ("",) * len(train_rows)
    queries = fit_queries(questions, config.word_directions, config.gate_directions, config.landmarks)
    apart = known_tasks if knows_tasks(train_rows.kind, known_tasks) else ()
    places = task_places(train_rows.tasks.tolist(), apart)
    surfaces = fit_task_surfaces(questions, places, len(apart), config.landmarks)
    order = asking_order(train_rows)
    known = about(train_rows, queries, surfaces, known_tasks)
    seen = outputs(train_rows, known, fit_scales(train_rows), order, train_rows.probs.shape[2])
    return Work(
        train_rows, config, seeds, known_tasks, queries, surfaces, order,
        stage_sizes(len(train_rows.models), config.budget(len(train_rows.models))), seen,
        np.stack([hold_out(train_rows, config.folds, seed) for seed in seeds]),
        np.stack([hold_out_rows(len(train_rows), config.folds, seed) for seed in seeds]),
        task_counts(train_rows),
    )  # fmt: skip


def task_counts(train_rows: Dataset) -> Floats:
    """(T,) as many as there are in all; each of many tasks the same: test is of others, of any size."""
    tasks = np.unique(train_rows.tasks, return_inverse=True)[1]
    sizes = np.bincount(tasks)
    if len(sizes) < MANY_TASKS:
        return np.ones(len(tasks))
    return np.asarray(len(tasks) / len(sizes) / sizes[tasks])


def asking_order(train_rows: Dataset) -> tuple[int, ...]:
    """Models by falling train accuracy; ties: the alphabetically first. Copies of another come last."""
    firsts: list[int] = []
    copies: list[int] = []
    for model in np.argsort(-train_rows.correct.sum(axis=0), kind="stable").tolist():
        (copies if _copies_one_of(train_rows, model, firsts) else firsts).append(model)
    return (*firsts, *copies)


def _copies_one_of(train_rows: Dataset, model: int, others: Sequence[int]) -> bool:
    """Whether the model says what one of the others says, errors included: quantised weights, say."""
    said, theirs = train_rows.predictions[:, [model]], train_rows.predictions[:, others]
    err = (said != train_rows.labels[:, None]) | (theirs != train_rows.labels[:, None])
    shared = (err & (said == theirs)).sum(axis=0) / (err.sum(axis=0) + _FEW_ERRORS)
    same = (train_rows.probs[:, [model]] == train_rows.probs[:, others]).all(axis=(0, 2))
    return bool((same | (shared > _COPY)).any())


def stage_sizes(n_models: int, mean_pool: float) -> tuple[int, ...]:
    """How many models have answered at each stage: about a half more each, up to four times `mean_pool`."""
    most = min(n_models, max(int(4 * mean_pool), 2))
    sizes = [1]
    while sizes[-1] < most:
        sizes.append(min(most, max(sizes[-1] + 1, sizes[-1] * 3 // 2)))
    return tuple(sizes)


def hold_out(train_rows: Dataset, folds: int, seed: int) -> Slots:
    """(T,) the part of train that each document is held out with: whole tasks where there are many."""
    tasks = np.unique(train_rows.tasks, return_inverse=True)[1]
    if tasks.max() + 1 < MANY_TASKS:
        return hold_out_rows(len(train_rows), folds, seed)
    return hold_out_rows(int(tasks.max()) + 1, folds, seed)[tasks]


def hold_out_rows(n: int, folds: int, seed: int) -> Slots:
    """(n,) parts of equal size, drawn at random."""
    return np.asarray(np.random.default_rng(seed).permutation(np.arange(n) % folds))


WEIGHTS = ("shared", "bias", "own")


def write_stages(unfinished: Unfinished, recipes: Sequence[Recipe], stages: Sequence[Fitted]) -> None:
    """The stages that are done, and the recipes that are mixed in all of them."""
    tensors: dict[str, Tensor] = {}
    for at, fitted in enumerate(stages):
        for kind, stage in (("", fitted.general), ("tasks.", fitted.of_tasks)):
            if stage is not None:
                tensors |= {f"{at}.{kind}{name}": getattr(stage.weights, name) for name in WEIGHTS}
                tensors[f"{at}.{kind}shares"] = torch.from_numpy(stage.shares)
                tensors[f"{at}.{kind}out_of_fold"] = torch.from_numpy(stage.out_of_fold)
    unfinished.write(tensors, {"recipes": recipes, "stages": len(stages)})


def read_stages(
    unfinished: Unfinished, recipes: tuple[Recipe, ...]
) -> tuple[tuple[Recipe, ...], list[Fitted]]:
    """The inverse of `write_stages`; the given recipes and no stage where nothing was written."""
    found = unfinished.read()
    if found is None:
        return recipes, []
    about, tensors = found
    stages = []
    for at in range(about["stages"]):
        general = Stage(*_parts(under(f"{at}.", tensors)))
        of_tasks = under(f"{at}.tasks.", tensors)
        stages.append(Fitted(general, TaskStage(*_parts(of_tasks)) if of_tasks else None))
    return tuple(Recipe(*recipe) for recipe in about["recipes"]), stages


def _parts(of: Mapping[str, Tensor]) -> tuple[Weights, Floats, Floats]:
    weights = Weights(*(of[name] for name in WEIGHTS))
    return weights, of["shares"].numpy(), of["out_of_fold"].numpy()
