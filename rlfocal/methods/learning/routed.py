"""Agents that ask one model, chosen by the question, because answers that are only graded cannot be fused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from rlfocal.base.arrays import Bools, Floats, Ints
from rlfocal.data.calls import Answers, Calls
from rlfocal.data.dataset import Dataset
from rlfocal.data.folds import folds, split_folds
from rlfocal.data.outputs import NO_ANSWER, FusedAnswer, QueryOutputs
from rlfocal.data.policy import Decisions, decide
from rlfocal.methods.fallback import PolicyName, choose_fallback
from rlfocal.methods.learning.agents import (
    FusionAttribution,
    Tracker,
    TrainedAgents,
    Variant,
    check_train,
    refuse_broken,
)
from rlfocal.methods.learning.queries import QueryFeatures, fit_queries, query_tensors, read_queries
from rlfocal.methods.learning.store import Header
from rlfocal.methods.routing import ask

N_DIRECTIONS = 60
"""The number of principal directions of the questions' words."""
WORDS_RIDGE, TASK_RIDGE = 10.0, 30.0
"""The ridge penalties of the words' and the tasks' weights, chosen on train rows of MMLU and BBH."""
N_FOLDS = 5


@dataclass(frozen=True, kw_only=True)
class RoutedAgents(TrainedAgents):
    """Agents that ask the model with the highest accuracy by a ridge regression on question and task."""

    queries: QueryFeatures
    tasks: tuple[str, ...]
    """The train tasks, if there are several. For any other task, only the question's words decide."""
    weights: Floats
    """(1 + tasks + D, N) weights of a constant, the task (one-hot) and the question's words"""
    deciding_policies: tuple[PolicyName, ...]
    """(1,) the policy that decides: one model, or one for each question"""

    @property
    def most_choices(self) -> float:
        return np.inf

    def scores(self, questions: Sequence[str], tasks: Sequence[str]) -> Floats:
        """(T, N) the estimated probability that each model is right."""
        rows = _make_features(self.queries, self.tasks, questions, tasks)
        return np.asarray(np.hstack([np.ones((len(rows), 1)), rows]) @ self.weights)

    def decide(self, calls: Calls, most: float = np.inf, costs: Floats | None = None) -> Answers:
        """Asks one model about each document, among those with `costs` (N,) of at most `most`."""
        scores = self._scores(calls)
        return self._ask(calls, scores if costs is None else np.where(costs <= most, scores, -np.inf))

    def account(self, calls: Calls) -> FusionAttribution:
        slots, chance = self._ask(calls, self._scores(calls))
        assert chance is not None
        distribution = np.zeros((len(calls), max(int(slots.max(initial=0)) + 1, 1)))
        answered = np.flatnonzero(slots >= 0)
        distribution[answered, slots[answered]] = chance[answered]
        return FusionAttribution(slots, distribution, pulls=None)

    def decide_online(self, documents: Dataset) -> Decisions:
        """Decides without labels, because these agents do not learn online."""
        return decide(self, documents.hide_labels())

    def least_cost(self, costs: Floats | None) -> float:
        return 1.0 if costs is None else float(costs.min())

    def _scores(self, calls: Calls) -> Floats:
        self.check(calls)
        return self.scores(calls.questions or ("",) * len(calls), calls.tasks.tolist())

    def _ask(self, calls: Calls, scores: Floats) -> Answers:
        scores = np.where(calls.down, -np.inf, scores)
        answered = ask(calls, _pick(scores), scores)
        refuse_broken(calls.outputs())
        return answered


class _RoutedDriver:
    """A driver that asks one model per query; if that is down, the next best for the question."""

    def __init__(self, agents: RoutedAgents) -> None:
        self._agents = agents
        self.begin("", "")

    def tracker(self) -> Tracker:
        accuracy = np.clip(self._agents.weights[0], 0.0, 1.0)
        return Tracker(accuracy, float(accuracy.max()), 1, self._agents.seed)

    def begin(self, question: str, task: str) -> None:
        self._scores = self._agents.scores([question], [task])[0]

    def forget(self) -> None:
        pass

    def choose_models(self, outputs: QueryOutputs) -> Bools:
        live = np.where(outputs.is_down, -np.inf, self._scores)
        return np.asarray(outputs.is_down | (np.arange(len(live)) == _pick(live[None])[0]))

    def fuse(self, outputs: QueryOutputs) -> FusedAnswer:
        answered = outputs.is_asked & ~outputs.is_down & (outputs.slots >= 0)
        if not answered.any():
            return NO_ANSWER
        best = int(_pick(np.where(answered, self._scores, -np.inf)[None])[0])
        return FusedAnswer(int(outputs.slots[best]), float(np.clip(self._scores[best], 0.0, 1.0)))


def _pick(scores: Floats) -> Ints:
    """(T,) the model with the highest of scores (T, N).

    Scores are rounded, so that float errors break no tie.
    """
    return np.asarray(scores.round(9).argmax(axis=1))


def _train_routed(train: Dataset, config: Any, seeds: Sequence[int]) -> list[RoutedAgents]:
    """Fits a router, the same for every seed. One model decides alone if routing is not better out of fold.

    Raises InputError for a pool of one model or fewer than two train documents.
    """
    check_train(train)
    tasks = tuple(dict.fromkeys(train.tasks.tolist()))
    tasks = tasks if len(tasks) > 1 else ()
    questions = train.questions or ("",) * len(train)
    queries = fit_queries(questions, N_DIRECTIONS, 0, 0)
    rows = _make_features(queries, tasks, questions, train.tasks.tolist())
    ridge = np.array([TASK_RIDGE] * len(tasks) + [WORDS_RIDGE] * (rows.shape[1] - len(tasks)))
    right = train.correct.astype(np.float64)
    weights = _fit(rows, right, ridge)
    names: tuple[PolicyName, ...] = ("best single", "best single per question")
    chosen = choose_fallback(names, _decide_out_of_fold(train, rows, right, ridge))
    if chosen == names[0]:
        # Shares of right answers alone; ties go as `rank_models` says.
        weights[1:] = 0.0
        weights[0] = right.mean(axis=0) - 1e-6 * np.argsort(train.rank_models())
    agents = RoutedAgents(
        method="", benchmark=train.benchmark, kind=train.kind, models=train.models, seed=0,
        snapshot=train.snapshot, history=(), config=config, queries=queries, tasks=tasks,
        weights=weights.astype(np.float32).astype(np.float64), deciding_policies=(chosen,),
    )  # fmt: skip
    return [replace(agents, seed=seed) for seed in seeds]


def _make_features(
    queries: QueryFeatures, tasks: Sequence[str], questions: Sequence[str], task_names: Sequence[str]
) -> Floats:
    """(T, tasks + D) features: the task, one-hot, and the question's words."""
    is_task = np.array(task_names, dtype=object)[:, None] == np.array(tasks, dtype=object)
    return np.hstack([is_task.reshape(len(task_names), -1), queries.words(questions)])


def _fit(rows: Floats, right: Floats, ridge: Floats) -> Floats:
    """(1 + F, N) coefficients of a ridge regression of `right` (T, N) on rows (T, F), the constant first.

    The constant is not penalised.
    """
    middle, mean = rows.mean(axis=0), right.mean(axis=0)
    centred = rows - middle
    slopes = np.linalg.solve(centred.T @ centred + np.diag(ridge), centred.T @ (right - mean))
    return np.vstack([mean - middle @ slopes, slopes])


def _decide_out_of_fold(train: Dataset, rows: Floats, right: Floats, ridge: Floats) -> Floats:
    """(2, T) whether the most accurate model and the model chosen by the question are right, out of fold."""
    earned = np.zeros((2, len(rows)))
    for rest, out in split_folds(folds(train, N_FOLDS)):
        weights = _fit(rows[rest], right[rest], ridge)
        picked = _pick(weights[0] + rows[out] @ weights[1:])
        earned[0, out] = right[out, right[rest].mean(axis=0).argmax()]
        earned[1, out] = right[out, picked]
    return earned


Config = TypeVar("Config")


class RoutedHeader(Header, Generic[Config]):
    """The header in a checkpoint of agents that ask one model."""

    config: Config
    tasks: tuple[str, ...]
    deciding_policies: tuple[PolicyName, ...] = Field(alias="kept")


WEIGHTS_KEY = "router"
"""The name of RoutedAgents' weights in a checkpoint, by which such checkpoints are recognised."""


def _to_parts(agents: RoutedAgents) -> dict[str, Tensor]:
    """The tensors of the agents, by their names in a checkpoint."""
    return {**query_tensors(agents.queries), WEIGHTS_KEY: torch.from_numpy(agents.weights)}


def _from_parts(header: RoutedHeader[Any], tensors: Mapping[str, Tensor]) -> RoutedAgents:
    """The agents, from a checkpoint's header and the tensors that `_to_parts` returned."""
    return RoutedAgents(
        queries=read_queries(tensors), weights=tensors[WEIGHTS_KEY].numpy(), **header.fields()
    )


def make_variant(config: type) -> Variant:
    """The variant that trains RoutedAgents for a method, whose settings are of the class `config`."""
    return Variant(
        RoutedHeader[config],  # type: ignore[valid-type]
        lambda rows, settings, seeds, on_progress, folder: _train_routed(rows, settings, seeds),
        _to_parts, _from_parts, _RoutedDriver,
    )  # fmt: skip
