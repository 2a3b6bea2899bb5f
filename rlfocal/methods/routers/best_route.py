"""BEST-Route: the cheapest model, with the fewest samples, that is likely to match the best one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from pydantic import Field, PositiveInt

from rlfocal.base.arrays import Bools, Floats, Ints
from rlfocal.data.calls import Answered, Calls
from rlfocal.data.dataset import Dataset
from rlfocal.data.text import TFIDF, Encoder, fit_encoder
from rlfocal.methods._text import questions_of
from rlfocal.methods.checking import Range, checked
from rlfocal.methods.neighbours import vectors_of
from rlfocal.methods.pools.greedy import best_on_train
from rlfocal.methods.pools.more_agents import majority_of
from rlfocal.methods.registry import Entry, MethodBase, register
from rlfocal.methods.routers._networks import Network, fit_network
from rlfocal.methods.routers._towers import Learning

_TRIALS = 20
"""Votes drawn per document, model and number of samples, to tell how often they are right."""


@register(
    Entry(
        "best_route",
        "the cheapest model and number of samples, up to 5, that are likely to match the best model",
        "the majority of that many draws from what it said",
        kinds=("answers",),
        is_default=False,
        needs=("questions", "passes", "prices"),
        source="BEST-Route (arXiv 2506.22716)",
        differs="samples are drawn with replacement from stored passes and vote, as no reward model "
        "chooses among stored answers; right or wrong instead of a reward; a small network on fixed "
        "vectors (TF-IDF unless a sentence encoder is named), not a fine-tuned DeBERTa; n samples weigh n "
        "times the price in the choice, but count as one call",
        reads=("question",),
        space={
            "hidden": Range(25, 200, log=True),
            "epochs": Range(2, 20, log=True),
            "rate": Range(1e-4, 1e-2, log=True),
        },
    )
)
@checked
class BestRoute(MethodBase):
    """Asks the cheapest pair of a model m and n samples with P(n of m match the best model | x) >= threshold.

    If there is none, it asks the best model on train, once. The labels are 1 - p_best (1 - p_mn), p_mn how
    often the majority of n samples of m is right, learnt by cross-entropy with one output per pair.
    """

    samples: PositiveInt = 5
    """the most that are drawn from a model"""
    threshold: Annotated[float, Field(le=1)] = -1.0
    """below 0: the most accurate on train"""
    hidden: int = 100
    """units of the network's hidden layer"""
    epochs: int = 5
    batch: int = 32
    """documents per step"""
    rate: float = 1e-3
    decay: float = 1e-4
    encoder: str = TFIDF
    seeded = True

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[SampledRouter]:
        encoder, best = fit_encoder(self.encoder, questions_of(train)), int(best_on_train(train, 1)[0])
        vectors = vectors_of(encoder, questions_of(train))
        models, n = (at.ravel() for at in np.indices((len(train.models), self.samples)))
        n = n + 1
        # The cheapest first; ties: the alphabetically first model.
        order = np.argsort(train.prices[models] * n, kind="stable")
        models, n = models[order], n[order]
        learning = Learning(self.epochs, self.batch, self.rate, self.decay)
        alone = train.chances[:, best]
        routers = []
        for seed in seeds:
            right = _how_often_right(train, models, n, np.random.default_rng(seed))
            targets = 1 - alone[:, None] * (1 - right)
            network = fit_network(vectors, targets, self.hidden, learning, seed)
            router = SampledRouter(encoder, network, models, n, best, self.threshold, seed)
            if self.threshold < 0:
                router = replace(router, threshold=_best_threshold(network.chances(vectors), right, alone))
            routers.append(router)
        return routers


def _best_threshold(chances: Floats, right: Floats, alone: Floats) -> float:
    """The threshold of most right answers, from chances and accuracies (T, M); ties: the lowest.

    `alone` (T,): how often the best model is right by itself.
    """
    tried = np.linspace(0, 1, 101)
    found = [
        np.where(is_any, right[np.arange(len(right)), first], alone).mean() if len(right) else 0.0
        for first, is_any in (_first(chances >= threshold) for threshold in tried)
    ]
    return float(tried[np.round(found, 9).argmax()])


def _first(enough: Bools) -> tuple[Ints, Bools]:
    """(T,) which pair comes first, and whether there is one."""
    return enough.argmax(axis=1), np.asarray(enough.any(axis=1))


def _how_often_right(train: Dataset, models: Ints, n: Ints, rng: np.random.Generator) -> Floats:
    """(T, M) the share of majorities of n draws that are right, for each pair."""
    found = np.zeros((len(train), len(models)))
    for pair, (model, size) in enumerate(zip(models, n, strict=True)):
        for _ in range(_TRIALS):
            slots = majority_of(train.probs[:, model], int(size), rng).slots
            found[:, pair] += (slots == train.labels) & (slots >= 0)
    return found / _TRIALS


@dataclass(frozen=True)
class SampledRouter:
    """Asks one model for as many samples as it takes to match the best."""

    encoder: Encoder
    network: Network
    models: Ints
    """(M,) of the pairs, the cheapest first"""
    samples: Ints
    """(M,)"""
    best: int
    threshold: float
    seed: int

    def decide(self, calls: Calls) -> Answered:
        enough = self.network.chances(vectors_of(self.encoder, questions_of(calls))) >= self.threshold
        first, is_any = _first(enough)
        models = np.where(is_any, self.models[first], self.best)
        said = calls.call(models[:, None] == np.arange(len(calls.models))).probs[
            np.arange(len(calls)), models
        ]
        return majority_of(said, np.where(is_any, self.samples[first], 1), np.random.default_rng(self.seed))
