"""Shared by tests: method data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rlfocal.data.dataset import Dataset
from support.yardsticks import make_answers, make_logits

SPOKEN = [("aabb", "a"), ("dcba", "b"), ("eeea", "z"), ("bbcd", "c"), ("----", "a"), ("abab", "b")]


def choices(n_docs: int = 90, n_models: int = 4) -> Dataset:
    data = make_logits(1, T=n_docs, N=n_models, C=3)
    words = np.random.default_rng(0).choice(["apple", "planet", "river", "seven", "why"], (n_docs, 4))
    return replace(
        data,
        prices=np.linspace(1.0, n_models, n_models),
        questions=tuple(" ".join(row) for row in words),
        choices=(("one", "two", "three"),) * n_docs,
    )


def answers(n: int = 12) -> Dataset:
    data = make_answers(*SPOKEN * n)
    return replace(
        data, prices=np.linspace(1.0, 4.0, 4), questions=tuple(f"question {i % 7}" for i in range(6 * n))
    )


def edges() -> dict[str, Dataset]:
    usual = choices()
    one_class = replace(usual, labels=np.zeros(len(usual), dtype=np.int64))
    return {
        "three documents": usual.take(np.array([0, 1, len(usual) - 1])),
        "one class": one_class,
        "nobody right": replace(usual, labels=np.full(len(usual), -1)),
        "no texts": replace(usual, questions=(), choices=()),
        "empty texts": replace(usual, questions=("",) * len(usual)),
        "no prices": replace(usual, prices=np.full(4, np.nan)),
        "two models": choices(60, 2),
        "few answers": answers(1),
    }
