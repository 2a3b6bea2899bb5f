"""Trains `rl_focal_sequential`: Fusion at every stage of asking, then the Decider on Fusion's outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from rlfocal.base.arrays import Bools, Floats, Ints
from rlfocal.data.dataset import Dataset, Kind
from rlfocal.data.folds import folds
from rlfocal.data.policy import Episode
from rlfocal.methods.fallback import PolicyName, choose_base, choose_fallback, needed_margin
from rlfocal.methods.learning.agents import Progress, Variant, check_train, refuse_broken
from rlfocal.methods.learning.networks import use_one_thread
from rlfocal.methods.learning.queries import QueryFeatures, fit_queries
from rlfocal.methods.learning.store import UnfinishedTraining
from rlfocal.methods.rl_focal_sequential.agents import (
    SequentialAgents,
    SequentialHeader,
    StageDriver,
    from_parts,
    read_stages,
    to_parts,
    write_stages,
)
from rlfocal.methods.rl_focal_sequential.config import Ridges, SequentialConfig
from rlfocal.methods.rl_focal_sequential.decider import (
    Ledger,
    Order,
    StageView,
    asking_order,
    list_stage_costs,
    outcome,
    price_shares,
    priced_orders,
    stage_sizes,
    view,
    worthwhile_stages,
)
from rlfocal.methods.rl_focal_sequential.observations import (
    Outputs,
    best_slots,
    fit_scales,
    make_outputs,
    read_question_features,
    real_slots,
    recipe_priors,
    stage_rows,
)
from rlfocal.methods.rl_focal_sequential.softmax_regression import (
    RegressionRows,
    Stage,
    fit_stage,
    select_comparison_rows,
)
from rlfocal.methods.rl_focal_sequential.start import StartTrials, try_starts
from rlfocal.statistics.calibration import fit_temperature

SIMPLEST_FIRST: tuple[PolicyName, PolicyName, PolicyName] = ("best single", "start", "learned")
_MIN_SHARE = 0.03
"""The least share of the last stage's mixture with which a recipe is fitted at all stages."""
_MIN_SAVED_DOCUMENTS = 2_000
"""The fewest train documents with which stages are saved, because they then take long."""


@use_one_thread()
def train(
    train_rows: Dataset,
    config: SequentialConfig,
    seeds: Sequence[int],
    on_progress: Progress | None = None,
    folder: Path | None = None,
) -> list[SequentialAgents]:
    """Trains the agents of each seed; seeds differ in the cross-validation folds.

    Finished stages are saved in `folder`, and a killed training resumes after the last of them. Raises
    InputError for a pool of one model, too few train documents to hold some out, and a probability that is
    not a finite number.
    """
    check_train(train_rows)
    refuse_broken(train_rows)
    work = prepare(train_rows, config, seeds)
    file: UnfinishedTraining | None = None
    if folder is not None and len(train_rows) >= _MIN_SAVED_DOCUMENTS:
        file = UnfinishedTraining.locate(folder, config.revision, train_rows, seeds, config)
    recipes, stages = (
        (config.recipes, []) if file is None else (read_stages(file, work.order, config.recipes))
    )
    if not stages:
        recipes = work.select_recipes(recipes)
    for size in work.sizes[len(stages) :]:
        stages.append(work.fit(size, recipes))
        if file is not None:
            write_stages(file, work.order, recipes, stages)
        if on_progress is not None:
            on_progress(len(stages) / len(work.sizes))
    if file is not None:
        file.forget()
    return [work.agents(number, stages) for number in range(len(seeds))]


class StagedTraining(NamedTuple):
    """The data that all stages of a training share, and the fits of one stage."""

    train_rows: Dataset
    config: SequentialConfig
    seeds: Sequence[int]
    queries: QueryFeatures
    order: Order
    shares: Floats
    """(N,) each model's share of all prices; zeros if prices do not count"""
    sizes: tuple[int, ...]
    outputs: Outputs
    held_out: Ints
    """(S, T) the fold of each document, for each seed"""

    @property
    def kind(self) -> Kind:
        return self.train_rows.kind

    def rows(self, size: int) -> RegressionRows:
        return stage_rows(self.outputs, size, self.kind)

    def fit(self, size: int, recipes: Sequence[Ridges], of_rows: Ints | slice = slice(None)) -> Stage:
        """Fits Fusion after the first `size` models for all seeds, to all train rows or to `of_rows`."""
        rows = self.rows(size)
        if not isinstance(of_rows, slice):
            rows = rows.take(torch.from_numpy(of_rows))
        priors = recipe_priors(recipes, size, self.outputs, self.queries, self.config.shared_ridge)
        return fit_stage(rows, priors, self.held_out[:, of_rows], has_biases=self.kind == "choices")

    def select_recipes(self, recipes: tuple[Ridges, ...]) -> tuple[Ridges, ...]:
        """The recipes with a large enough share of the last stage's mixture, by folds that seeds share."""
        if self.kind == "answers" or len(recipes) == 1:
            return recipes[:1]
        common = self._replace(held_out=folds(self.train_rows, self.config.folds)[None])
        shares = common.fit(self.sizes[-1], recipes, select_comparison_rows(len(self.train_rows))).shares[0]
        least = min(_MIN_SHARE, shares.max())
        return tuple(r for r, share in zip(recipes, shares, strict=True) if share >= least)

    def observe_stage(self, distributions: Floats, size: int) -> tuple[Ints, Floats]:
        """(T,) Fusion's slots, and (T, 5) the Decider's features, after the first `size` models."""
        votes = self.train_rows.predictions[:, list(self.order[:size])]
        real = real_slots(distributions, self.kind)
        answers = best_slots(real, self.outputs, size, self.train_rows.slots)
        return answers, view(real, answers, votes, self.outputs.has_answer.shape[2])

    def agents(self, number: int, stages: Sequence[Stage]) -> SequentialAgents:
        """The agents of the seed at position `number`."""
        rows, n = self.train_rows, len(self.train_rows.models)
        right, ledger = self.ledger(number, stages)
        chosen = worthwhile_stages(ledger, self.sizes, self.list_costs, self.config, n)
        sizes = tuple(self.sizes[stage] for stage in chosen)
        ledger = ledger.select_stages(chosen, self.list_costs(sizes))
        decider, penalty = ledger.decider(self.config, n)
        history = [
            Episode("stage", done, None, float(right[stage].mean()), float(self.sizes[stage]))
            for done, stage in enumerate(chosen)
        ]
        trials = self.starts(self.held_out[number])
        deciding = self.choose_fallbacks(
            ledger.outcomes(right[chosen], decider, self.config.size_penalty / n), sizes, trials,
            self.held_out[number],
        )  # fmt: skip
        return SequentialAgents(
            config=self.config, benchmark=rows.benchmark, kind=self.kind, models=rows.models,
            seed=self.seeds[number], snapshot=rows.snapshot, n_slots=rows.probs.shape[2], order=self.order,
            sizes=sizes, scales=fit_scales(rows), queries=self.queries,
            fusions=tuple(stages[stage].fusion(number) for stage in chosen), decider=decider, penalty=penalty,
            temperature=fit_temperature(
                [stages[stage].out_of_fold[number] for stage in chosen],
                [self.rows(size).labels.numpy() for size in sizes],
            ),
            history=tuple(history), train_accuracy=tuple(rows.correct.mean(axis=0).tolist()),
            held_out_accuracy=max(stage.accuracy for stage in history),
            deciding_policies=deciding, start=trials.start,
        )  # fmt: skip

    def choose_fallbacks(
        self, rewards: Floats, sizes: Sequence[int], trials: StartTrials, fold: Ints
    ) -> tuple[PolicyName, ...]:
        """(K,) for each last stage that a budget allows, the policy that decides.

        `rewards` (K, T): those of the learned policy. `fold` (T,): the fold of each document. The learned
        policy may decide only if all stages together clearly earn more than the most accurate model. At each
        stage, its mean reward must exceed that of the simpler policy. The simpler policy is the start or the
        most accurate model, whichever earns more, or the model where the start is too large.
        """
        alone, start, learned = SIMPLEST_FIRST
        if not self.config.has_floor:
            return (learned,) * len(rewards)
        worth = {alone: self._reward_single_model(fold), start: self._reward_start(trials)}
        margin, size = needed_margin(self.train_rows), trials.start.size
        base = alone
        if size > 1:
            base = choose_base(alone, start, np.stack([worth[alone], worth[start]]))
        chosen = choose_fallback((alone, learned), np.stack([worth[alone], rewards[-1]]), margin)
        deciding: list[PolicyName] = []
        for stage, most in enumerate(sizes):
            simpler = base if most >= size else alone
            is_ahead = chosen == learned and rewards[stage].mean() > worth[simpler].mean()
            deciding.append(learned if is_ahead else simpler)
        return tuple(deciding)

    def starts(self, fold: Ints) -> StartTrials:
        """The best starting pool, chosen by the folds `fold` (T,), with the results of all sizes."""
        rows, config = self.train_rows, self.config
        places = range(1, len(rows.models) + 1)
        # All are asked in one round, so that only the first has its price.
        prices = np.array(self.list_costs(places)) - config.round_penalty * np.arange(len(places))
        costs = prices + config.size_penalty / len(rows.models) * np.array(places)
        budget = config.budget(len(places))
        return try_starts(rows, self.outputs, np.array(self.order), fold, costs, budget)

    def _reward_start(self, trials: StartTrials) -> Floats:
        """(T,) the start's reward on each document, by a fit to other folds."""
        config, size = self.config, trials.start.size
        prices = self.list_costs(range(1, size + 1))[-1] - config.round_penalty * (size - 1)
        cost = config.size_penalty / len(self.train_rows.models) * size + prices
        at = size - 1
        return outcome(trials.right[at], trials.confidence[at], config.worth_of_abstaining) - cost

    def _reward_single_model(self, fold: Ints) -> Floats:
        """(T,) the reward of the most accurate model on each document, chosen by other folds (T,)."""
        rows, config = self.train_rows, self.config
        order = rows.rank_models()
        earned = np.zeros(len(rows))
        for number in range(int(fold.max()) + 1):
            out = fold == number
            best = order[rows.correct[~out][:, order].sum(axis=0).argmax()]
            confidence = rows.probs[out, best].max(axis=1, initial=0.0)
            prices = config.price_penalty * self.shares[best] + config.round_penalty
            cost = config.size_penalty / len(rows.models) + prices
            earned[out] = outcome(rows.correct[out, best], confidence, config.worth_of_abstaining) - cost
        return earned

    def ledger(self, number: int, stages: Sequence[Stage]) -> tuple[Bools, Ledger]:
        """(K, T) whether out-of-fold Fusion is right at each stage, and the data to fit the Decider to.

        Both are of the seed at position `number`.
        """
        right, ledger = [], Ledger([], [])
        for size, stage in zip(self.sizes, stages, strict=True):
            answers, features = self.observe_stage(stage.out_of_fold[number], size)
            final = stage.fusion(number).probabilities(self.rows(size))
            ledger.views.append(StageView(features, size, abstention_reward=self.config.worth_of_abstaining))
            ledger.final_features.append(self.observe_stage(final, size)[1])
            right.append((answers == self.outputs.labels) & (answers >= 0))
        return np.stack(right), ledger

    def list_costs(self, sizes: Sequence[int]) -> list[float]:
        """The penalty of prices and rounds after each of the stages of these sizes."""
        return list_stage_costs(self.order, sizes, self.shares, self.config)

    def mean_reward(self) -> float:
        """The mean expected reward of a train document, by the agents of the first seed."""
        _, ledger = self.ledger(0, [self.fit(size, self.config.recipes) for size in self.sizes])
        n = len(self.train_rows.models)
        chosen = worthwhile_stages(ledger, self.sizes, self.list_costs, self.config, n)
        return ledger.select_stages(
            chosen, self.list_costs([self.sizes[stage] for stage in chosen])
        ).mean_reward(self.config, n)


def _affordable_order(train_rows: Dataset, config: SequentialConfig, shares: Floats) -> Order:
    """The asking order, which prices may influence.

    If prices count, it is the one of `priced_orders` whose agents have the highest mean reward on a part of
    train. These agents have only the first recipe.
    """
    if not shares.any():
        return asking_order(train_rows, config)
    some = train_rows.take(select_comparison_rows(len(train_rows)))
    quick = replace(config, recipes=config.recipes[:1])
    return max(
        priced_orders(train_rows, config, shares),
        key=lambda order: prepare(some, quick, [0], order, shares).mean_reward(),
    )


def prepare(
    train_rows: Dataset,
    config: SequentialConfig,
    seeds: Sequence[int],
    order: Order | None = None,
    shares: Floats | None = None,
) -> StagedTraining:
    """The data that all stages need, from train rows; `order` and `shares` are computed if not given.

    Raises InputError if prices count and one is unknown.
    """
    if shares is None:
        shares = price_shares(train_rows, config)
    if order is None:
        order = _affordable_order(train_rows, config, shares)
    questions = train_rows.questions or ("",) * len(train_rows)
    queries = fit_queries(questions, config.word_directions, config.gate_directions, config.landmarks)
    about_rows = read_question_features(train_rows, queries)
    n_models = len(train_rows.models)
    return StagedTraining(
        train_rows, config, seeds, queries, order, shares, stage_sizes(n_models, config.budget(n_models)),
        make_outputs(train_rows, about_rows, fit_scales(train_rows), order, train_rows.probs.shape[2]),
        np.stack([folds(train_rows, config.folds, seed=seed) for seed in seeds]),
    )  # fmt: skip


SEQUENTIAL_VARIANT = Variant(SequentialHeader, train, to_parts, from_parts, StageDriver)
