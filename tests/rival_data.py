<<<<<<< HEAD
"""Data that rivals meet in their tests, and how they are fitted there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
=======
"""Made data in which a rival must win, or is short of something, and what it does there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
>>>>>>> fusers
from test_methods import make_dataset
from test_yardsticks import make_answers, make_logits, only

from rlfocal.dataset import Dataset
from rlfocal.methods import entries, make_method
<<<<<<< HEAD
from rlfocal.methods.registry import Making
from rlfocal.policy import Budget, Budgeted, Decisions, Policy, SeesAll


def fitted(name: str, train: Dataset, seed: int = 0, **given: Any) -> Policy:
    making = Making(argument=name.partition(":")[2] or None, settings=given)
    [policy] = make_method(name, making).fit(train, [seed])
=======
from rlfocal.policy import Decisions, OnlineLearner, Policy, SeesAll, decide

Floats = NDArray[np.float64]
TOPICS = ("planets orbit the distant star", "tenants sue the careless landlord", "enzymes fold inside cells")
LETTERS = [("abab", "a"), ("bbca", "b"), ("ccca", "c"), ("a-ba", "a"), ("----", "a"), ("dacb", "z")]
TEXT = ("text_only", "log_linear+text", "stacking+text")
RLAE = ("rlae_ppo", "rlae_mappo")
BANDITS = ("linucb", "thompson")
FEW = {"iterations": 10}
QUICK = {"topla": {"epochs": 20}, "rlae_ppo": FEW, "rlae_mappo": FEW}
"""Settings with which an edge case need not take long."""


def in_words(data: Dataset, topics: NDArray[np.int64], seed: int = 0) -> Dataset:
    """The documents with questions that tell their topic by some of its words."""
    rng = np.random.default_rng(seed)
    questions = tuple(" ".join(rng.choice(TOPICS[topic].split(), 4)) for topic in topics)
    return replace(data, questions=questions)


def topical(T: int = 900, seed: int = 0, n_models: int = 3) -> Dataset:
    """Models that are right nearly always on their own topic, and by chance on the others."""
    rng = np.random.default_rng(seed)
    topics, labels = rng.integers(n_models, size=T), rng.integers(4, size=T)
    knows = np.where(np.arange(n_models) == topics[:, None], rng.random((T, n_models)) < 0.95, False)
    said = np.where(knows, labels[:, None], rng.integers(4, size=(T, n_models)))
    probs = np.where(np.arange(4) == said[:, :, None], 0.7, 0.1)
    return in_words(make_dataset(probs, labels, n_train=2 * T // 3), topics)


def knowers(data: Dataset) -> float:
    """The accuracy of whoever knows the topic, of test documents as `topical` makes them."""
    topics = [
        next(at for at, words in enumerate(TOPICS) if set(text.split()) <= set(words.split()))
        for text in data.test.questions
    ]
    return float(data.test.correct[np.arange(len(data.test)), topics].mean())


def labels_in_words(T: int = 600, seed: int = 0) -> Dataset:
    """The topic tells the label seven times in ten; of the models, none tells much."""
    rng = np.random.default_rng(seed)
    topics = rng.integers(3, size=T)
    labels = np.where(rng.random(T) < 0.7, topics, rng.integers(3, size=T))
    logits = rng.normal(size=(T, 4, 3)) + 0.7 * (np.arange(3) == labels[:, None])[:, None]
    probs = np.exp(logits) / np.exp(logits).sum(axis=2, keepdims=True)
    return in_words(make_dataset(probs, labels, n_train=T // 2), topics)


def decided(name: str, data: Dataset, seed: int = 0, **settings: object) -> Decisions:
    method = replace(make_method(name), **settings)  # type: ignore[type-var]
    [policy] = method.fit(data.train, [seed])
    if entries()[name].protocols == ("online",):
        assert isinstance(policy, OnlineLearner)
        return policy.decide_online(data.test)
    return decide(policy, data.test)


def policy_of(name: str, data: Dataset, **settings: object) -> Policy:
    [policy] = replace(make_method(name), **settings).fit(data.train, [0])  # type: ignore[type-var]
>>>>>>> fusers
    assert not isinstance(policy, SeesAll)
    return policy


<<<<<<< HEAD
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
=======
def accuracy(name: str, data: Dataset, seed: int = 0, **settings: object) -> float:
    said = decided(name, data, seed, **settings).predictions
    return float(((said == data.test.labels) & (data.test.labels >= 0)).mean())


def accuracy_of(policy: Policy, documents: Dataset) -> float:
    said = decide(policy, documents).predictions
    return float(((said == documents.labels) & (documents.labels >= 0)).mean())


def slope(loss: Callable[[Floats], float], at: Floats) -> Floats:
    """By central differences."""
    steps = 1e-5 * np.eye(len(at))
    return np.array([(loss(at + step) - loss(at - step)) / 2e-5 for step in steps])


def strange() -> dict[str, Dataset]:
    """Data that are short of something."""
    rng = np.random.default_rng(0)
    plain = in_words(make_logits(0, T=60, N=3), rng.integers(3, size=60))
    answers = make_answers(*LETTERS * 8)
    spoken = in_words(answers, rng.integers(3, size=len(answers)))
    three = plain.take(np.array([1, 2, 40]))
    return {
        "choices of different numbers": plain,
        "answers": spoken,
        "no texts": replace(plain, questions=()),
        "answers without texts": answers,
        "empty questions": replace(plain, questions=("",) * 60),
        "one class": replace(plain, labels=np.zeros(60, dtype=np.int64)),
        "nothing right": replace(plain, labels=np.full(60, -1)),
        "three documents": three,
        "one train document": replace(three, is_train=np.array([True, False, False])),
        "three answers": spoken.take(np.array([0, 1, 30])),
        "no price known": replace(plain, prices=np.full(3, np.nan)),
        "two models": replace(only(plain, np.array([0, 2])), prices=np.ones(2)),
        "one model": replace(only(plain, np.array([1])), prices=np.ones(1)),
        "one model of answers": make_answers(("a", "a"), ("b", "a"), ("-", "b"), ("a", "b")),
    }


def assert_same(one: torch.nn.Module, other: torch.nn.Module) -> None:
    for of_one, of_other in zip(one.parameters(), other.parameters(), strict=True):
        assert of_one.detach().numpy() == pytest.approx(of_other.detach().numpy(), abs=1e-4)
>>>>>>> fusers
