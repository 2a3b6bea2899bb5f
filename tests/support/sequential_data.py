"""Data and a short training for rl_focal_sequential."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from rlfocal.data.dataset import Dataset, Kind
from rlfocal.data.policy import decide
from rlfocal.methods.rl_focal_sequential.agents import SequentialAgents
from rlfocal.methods.rl_focal_sequential.config import Ridges, SequentialConfig
from rlfocal.methods.rl_focal_sequential.training import train
from support.datasets import make_answers, make_logits, only

SMALL = SequentialConfig(
    mean_pool=2.0,
    folds=3,
    recipes=(Ridges(100), Ridges(30, 30, 3, 50, 1), Ridges(0, shared=0.2)),
    word_directions=5,
    gate_directions=2,
    landmarks=8,
)


WORDS = ("which", "of", "these", "planets", "is", "not", "a", "star?", "Two", "trains", "leave", "Paris,")


def asked_in_words(data: Dataset) -> Dataset:
    rng = np.random.default_rng(0)
    questions = tuple(" ".join(rng.choice(WORDS, size=rng.integers(3, 9))) for _ in range(len(data)))
    return replace(data, questions=questions)


def letters(seed: int = 0, T: int = 120, N: int = 5) -> list[tuple[str, str]]:
    """What N models of falling skill said to T documents, and the gold answer, in make_answers' form."""
    rng = np.random.default_rng(seed)
    skill = np.linspace(0.85, 0.4, N)
    documents = []
    for _ in range(T):
        wrong = rng.choice(list("bcde-"), size=N)
        documents.append(("".join(np.where(rng.random(N) < skill, "a", wrong)), "a"))
    return documents


CHOICES = asked_in_words(make_logits(0, T=160, N=5))
ANSWERS = make_answers(*letters())


@cache
def trained(kind: Kind) -> SequentialAgents:
    return train((CHOICES if kind == "choices" else ANSWERS).train, SMALL, [0])[0]


def right(agents: SequentialAgents, documents: Dataset) -> NDArray[np.bool_]:
    predictions = decide(agents, documents).predictions
    return np.asarray((predictions == documents.labels) & (documents.labels >= 0))


def of_models(data: Dataset, at: Sequence[int], named: str = "m0{}") -> Dataset:
    """These models' answers alone, under names of their own; a model may be there twice."""
    return replace(only(data, np.array(at)), models=tuple(named.format(i) for i in range(len(at))))
