"""Questions whose topic says which model is right, for routers; and odd data that they must bear."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import Decisions, Policy, decide
from rlfocal.methods import make_method
from rlfocal.methods.registry import MethodArguments
from support.datasets import make_dataset

Floats = NDArray[np.float64]


TOPICS = [
    ["river", "lake", "rain", "flood", "water", "boat", "fish", "swim", "wave", "shore"],
    ["proof", "sum", "prime", "root", "graph", "field", "ring", "limit", "set", "map"],
]


@dataclass(frozen=True)
class NumberEncoder:
    """An encoder for tests: a question is the numbers in it."""

    def encode(self, texts: Sequence[str]) -> Floats:
        return np.array([[float(x) for x in text.split()] for text in texts]).reshape(len(texts), -1)


def answered(
    right: NDArray[np.bool_], questions: Sequence[str], n_train: int, prices: Sequence[float] = ()
) -> Dataset:
    """Choices where each model is right as told (T, N): the label is 1, and who is wrong says 0."""
    T, N = right.shape
    probs = np.full((T, N, 3), 0.1)
    probs[..., 1], probs[..., 0] = np.where(right, 0.8, 0.1), np.where(right, 0.1, 0.8)
    made = make_dataset(probs, np.ones(T, dtype=np.int64), n_train)
    prices = prices or range(1, N + 1)
    return replace(made, questions=tuple(questions), prices=np.array(prices, dtype=np.float64))


def by_topic(seed: int, T: int = 600, prices: Sequence[float] = ()) -> Dataset:
    """m00 knows the first topic, m01 the second, a bit rarer; m02 guesses, m03 knows nothing."""
    rng = np.random.default_rng(seed)
    topic = (rng.random(T) < 0.45).astype(int)
    questions = [" ".join(["what", *rng.choice(TOPICS[t], 6), "is"]) for t in topic]
    right = np.stack([topic == 0, topic == 1, rng.random(T) < 0.5, np.zeros(T, dtype=np.bool_)], axis=1)
    return answered(right, questions, n_train=T // 2, prices=prices)


def policy_of(name: str, train: Dataset, seed: int = 0, **settings: Any) -> Any:
    [policy] = make_method(name, MethodArguments(settings=settings)).fit(train, [seed])
    return policy


def accuracy(policy: Policy, data: Dataset) -> float:
    return float((decide(policy, data).predictions == data.labels).mean())


def mean_price(decided: Decisions, data: Dataset) -> float:
    return float((decided.pools * data.prices).sum(axis=1).mean())
