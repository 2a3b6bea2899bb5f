"""Small data sets: of given probabilities, with models of different skill, and edge cases."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import Decisions


def make_dataset(probs: np.ndarray, labels: np.ndarray, n_train: int) -> Dataset:
    """A dataset of choices from (T, N, C) probabilities."""
    T, N, C = probs.shape
    return Dataset(
        benchmark="made",
        kind="choices",
        models=tuple(f"m{i:02}" for i in range(N)),
        prices=np.arange(1.0, N + 1),
        tasks=np.array(["t"] * T),
        doc_ids=np.arange(T),
        probs=probs,
        logprobs=np.log(probs),
        n_choices=np.full(T, C),
        predictions=probs.argmax(axis=2),
        labels=labels,
        is_train=np.arange(T) < n_train,
        slots=(),
        snapshot=0,
    )


@st.composite
def datasets(draw: st.DrawFn) -> Dataset:
    T, N, C = draw(st.integers(2, 12)), draw(st.integers(1, 5)), draw(st.integers(2, 4))
    levels = st.sampled_from([1.0, 2.0, 4.0])  # few levels, so that ties are common
    weights = np.array(draw(st.lists(levels, min_size=T * N * C, max_size=T * N * C))).reshape(T, N, C)
    labels = np.array(draw(st.lists(st.integers(0, C - 1), min_size=T, max_size=T)))
    return make_dataset(weights / weights.sum(axis=2, keepdims=True), labels, n_train=max(1, T // 2))


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


ANSWERS = [("aabbc", "a"), ("dcbaa", "b"), ("eeeab", "z"), ("bbcd-", "c"), ("-----", "a")] * 8
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
