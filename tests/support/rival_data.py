"""Data that rivals meet in their tests, and how they are fitted there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import Budget, BudgetedPolicy, Decisions, Method, OmniscientPolicy, Policy
from rlfocal.methods import make_method
from rlfocal.methods.registry import MethodArguments, list_settings
from support.datasets import make_dataset, make_logits, sampled


def fitted(name: str, train: Dataset, seed: int = 0, **given: Any) -> Policy:
    making = MethodArguments(argument=name.partition(":")[2] or None, settings=given)
    [policy] = make_method(name, making).fit(train, [seed])
    assert not isinstance(policy, OmniscientPolicy)
    return policy


SHORT = ("iterations", "epochs", "steps", "decider_episodes", "fusion_episodes", "joint_episodes")
"""Settings that tell how long a method learns."""


def brief(name: str) -> Method:
    """The method, with three steps of whatever it learns by; towers learn longer without `few_steps`."""
    known = list_settings(make_method(name))
    return make_method(name, MethodArguments(settings={of: "3" for of in SHORT if of in known}))


def within(policy: Policy, budget: Budget) -> Policy | None:
    assert isinstance(policy, BudgetedPolicy)
    return policy.hold_to_budget(budget)


def accuracy(data: Dataset, decided: Decisions) -> float:
    return float(((decided.predictions == data.labels) & (data.labels >= 0)).mean())


def best_single(data: Dataset) -> float:
    model = data.train.correct.sum(axis=0).argmax()
    return float(data.test.correct[:, model].mean())


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


def worded(T: int = 1200, seed: int = 0) -> Dataset:
    """A colour of the question tells which of three models knows; the others are undecided.

    What m00 says, which knows most colours, does not tell which other model does.
    """
    rng = np.random.default_rng(seed)
    colour = rng.choice(4, T, p=[0.25, 0.25, 0.25, 0.25])
    labels = rng.integers(0, 4, T)
    knows = np.stack([colour <= 1, colour == 2, colour == 3], axis=1)
    top = np.where(knows, 0.9, 0.28)
    slot = np.where(knows, labels[:, None], (labels[:, None] + rng.integers(1, 4, (T, 3))) % 4)
    probs = np.where(np.arange(4) == slot[..., None], top[..., None], (1 - top[..., None]) / 3)
    words = np.array(["red", "orange", "blue", "green"])[colour]
    questions = tuple(f"what is a {word} thing of kind {i % 11}" for i, word in enumerate(words))
    return replace(make_dataset(probs, labels, n_train=T // 2), questions=questions)


CHOICES = make_logits(0, T=60, N=4)
PASSES = sampled(*[("aab", "abb", "b-c"), ("cca", "aaa", "---")] * 10, gold=["a", "c"] * 10)
