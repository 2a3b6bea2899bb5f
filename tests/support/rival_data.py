"""Data that rivals meet in their tests, and how they are fitted there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import Budget, Budgeted, Decisions, Policy, SeesAll
from rlfocal.methods import entries, make_method
from rlfocal.methods.registry import Making
from support.datasets import make_answers, make_dataset, make_logits, only


def fitted(name: str, train: Dataset, seed: int = 0, **given: Any) -> Policy:
    making = Making(argument=name.partition(":")[2] or None, settings=given)
    [policy] = make_method(name, making).fit(train, [seed])
    assert not isinstance(policy, SeesAll)
    return policy


def within(policy: Policy, budget: Budget) -> Policy | None:
    assert isinstance(policy, Budgeted)
    return policy.within(budget)


def accuracy(data: Dataset, decided: Decisions) -> float:
    return float(((decided.predictions == data.labels) & (data.labels >= 0)).mean())


def best_single(data: Dataset) -> float:
    model = data.train.correct.sum(axis=0).argmax()
    return float(data.test.correct[:, model].mean())


def admitted(name: str, data: Dataset) -> bool:
    return entries()[name.partition(":")[0]].admits(len(data.models), data.kind, "frozen")


def shuffled(data: Dataset, seed: int = 0) -> Dataset:
    """Labels of train documents handed to one another."""
    labels = data.labels.copy()
    at = np.flatnonzero(data.is_train)
    labels[at] = np.random.default_rng(seed).permutation(labels[at])
    return replace(data, labels=labels)


def telling(T: int = 1200, seed: int = 0, share: float = 0.5) -> Dataset:
    """m00 is right where it is sure, on a share of the documents, and m01 on the others; m02 guesses."""
    rng = np.random.default_rng(seed)
    labels, sure = rng.integers(0, 4, T), rng.random(T) < share
    wrong = (labels + rng.integers(1, 4, T)) % 4
    said = np.stack([np.where(sure, labels, wrong), np.where(sure, wrong, labels), rng.integers(0, 4, T)], 1)
    top = np.stack([np.where(sure, 0.9, 0.4), np.full(T, 0.7), np.full(T, 0.6)], axis=1)
    top = top + rng.uniform(-0.05, 0.05, top.shape)
    probs = np.where(np.arange(4) == said[..., None], top[..., None], (1 - top[..., None]) / 3)
    return make_dataset(probs, labels, n_train=T // 2)


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


CHOICES = make_logits(0, T=60, N=4)
ANSWERS = make_answers(*[("aabb", "a"), ("dcba", "b"), ("eeea", "z"), ("bb-d", "b"), ("----", "a")] * 8)


def few(*models: int) -> Dataset:
    return replace(only(CHOICES, np.array(models)), prices=CHOICES.prices[list(models)])


EDGES = {
    "choices": CHOICES,
    "answers": ANSWERS,
    "passes": sampled(*[("aab", "abb", "b-c"), ("cca", "aaa", "---")] * 10, gold=["a", "c"] * 10),
    "one model": few(1),
    "two models": few(1, 2),
    "one class": replace(CHOICES, labels=np.zeros(60, dtype=np.int64)),
    "three documents": CHOICES.take(np.array([28, 29, 31])),
    "nothing right": replace(CHOICES, labels=np.full(60, -1)),
    "all alike": make_dataset(np.full((8, 3, 2), 0.5), np.zeros(8, dtype=np.int64), n_train=4),
    "unknown prices": replace(CHOICES, prices=np.full(4, np.nan)),
    "empty questions": replace(CHOICES, questions=("",) * 60, choices=((),) * 60),
    "questions": replace(CHOICES, questions=tuple(f"is {i % 7} a number" for i in range(60))),
}
