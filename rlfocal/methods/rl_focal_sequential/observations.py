"""What Fusion sees after the first models of the asking order have answered, as rows of a regression."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from rlfocal.base.arrays import Bools, Floats, Ints
from rlfocal.data.calls import Calls
from rlfocal.data.dataset import Dataset, Kind
from rlfocal.methods.learning.queries import N_SURFACE, QueryFeatures, TaskSurfaces
from rlfocal.methods.rl_focal_sequential.config import Recipe, SequentialConfig
from rlfocal.methods.rl_focal_sequential.softmax_regression import Priors, Rows

MANY_TASKS = 10
"""With this many tasks in train, Fusion is fitted twice: with whole tasks held out, for new tasks, and to
each task's own documents, for train's tasks."""
TIE = 1e-9
"""Sums that differ by less are ties: their order of summation may differ."""


class Scales(NamedTuple):
    """Location and scale of the models' outputs on train, to give every feature deviation 1."""

    shared: Floats
    """(N,) deviation of a model's centred log-probs"""
    mean: Floats
    """(N, C) mean of the centred log-prob"""
    own: Floats
    """(N, C) 1 / its deviation; 0 where it never varies"""


class About(NamedTuple):
    """What is known of T questions before any model is asked; (T, 0) each for free answers."""

    context: Floats
    """(T, J + 13 + L + D) the task (one-hot), then the question's surface, curves over it, and words"""
    gates: Floats
    """(T, K) what shifts the models' weights: the question's words along the first directions, and, where
    train has few tasks, the task (one-hot)"""
    particular: Floats
    """(T, 13 + L + D) what a known task's own regressions see: surface and curves on its scale, and words"""


class Outputs(NamedTuple):
    """The models' answers to T documents, in asking order and on the scale of train."""

    shared: Floats
    """(T, N, C) log-probs centred over the open slots, in deviations; for answers, shares of passes"""
    own: Floats
    """(T, N, C) the same, standardised for each slot; (T, N, 0) for answers"""
    given: Bools
    """(T, N, C) slots that exist; for answers, those that the model itself gave"""
    votes: Floats
    """(T, N, C) 1 at each model's likeliest slot; (T, 0, C) for answers"""
    labels: Ints
    """(T,)"""
    about: About


def fit_scales(train: Dataset) -> Scales:
    """Scales of train's outputs, without labels."""
    if train.kind == "answers":
        n_models = len(train.models)
        return Scales(np.ones(n_models), np.zeros((n_models, 0)), np.zeros((n_models, 0)))
    exists = _exists(train.n_choices, train.logprobs.shape[2])
    centred = _centre(train.logprobs, exists)
    deviation = np.sqrt(np.square(centred).sum(axis=(0, 2)) / exists.sum())
    spread = centred.std(axis=0)
    return Scales(
        np.maximum(deviation, 1e-6),
        centred.mean(axis=0),
        np.where(spread > 1e-6, 1 / np.maximum(spread, 1e-6), 0.0),
    )


def about(
    documents: Dataset | Calls, queries: QueryFeatures, surfaces: TaskSurfaces, tasks: Sequence[str]
) -> About:
    """The questions as Fusion sees them; with free answers it sees nothing of them."""
    if documents.kind == "answers":
        nothing = np.zeros((len(documents), 0))
        return About(nothing, nothing, nothing)
    questions = documents.questions or ("",) * len(documents)
    words = queries.words(questions)
    one_hot = _one_hot(documents.tasks.tolist(), tasks)
    surface = queries.surface(questions)
    context = np.hstack([one_hot, surface, queries.curves(surface), words])
    particular = np.zeros((len(documents), 0))
    if knows_tasks(documents.kind, tasks):
        at = task_places(documents.tasks.tolist(), tasks)
        particular = np.hstack([surfaces.numbers(questions, at), words])
    return About(
        context, np.hstack([queries.gates(words), one_hot[:, : n_task_gates(len(tasks))]]), particular
    )


def outputs(documents: Dataset, about: About, scales: Scales, order: Sequence[int], n_slots: int) -> Outputs:
    """The documents as Fusion sees them; slots beyond `n_slots` are never answered."""
    at = list(order)
    if documents.kind == "answers":
        probs = documents.probs[:, at]
        nothing = np.zeros((*probs.shape[:2], 0))
        return Outputs(probs, nothing, probs > 0, probs[:, :0], documents.labels, about)
    logprobs = _resize(documents.logprobs[:, at], n_slots)
    exists = _exists(np.minimum(documents.n_choices, n_slots), n_slots)
    centred = _centre(logprobs, exists)
    shared = centred / scales.shared[at, None]
    own = (centred - scales.mean[at]) * scales.own[at]
    given = np.broadcast_to(exists[:, None], logprobs.shape)
    best = np.where(given, centred, -np.inf).argmax(axis=2)
    spoke = documents.probs[:, at].any(axis=2, keepdims=True)  # a failed call has no opinion
    votes = (best[..., None] == np.arange(n_slots)) & given & spoke
    own = own * (exists[:, None] & spoke)
    return Outputs(shared, own, given, votes.astype(np.float64), documents.labels, about)


def silence(seen: Outputs, silent: Bools) -> Outputs:
    """The same with these models (N,), in asking order, giving no answer: no opinion and no vote."""
    heard = ~silent[:, None]
    votes = seen.votes * heard[: seen.votes.shape[1]]
    return seen._replace(shared=seen.shared * heard, own=seen.own * heard, votes=votes)


def stage_rows(seen: Outputs, size: int, kind: Kind) -> Rows:
    """What Fusion knows after the first `size` models of the order.

    Each model's log-probs come first, then its votes, then its log-probs times each gate, so that weights on
    the latter are what a gate adds to the model's weight. For free answers, one more slot stands for "no
    asked model is right": without it, an answer that all agree on would be certain.
    """
    asked = slice(0, size)
    n_documents, n_slots = len(seen.labels), seen.given.shape[2]
    shared = seen.shared[:, asked].transpose(0, 2, 1)
    gated = shared[..., None, :] * seen.about.gates[:, None, :, None]  # (T, C, K, m)
    shared = np.concatenate(
        [
            shared,
            seen.votes[:, asked].transpose(0, 2, 1),
            gated.reshape(*shared.shape[:2], size * seen.about.gates.shape[1]),
        ],
        axis=2,
    )
    exists = seen.given[:, asked].any(axis=1)
    labels = np.where(seen.labels < n_slots, seen.labels, -1)
    if kind == "answers":
        shared = np.pad(shared, ((0, 0), (0, 1), (0, 1)))
        shared[:, -1, -1] = 1.0
        among = (labels >= 0) & np.take_along_axis(exists, np.maximum(labels, 0)[:, None], 1)[:, 0]
        labels = np.where(among, labels, n_slots)
        exists = np.pad(exists, ((0, 0), (0, 1)), constant_values=True)
    return Rows(
        torch.from_numpy(np.ascontiguousarray(shared)),
        torch.from_numpy(np.hstack([seen.own[:, asked].reshape(n_documents, -1), seen.about.context])),
        torch.from_numpy(exists),
        torch.from_numpy(labels),
    )


def n_task_gates(n_tasks: int) -> int:
    """How many tasks shift the models' weights: all, or none where whole tasks are held out, which shows no
    gain."""
    return n_tasks if n_tasks < MANY_TASKS else 0


def knows_tasks(kind: Kind, tasks: Sequence[str]) -> bool:
    """Whether each task has its own regressions besides those of all tasks."""
    return kind == "choices" and len(tasks) >= MANY_TASKS


def task_places(tasks: Sequence[str], known: Sequence[str]) -> Ints:
    """(T,) each document's place among the known tasks; -1 for any other."""
    place = {task: at for at, task in enumerate(known)}
    return np.array([place.get(task, -1) for task in tasks], dtype=np.int64)


def real_slots(probabilities: Floats, kind: Kind) -> Floats:
    """(..., C) without the slot that `stage_rows` adds to answers."""
    return probabilities if kind == "choices" else probabilities[..., :-1]


def best_slots(probabilities: Floats, seen: Outputs, size: int, texts: Sequence[Sequence[str]]) -> Ints:
    """(T,) the likeliest slot, -1 where none is open.

    A tie goes to the slot to which the first model asked gives more, then the second and so on, then to the
    alphabetically first answer, because the order of a dataset's answers depends on models not asked.
    """
    best = (probabilities >= probabilities.max(axis=1, keepdims=True) - TIE) & (probabilities > 0)
    slots = best.argmax(axis=1)
    for row in np.flatnonzero(best.sum(axis=1) > 1):
        tied = np.flatnonzero(best[row])
        for given in seen.shared[row, :size]:
            tied = tied[given[tied] >= given[tied].max() - TIE]
        slots[row] = min(tied, key=lambda slot: texts[row][slot]) if texts else tied[0]
    return np.where(probabilities.any(axis=1), slots, -1)


class Widths(NamedTuple):
    """The number of features in each part of `stage_rows`."""

    shared: int
    """the asked models', and one for answers"""
    votes: int
    word_gates: int
    task_gates: int
    outputs: int
    tasks: int
    surface: int
    curves: int
    words: int


def widths(seen: Outputs, size: int, kind: Kind, n_tasks: int, queries: QueryFeatures) -> Widths:
    """Widths for the first `size` models' outputs."""
    if kind == "answers":
        return Widths(size + 1, 0, 0, 0, 0, 0, 0, 0, 0)
    of_tasks = n_task_gates(n_tasks)
    of_words = seen.about.gates.shape[1] - of_tasks
    about = (n_tasks, N_SURFACE, queries.bends.shape[1], queries.directions.shape[1])
    return Widths(size, size, size * of_words, size * of_tasks, size * seen.own.shape[2], *about)


def task_widths(seen: Outputs, size: int, surfaces: TaskSurfaces, queries: QueryFeatures) -> Widths:
    """Widths for what a task's own regressions see of the first `size` models, without Fusion's opinion."""
    curves, words = surfaces.bends.shape[2], queries.directions.shape[1]
    return Widths(size, size, 0, 0, size * seen.own.shape[2], 0, N_SURFACE, curves, words)


def recipe_priors(recipes: Sequence[Recipe], widths: Widths, config: SequentialConfig) -> Priors:
    """The priors of R recipes for the weights on the features of `stage_rows`."""
    shared, own = [], []
    for one in recipes:
        believed = one.shared * config.shared_ridge
        of_tasks = config.task_ridge if believed else 0.0
        shared.append(
            [
                (widths.shared, believed),
                (widths.votes, one.votes),
                (widths.word_gates, one.gates),
                (widths.task_gates, of_tasks),
            ]
        )
        own.append(
            [
                (widths.outputs, one.outputs),
                (widths.tasks, config.task_ridge),
                (widths.surface, one.surface),
                (widths.curves, one.curves),
                (widths.words, one.words),
            ]
        )
    return Priors(_deviations(shared), _deviations(own))


def _deviations(recipes: Sequence[Sequence[tuple[int, float]]]) -> Tensor:
    """(R, F) 1 / sqrt(ridge), repeated for the features of each part; 0 for a part that is left out."""
    rows = [np.concatenate([np.full(n, r**-0.5 if r else 0.0) for n, r in parts]) for parts in recipes]
    return torch.from_numpy(np.stack(rows))


def _exists(n_choices: Ints, n_slots: int) -> Bools:
    return np.arange(n_slots) < n_choices[:, None]


def _resize(logprobs: Floats, n_slots: int) -> Floats:
    """(T, N, n_slots) cut, or padded with slots that do not exist."""
    missing = max(0, n_slots - logprobs.shape[2])
    return np.pad(logprobs[:, :, :n_slots], ((0, 0), (0, 0), (0, missing)), constant_values=-np.inf)


def _centre(logprobs: Floats, exists: Bools) -> Floats:
    """Log-probs, no smaller than -50, minus their mean over the open slots; 0 elsewhere."""
    values = np.where(exists[:, None], np.maximum(logprobs, -50.0), 0.0)
    mean = values.sum(axis=2, keepdims=True) / np.maximum(exists.sum(axis=1), 1)[:, None, None]
    return np.where(exists[:, None], values - mean, 0.0)


def _one_hot(tasks: Sequence[str], known: Sequence[str]) -> Floats:
    places = task_places(tasks, known)
    rows = np.zeros((len(tasks), len(known)))
    rows[places >= 0, places[places >= 0]] = 1.0
    return rows
