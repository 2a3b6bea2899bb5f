"""Hybrid LLM: the cheap model where it is likely to be as good as the best one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from rlfocal.base.arrays import Floats
from rlfocal.data.dataset import Dataset
from rlfocal.data.text import TFIDF, Encoder, fit_encoder
from rlfocal.methods._routing import question_router
from rlfocal.methods._text import questions_of
from rlfocal.methods.checking import Range, checked
from rlfocal.methods.neighbours import vectors_of
from rlfocal.methods.registry import MethodBase
from rlfocal.methods.routers._networks import Network, fit_network
from rlfocal.methods.routers._pairs import Pair, PairRouter, pair_of, route
from rlfocal.methods.routers._towers import Learning

Labels = Literal["transformed", "probabilistic", "deterministic"]


@question_router(
    "hybrid_llm",
    "the best model on train or the cheapest, by how likely the cheapest is as good on the question",
    fewest_models=2,
    needs=("questions", "prices"),
    source="Hybrid LLM (arXiv 2404.14618)",
    differs="a small network on fixed vectors (TF-IDF unless a sentence encoder is named), not a "
    "fine-tuned DeBERTa; quality is a model's probability of the right answer (or its share of right "
    "passes), not a BART score; the threshold with the best accuracy on train, unless a share of "
    "strong calls is given",
    space={
        "labels": get_args(Labels),
        "hidden": Range(25, 200, log=True),
        "epochs": Range(2, 20, log=True),
        "rate": Range(1e-4, 1e-2, log=True),
    },
)
@checked
class HybridLLM(MethodBase):
    """Asks the strong model where 1 - P(weak is as good | x) reaches a threshold.

    With p a model's chance of the right answer, the labels are, if deterministic, whether the weak model is
    right or the strong one wrong; probabilistic, 1 - p_strong (1 - p_weak), for one answer drawn from each;
    transformed, whether p_weak >= p_strong - t, with the t >= 0 that tells most documents apart: 2 s (1 - s)
    is greatest, s the share of such documents.
    """

    labels: Labels = "transformed"
    strong_share: float = -1.0
    """Share of strong calls, by a threshold calibrated on train; below 0: the most accurate there."""
    hidden: int = 100
    """units of the network's hidden layer"""
    epochs: int = 5
    batch: int = 64
    """documents per step"""
    rate: float = 1e-3
    decay: float = 1e-4
    encoder: str = TFIDF
    seeded = True

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[PairRouter]:
        pair, questions = pair_of(train), questions_of(train)
        encoder = fit_encoder(self.encoder, questions)
        targets = weak_suffices(train, pair, self.labels)[:, None]
        learning = Learning(self.epochs, self.batch, self.rate, self.decay)
        routers = []
        for seed in seeds:
            network = fit_network(vectors_of(encoder, questions), targets, self.hidden, learning, seed)
            worth = StrongNeeded(encoder, network)
            routers.append(route(worth, pair, train, worth.values(questions), self.strong_share))
        return routers


def weak_suffices(train: Dataset, pair: Pair, labels: Labels) -> Floats:
    """(n,) the labels, from 0 to 1."""
    if labels == "deterministic":
        right = train.correct
        return (right[:, pair.weak] | ~right[:, pair.strong]).astype(float)
    chances = train.chances
    weak, strong = chances[:, pair.weak], chances[:, pair.strong]
    if labels == "probabilistic":
        return np.asarray(1 - strong * (1 - weak))
    # Rounded, or float error would tell shares of passes apart.
    lag = (strong - weak).round(9)
    relaxed = np.unique(np.append(0.0, lag[lag > 0]))
    shares = np.searchsorted(np.sort(lag), relaxed, side="right") / max(len(lag), 1)
    best = relaxed[(shares * (1 - shares)).round(12).argmax()]
    return np.where(lag <= best, 1.0, 0.0)


@dataclass(frozen=True)
class StrongNeeded:
    """1 - P(weak is as good)."""

    encoder: Encoder
    network: Network

    def values(self, questions: tuple[str, ...]) -> Floats:
        return np.asarray(1 - self.network.chances(vectors_of(self.encoder, questions))[:, 0])
