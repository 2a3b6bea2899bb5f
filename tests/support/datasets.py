"""Small data sets: of given probabilities, with models of different skill, and edge cases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
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
    return _free(probs, slots, gold)


def _free(probs: np.ndarray, slots: tuple[tuple[str, ...], ...], gold: Sequence[str]) -> Dataset:
    """A dataset of answers from (T, N, C) shares of passes; its first half is train."""
    made = make_dataset(probs + 1e-300, np.zeros(len(slots), dtype=np.int64), n_train=len(slots) // 2)
    return replace(
        made,
        kind="answers",
        probs=probs,
        logprobs=np.empty((0, *probs.shape[1:])),
        predictions=np.where(probs.any(axis=2), probs.argmax(axis=2), -1),
        labels=np.array([row.index(g) if g in row else -1 for row, g in zip(slots, gold, strict=True)]),
        n_choices=np.array([len(row) for row in slots]),
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


def sampled(*documents: Sequence[str], gold: Sequence[str]) -> Dataset:
    """Free answers in several passes: per document, what each model said, a letter a pass ('-' none)."""
    slots = tuple(tuple(sorted({x for said in row for x in said if x != "-"})) for row in documents)
    C = max(map(len, slots))
    probs = np.zeros((len(documents), len(documents[0]), C))
    for t, row in enumerate(documents):
        for m, said in enumerate(row):
            for letter in said:
                if letter != "-":
                    probs[t, m, slots[t].index(letter)] += 1 / len(said)
    order = np.argsort(-probs.sum(axis=1).round(9), axis=1, kind="stable")
    probs = np.take_along_axis(probs, order[:, None], axis=2)
    slots = tuple(tuple(row[c] for c in at if c < len(row)) for row, at in zip(slots, order, strict=True))
    return _free(probs, slots, gold)


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
    """Data that are short of something, or all alike."""
    usual, free = choices(), answers()
    n, few = len(usual), usual.take(np.array([0, 1, 89]))
    spoken = sampled(*[("aab", "abb", "b-c"), ("cca", "aaa", "---")] * 10, gold=["a", "c"] * 10)
    return {
        "one class": replace(usual, labels=np.zeros(n, dtype=np.int64)),
        "no texts": replace(usual, questions=(), choices=()),
        "few answers": answers(1),
        "three documents": few,
        "one train document": replace(few, is_train=np.array([True, False, False])),
        "nobody right": replace(usual, labels=np.full(n, -1)),
        "all right": replace(
            usual, labels=np.zeros(n, dtype=np.int64), predictions=np.zeros((n, 4), dtype=np.int64)
        ),
        "all alike": make_dataset(np.full((8, 3, 2), 0.5), np.zeros(8, dtype=np.int64), n_train=4),
        "empty texts": replace(usual, questions=("",) * n),
        "some empty texts": replace(
            usual, questions=tuple(q * (i % 3 > 0) for i, q in enumerate(usual.questions))
        ),
        "equal texts": replace(usual, questions=("what is it",) * n),
        "no prices": replace(usual, prices=np.full(4, np.nan)),
        "some prices": replace(usual, prices=np.array([np.nan, 2.0, np.nan, 1.0])),
        "two models": choices(60, 2),
        "one model": choices(60, 1),
        "answers without texts": replace(free, questions=()),
        "three answers": free.take(np.array([0, 1, len(free) - 1])),
        "one model of answers": make_answers(("a", "a"), ("b", "a"), ("-", "b"), ("a", "b")),
        "passes": replace(spoken, questions=tuple(f"question {i % 7}" for i in range(len(spoken)))),
    }
