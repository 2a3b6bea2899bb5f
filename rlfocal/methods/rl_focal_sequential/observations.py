"""The outputs of the first models in asking order as rows of Fusion's regressions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from rlfocal.base.arrays import Bools, Floats, Ints
from rlfocal.data.calls import Calls
from rlfocal.data.dataset import Dataset, Kind
from rlfocal.methods.learning.queries import N_SURFACE, QueryFeatures
from rlfocal.methods.rl_focal_sequential.config import Ridges
from rlfocal.methods.rl_focal_sequential.softmax_regression import Priors, RegressionRows

TIE_TOLERANCE = 1e-9
"""The difference below which two sums count as equal, because the order of summation may differ."""


class Scales(NamedTuple):
    """The means and deviations of the models' outputs on train, by which outputs are standardised."""

    shared: Floats
    """(N,) the standard deviation of each model's centred log-probs over all slots"""
    mean: Floats
    """(N, C) the mean of each model's centred log-prob for each slot"""
    own: Floats
    """(N, C) 1 / the standard deviation of each model's centred log-prob for each slot; 0 if that is 0"""


class QuestionFeatures(NamedTuple):
    """Features of T questions that are known before any model is asked; (T, 0) for free answers."""

    context: Floats
    """(T, 13 + B + D) the question's surface features, Nyström features of these, and words"""
    gates: Floats
    """(T, K) the question's words along the first K directions, which shift the models' weights"""


class Outputs(NamedTuple):
    """The models' outputs for T documents, in asking order and standardised on train."""

    shared: Floats
    """(T, N, C) log-probs, centred over the open slots and scaled for each model; for free answers, shares of
    samples"""
    own: Floats
    """(T, N, C) log-probs, standardised for each model and slot; (T, N, 0) for free answers"""
    has_answer: Bools
    """(T, N, C) whether the slot exists; for free answers, whether the model itself gave it"""
    votes: Floats
    """(T, N, C) 1 at each model's likeliest slot; (T, 0, C) for free answers"""
    labels: Ints
    """(T,) the right slot; -1 where no slot is right"""
    question_features: QuestionFeatures


def fit_scales(train: Dataset) -> Scales:
    """The scales of the models' outputs on train, which do not depend on labels."""
    if train.kind == "answers":
        n_models = len(train.models)
        return Scales(np.ones(n_models), np.zeros((n_models, 0)), np.zeros((n_models, 0)))
    exists = _find_slots(train.n_choices, train.logprobs.shape[2])
    centred = _centre(train.logprobs, exists)
    deviation = np.sqrt(np.square(centred).sum(axis=(0, 2)) / exists.sum())
    spread = centred.std(axis=0)
    return Scales(
        np.maximum(deviation, 1e-6),
        centred.mean(axis=0),
        np.where(spread > 1e-6, 1 / np.maximum(spread, 1e-6), 0.0),
    )


def read_question_features(documents: Dataset | Calls, queries: QueryFeatures) -> QuestionFeatures:
    """The features of the documents' questions; empty for free answers."""
    if documents.kind == "answers":
        nothing = np.zeros((len(documents), 0))
        return QuestionFeatures(nothing, nothing)
    questions = documents.questions or ("",) * len(documents)
    words, surface = queries.words(questions), queries.surface(questions)
    return QuestionFeatures(np.hstack([surface, queries.curves(surface), words]), queries.gates(words))


def make_outputs(
    documents: Dataset,
    question_features: QuestionFeatures,
    scales: Scales,
    order: Sequence[int],
    n_slots: int,
) -> Outputs:
    """The outputs of all models, in asking order and standardised; slots beyond `n_slots` are left out."""
    asked = list(order)
    if documents.kind == "answers":
        probs = documents.probs[:, asked]
        nothing = np.zeros((*probs.shape[:2], 0))
        return Outputs(probs, nothing, probs > 0, probs[:, :0], documents.labels, question_features)
    logprobs = documents.logprobs[:, asked, :n_slots]
    missing = n_slots - logprobs.shape[2]  # slots that do not exist
    logprobs = np.pad(logprobs, ((0, 0), (0, 0), (0, missing)), constant_values=-np.inf)
    exists = _find_slots(np.minimum(documents.n_choices, n_slots), n_slots)
    centred = _centre(logprobs, exists)
    shared = centred / scales.shared[asked, None]
    own = (centred - scales.mean[asked]) * scales.own[asked]
    given = np.broadcast_to(exists[:, None], logprobs.shape)
    best = np.where(given, centred, -np.inf).argmax(axis=2)
    spoke = documents.probs[:, asked].any(axis=2, keepdims=True)  # a failed call has no opinion
    votes = (best[..., None] == np.arange(n_slots)) & given & spoke
    own = own * (exists[:, None] & spoke)
    return Outputs(shared, own, given, votes.astype(np.float64), documents.labels, question_features)


def silence(outputs: Outputs, silent: Bools) -> Outputs:
    """The outputs without those of the models that `silent` (N,), in asking order, marks."""
    heard = ~silent[:, None]
    votes = outputs.votes * heard[: outputs.votes.shape[1]]
    return outputs._replace(shared=outputs.shared * heard, own=outputs.own * heard, votes=votes)


def stage_rows(outputs: Outputs, size: int, kind: Kind) -> RegressionRows:
    """The rows of Fusion's regressions after the first `size` models of the order.

    Shared features are the models' log-probs, their votes, and their log-probs times each gate. For free
    answers, one more slot stands for "no asked model is right". Without it, an answer on which all agree
    would be certain.
    """
    asked = slice(0, size)
    n_documents, n_slots = len(outputs.labels), outputs.has_answer.shape[2]
    shared = outputs.shared[:, asked].transpose(0, 2, 1)
    gated = shared[..., None, :] * outputs.question_features.gates[:, None, :, None]  # (T, C, K, m)
    shared = np.concatenate(
        [
            shared,
            outputs.votes[:, asked].transpose(0, 2, 1),
            gated.reshape(*shared.shape[:2], size * outputs.question_features.gates.shape[1]),
        ],
        axis=2,
    )
    exists = outputs.has_answer[:, asked].any(axis=1)
    labels = np.where(outputs.labels < n_slots, outputs.labels, -1)
    if kind == "answers":
        shared = np.pad(shared, ((0, 0), (0, 1), (0, 1)))
        shared[:, -1, -1] = 1.0
        among = (labels >= 0) & np.take_along_axis(exists, np.maximum(labels, 0)[:, None], 1)[:, 0]
        labels = np.where(among, labels, n_slots)
        exists = np.pad(exists, ((0, 0), (0, 1)), constant_values=True)
    return RegressionRows(
        torch.from_numpy(np.ascontiguousarray(shared)),
        torch.from_numpy(
            np.hstack([outputs.own[:, asked].reshape(n_documents, -1), outputs.question_features.context])
        ),
        torch.from_numpy(exists),
        torch.from_numpy(labels),
    )


def real_slots(probabilities: Floats, kind: Kind) -> Floats:
    """(..., C) probabilities without the slot that `stage_rows` adds for free answers."""
    return probabilities if kind == "choices" else probabilities[..., :-1]


def best_slots(probabilities: Floats, outputs: Outputs, size: int, texts: Sequence[Sequence[str]]) -> Ints:
    """(T,) the likeliest slot by probabilities (T, C); -1 where none is open.

    A tie goes to the slot to which the first model asked gives more, then the second and so on. Any tie left
    goes to the alphabetically first of `texts`, or the first choice.
    """
    best = (probabilities >= probabilities.max(axis=1, keepdims=True) - TIE_TOLERANCE) & (probabilities > 0)
    slots = best.argmax(axis=1)
    for row in np.flatnonzero(best.sum(axis=1) > 1):
        tied = np.flatnonzero(best[row])
        for given in outputs.shared[row, :size]:
            tied = tied[given[tied] >= given[tied].max() - TIE_TOLERANCE]
        slots[row] = min(tied, key=lambda slot: texts[row][slot]) if texts else tied[0]
    return np.where(probabilities.any(axis=1), slots, -1)


def recipe_priors(
    recipes: Sequence[Ridges], size: int, outputs: Outputs, queries: QueryFeatures, shared_ridge: float
) -> Priors:
    """The priors of R recipes for the weights on the features of `stage_rows`, in the features' order."""
    is_free = not outputs.own.shape[2]  # of free answers there is one weight per model, and one for "nobody"
    shared = {"shared": size + is_free}
    own: dict[str, int] = {}
    if not is_free:
        shared |= {"votes": size, "gates": size * outputs.question_features.gates.shape[1]}
        own = {"outputs": size * outputs.own.shape[2], "surface": N_SURFACE}
        own |= {"curves": queries.bends.shape[1], "words": queries.directions.shape[1]}
    ridges = [recipe._replace(shared=recipe.shared * shared_ridge)._asdict() for recipe in recipes]
    return Priors(_make_deviations(shared, ridges), _make_deviations(own, ridges))


def _make_deviations(widths: Mapping[str, int], recipes: Sequence[Mapping[str, float]]) -> Tensor:
    """(R, F) 1 / sqrt(ridge) for each feature, from the `widths` of its parts; 0 for a ridge of 0."""
    counts = torch.tensor([*widths.values()], dtype=torch.int64)
    rows = [[recipe[part] ** -0.5 if recipe[part] else 0.0 for part in widths] for recipe in recipes]
    return torch.tensor(rows, dtype=torch.float64).repeat_interleave(counts, 1)


def _find_slots(n_choices: Ints, n_slots: int) -> Bools:
    return np.arange(n_slots) < n_choices[:, None]


def _centre(logprobs: Floats, exists: Bools) -> Floats:
    """(T, N, C) log-probs, at least -50, minus their mean over existing slots; 0 for other slots."""
    values = np.where(exists[:, None], np.maximum(logprobs, -50.0), 0.0)
    mean = values.sum(axis=2, keepdims=True) / np.maximum(exists.sum(axis=1), 1)[:, None, None]
    return np.where(exists[:, None], values - mean, 0.0)
