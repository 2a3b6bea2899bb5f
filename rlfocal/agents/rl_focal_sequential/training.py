"""Training of `rl_focal_sequential`: Fusion at every stage of asking, then the Decider on that."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlfocal.agents.rl_focal_sequential.agents import Fusion, SequentialAgents
from rlfocal.agents.rl_focal_sequential.config import REVISION, Recipe, SequentialConfig
from rlfocal.agents.rl_focal_sequential.decider import StageView, fit_within, view
from rlfocal.agents.rl_focal_sequential.observations import (
    MANY_TASKS,
    about,
    best_slots,
    fit_scales,
    outputs,
    real_slots,
    recipe_priors,
    stage_rows,
)
from rlfocal.agents.rl_focal_sequential.softmax_regression import Priors, Rows, Weights, fit_many
from rlfocal.agents.shared.queries import fit_queries
from rlfocal.agents.shared.slots import refuse_broken
from rlfocal.agents.shared.threads import one_thread
from rlfocal.agents.shared.variant import Progress, check_train
from rlfocal.agents.storage.resuming import Unfinished
from rlfocal.agents.storage.tensorfiles import under
from rlfocal.dataset import Dataset
from rlfocal.policy import Episode

Floats = NDArray[np.float64]
Slots = NDArray[np.int64]

_LEAST_SHARE = 0.03
"""A recipe that earns less than this of the mixture where all models are asked is not fitted anywhere."""
_HELD_OUT_TOLERANCE = 0.5
"""Held-out fits only choose shares and teach the Decider: closer ones move probabilities by under 0.003."""
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
    kind = train_rows.kind
    tasks = tuple(dict.fromkeys(train_rows.tasks.tolist()))
    known_tasks = tasks if len(tasks) > 1 else ()
    queries = fit_queries(
        train_rows.questions or ("",) * len(train_rows), config.word_directions, config.gate_directions
    )
    scales = fit_scales(train_rows)
    order = asking_order(train_rows)
    n_slots = train_rows.probs.shape[2]
    seen = outputs(train_rows, about(train_rows, queries, known_tasks), scales, order, n_slots)
    held_out = np.stack([hold_out(train_rows, config.folds, seed) for seed in seeds])
    sizes = stage_sizes(len(train_rows.models), config.mean_pool)

    def fit(size: int, recipes: Sequence[Recipe], parts: NDArray[np.int64]) -> Stage:
        rows = stage_rows(seen, size, kind)
        priors = recipe_priors(recipes, seen, size, kind, len(known_tasks), config)
        return fit_stage(rows, priors, parts, biased=kind == "choices")

    unfinished: Unfinished | None = None
    if kept is not None and len(train_rows) >= _LONG:
        unfinished = Unfinished.beside(kept, REVISION, train_rows, seeds, [config])
    recipes, stages = (config.recipes, []) if unfinished is None else read_stages(unfinished, config.recipes)
    if kind == "answers":
        recipes = recipes[:1]
    elif len(recipes) > 1 and not stages:
        shares = fit(sizes[-1], recipes, held_out[:1]).shares[0]
        least = min(_LEAST_SHARE, shares.max())
        recipes = tuple(r for r, share in zip(recipes, shares, strict=True) if share >= least)
    fusions: list[list[Fusion]] = [[] for _ in seeds]
    views: list[list[StageView]] = [[] for _ in seeds]
    deployed: list[list[Floats]] = [[] for _ in seeds]
    history: list[list[Episode]] = [[] for _ in seeds]
    for done, size in enumerate(sizes):
        if done == len(stages):
            stages.append(fit(size, recipes, held_out))
            if unfinished is not None:
                write_stages(unfinished, recipes, stages)
        stage = stages[done]
        votes = train_rows.predictions[:, list(order[:size])]

        def look(distributions: Floats, size: int = size, votes: Slots = votes) -> tuple[Slots, Floats]:
            real = real_slots(distributions, kind)
            said = best_slots(real, seen, size, train_rows.slots)
            return said, view(real, said, votes, n_slots)

        whole = stage.weights.probabilities(stage_rows(seen, size, kind)).numpy()
        for at in range(len(seeds)):
            fusions[at].append(Fusion(stage.weights, stage.shares[at]))
            said, features = look(stage.out_of_fold[at])
            views[at].append(StageView(features, size))
            deployed[at].append(look(np.einsum("r,rtc->tc", stage.shares[at], whole))[1])
            accuracy = float(((said == seen.labels) & (said >= 0)).mean())
            history[at].append(Episode("stage", done, None, accuracy, float(size)))
        if on_progress is not None:
            on_progress((done + 1) / len(sizes))
    if unfinished is not None:
        unfinished.forget()
    result = []
    for at, seed in enumerate(seeds):
        weights, penalty = fit_within(
            views[at], deployed[at], config.mean_pool, config.size_penalty / len(train_rows.models)
        )
        result.append(
            SequentialAgents(
                config=config, benchmark=train_rows.benchmark, kind=kind, models=train_rows.models,
                seed=seed, snapshot=train_rows.snapshot, n_slots=n_slots, tasks=known_tasks, order=order,
                sizes=sizes, scales=scales, queries=queries, fusions=tuple(fusions[at]),
                decider=weights, penalty=penalty, history=tuple(history[at]),
                train_accuracy=tuple(train_rows.correct.mean(axis=0).tolist()),
                held_out_accuracy=max(stage.accuracy for stage in history[at]),
            )
        )  # fmt: skip
    return result


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


def hold_out(train_rows: Dataset, folds: int, seed: int) -> NDArray[np.int64]:
    """(T,) the part of train that each document is held out with: whole tasks where there are many."""
    draw = np.random.default_rng(seed)
    tasks = np.unique(train_rows.tasks, return_inverse=True)[1]
    units = tasks if tasks.max() + 1 >= MANY_TASKS else np.arange(len(train_rows))
    part = draw.permutation(np.arange(units.max() + 1) % folds)
    return np.asarray(part[units])


class Stage(NamedTuple):
    """Fusion after one stage of asking."""

    weights: Weights
    """One regression per recipe, on all train rows."""
    shares: Floats
    """(S, R) each seed's mixture of the recipes"""
    out_of_fold: Floats
    """(S, T, C) each document's distribution by Fusion fitted without it"""


def fit_stage(rows: Rows, priors: Priors, held_out: NDArray[np.int64], *, biased: bool) -> Stage:
    """Every recipe on all of train, then for each seed on all but each held-out part, side by side."""
    n_recipes, n_rows = len(priors.shared), len(rows.labels)
    whole = fit_many(rows, rows.shared.new_ones((n_recipes, n_rows)), priors, biased=biased)
    out_of_fold = np.zeros((len(held_out), n_recipes, n_rows, rows.open.shape[1]))

    def fit_out_of_fold(of_seed: Floats, part: Tensor) -> None:
        n_folds = int(part.max()) + 1
        taken = (part != torch.arange(n_folds)[:, None]).to(rows.shared.dtype)  # (folds, T)
        every = torch.arange(n_recipes).repeat(n_folds)
        fitted = fit_many(
            rows,
            taken.repeat_interleave(n_recipes, 0),
            priors.at(every),
            start=whole.at(every),
            biased=biased,
            tolerance=_HELD_OUT_TOLERANCE,
        )
        for fold in range(n_folds):
            at = torch.nonzero(part == fold)[:, 0]
            one = fitted.at(slice(fold * n_recipes, (fold + 1) * n_recipes))
            held = Rows(rows.shared[at], rows.own[at], rows.open[at], rows.labels[at])
            of_seed[:, at.numpy()] = one.probabilities(held).numpy()

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(fit_out_of_fold, out_of_fold, torch.from_numpy(held_out)))
    labels = rows.labels.numpy()
    known = labels >= 0
    at_label = np.take_along_axis(out_of_fold[:, :, known], labels[known][None, None, :, None], 3)[..., 0]
    shares = np.stack([mixture(of_seed.T) for of_seed in at_label])
    return Stage(whole, shares, np.einsum("sr,srtc->stc", shares, out_of_fold))


def write_stages(unfinished: Unfinished, recipes: Sequence[Recipe], stages: Sequence[Stage]) -> None:
    """The stages that are done, and the recipes that are mixed in all of them."""
    tensors: dict[str, Tensor] = {}
    for at, stage in enumerate(stages):
        tensors |= {f"{at}.{name}": getattr(stage.weights, name) for name in ("shared", "bias", "own")}
        tensors |= {
            f"{at}.{name}": torch.from_numpy(getattr(stage, name)) for name in ("shares", "out_of_fold")
        }
    unfinished.write(tensors, {"recipes": recipes, "stages": len(stages)})


def read_stages(
    unfinished: Unfinished, recipes: tuple[Recipe, ...]
) -> tuple[tuple[Recipe, ...], list[Stage]]:
    """The inverse of `write_stages`; the given recipes and no stage where nothing was written."""
    found = unfinished.read()
    if found is None:
        return recipes, []
    about, tensors = found
    stages = []
    for at in range(about["stages"]):
        of = under(f"{at}.", tensors)
        weights = Weights(of["shared"], of["bias"], of["own"])
        stages.append(Stage(weights, of["shares"].numpy(), of["out_of_fold"].numpy()))
    return tuple(tuple(recipe) for recipe in about["recipes"]), stages


def mixture(at_label: Floats, iterations: int = 200) -> Floats:
    """(R,) shares that maximise the likelihood of the labels, from (T, R) probabilities of them (EM)."""
    n_recipes = at_label.shape[1]
    shares = np.full(n_recipes, 1 / n_recipes)
    for _ in range(iterations):
        owed = np.maximum(at_label, 1e-6) * shares
        owed /= owed.sum(axis=1, keepdims=True)
        shares = owed.sum(axis=0) + 1 / n_recipes
        shares /= shares.sum()
    return shares
