"""Data with questions in words, in which a rival must win, and strange data that it must bear."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import Decisions, OmniscientPolicy, OnlineLearner, Policy, decide, decide_online
from rlfocal.methods import entries, make_method
from support.agents_data import stream
from support.datasets import make_dataset

Floats = NDArray[np.float64]
TOPICS = ("planets orbit the distant star", "tenants sue the careless landlord", "enzymes fold inside cells")
LETTERS = [("abab", "a"), ("bbca", "b"), ("ccca", "c"), ("a-ba", "a"), ("----", "a"), ("dacb", "z")]
BANDITS = ("linucb", "thompson", "discounted_linucb", "discounted_thompson")


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
        return decide_online(policy, data.test)
    return decide(policy, data.test)


def policy_of(name: str, data: Dataset, **settings: object) -> Policy:
    [policy] = replace(make_method(name), **settings).fit(data.train, [0])  # type: ignore[type-var]
    assert not isinstance(policy, OmniscientPolicy)
    return policy


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


def assert_same(one: torch.nn.Module, other: torch.nn.Module) -> None:
    for of_one, of_other in zip(one.parameters(), other.parameters(), strict=True):
        assert of_one.detach().numpy() == pytest.approx(of_other.detach().numpy(), abs=1e-4)


BEFORE, AFTER = (0.95, 0.45, 0.5, 0.6), (0.05, 0.45, 0.5, 0.95)
N_TRAIN, N_TEST, TURN, LATE = 120, 900, 200, 200


@cache
def turning() -> Dataset:
    """The best model turns into the worst at a document of test, and another into the best."""
    rng = np.random.default_rng(3)
    n = N_TRAIN + N_TEST
    labels = rng.integers(0, 4, n)
    right = rng.random((n, 4)) < np.where(np.arange(n)[:, None] < N_TRAIN + TURN, BEFORE, AFTER)
    wrong = (labels[:, None] + rng.integers(1, 4, right.shape)) % 4
    said = stream(np.where(right, labels[:, None], wrong), labels, 4)
    data = replace(said, is_train=np.arange(n) < N_TRAIN, prices=np.array([1.0, 2.0, 3.0, 4.0]))
    return in_words(data, rng.integers(3, size=n))
