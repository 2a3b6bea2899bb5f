"""Shared by tests: yardsticks."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import Decisions
from support.datasets import make_dataset


def make_logits(seed: int, T: int = 120, N: int = 4, C: int = 3) -> Dataset:
    """Models of different skill; every fifth document has one choice fewer."""
    rng = np.random.default_rng(seed)
    n_choices = np.where(np.arange(T) % 5 == 0, C - 1, C)
    labels = rng.integers(0, n_choices)
    skills = np.linspace(0.5, 2.5, N)[:, None] * (np.arange(C) == labels[:, None])[:, None]
    logits = np.where(np.arange(C) < n_choices[:, None, None], rng.normal(size=(T, N, C)) + skills, -np.inf)
    logprobs = logits - np.log(np.exp(logits).sum(axis=2, keepdims=True))
    made = make_dataset(np.exp(logprobs), labels, n_train=T // 2)
    return replace(
        made, logprobs=logprobs, n_choices=n_choices, labels=np.where(rng.random(T) < 0.1, -1, labels)
    )


def make_answers(*documents: tuple[str, str]) -> Dataset:
    """Free answers in one pass: what a document's models said, a letter each ('-' none), and the gold."""
    given, gold = [said for said, _ in documents], [gold for _, gold in documents]
    counted = [Counter(letter for letter in said if letter != "-") for said in given]
    slots = tuple(tuple(letter for letter, _ in count.most_common()) for count in counted)
    T, N, C = len(given), len(given[0]), max(map(len, slots))
    probs = np.zeros((T, N, C))
    for row, said in enumerate(given):
        for model, letter in enumerate(said):
            if letter != "-":
                probs[row, model, slots[row].index(letter)] = 1.0
    made = make_dataset(probs + 1e-300, np.zeros(T, dtype=np.int64), n_train=T // 2)
    return replace(
        made,
        kind="answers",
        probs=probs,
        logprobs=np.empty((0, N, C)),
        n_choices=np.array([len(row) for row in slots]),
        predictions=np.where(probs.any(axis=2), probs.argmax(axis=2), -1),
        labels=np.array([row.index(g) if g in row else -1 for row, g in zip(slots, gold, strict=True)]),
        slots=slots,
    )


def texts(data: Dataset, decisions: Decisions) -> list[str | None]:
    rows = zip(data.slots, decisions.predictions.tolist(), strict=True)
    return [row[slot] if slot >= 0 else None for row, slot in rows]


def only(data: Dataset, members: NDArray[np.int64]) -> Dataset:
    return replace(
        data,
        models=tuple(data.models[i] for i in members),
        probs=data.probs[:, members],
        logprobs=data.logprobs[:, members],
        predictions=data.predictions[:, members],
    )
