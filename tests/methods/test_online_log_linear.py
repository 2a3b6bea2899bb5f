"""The log-linear pool that learns online: each step in loops."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from support.datasets import answers, choices, make_logits

from rlfocal.data.calls import Calls
from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import Decisions, Method, OnlineLearner, decide, decide_online
from rlfocal.methods import make_method
from rlfocal.methods.log_linear import (
    MIN_CURVATURE,
    OnlineLogLinear,
    evidence,
    features,
    fit_log_linear,
    newton_step,
)


def along(method: Method, data: Dataset) -> Decisions:
    [policy] = method.fit(data.train, [0])
    assert isinstance(policy, OnlineLearner)
    return decide_online(policy, data.test)


def literal_newton(data: Dataset, memory: float) -> list[np.ndarray]:
    """Parameters before every test document and after the last, by loops over slots."""
    everyone = np.ones(len(data.models), dtype=np.bool_)
    pool, (x, exists) = fit_log_linear(data.train, everyone), evidence(data, everyone)
    n, c = len(data.models), x.shape[2]
    theta, size = np.concatenate([pool.weights, pool.biases]), n + c

    def columns(row: int) -> dict[int, np.ndarray]:
        biases = np.eye(c) if data.kind == "choices" else np.zeros((c, c))
        return {s: np.concatenate([x[row, :, s], biases[s]]) for s in range(c) if exists[row, s]}

    def chances(row: int) -> dict[int, float]:
        raw = {s: math.exp(column @ theta) for s, column in columns(row).items()}
        return {s: value / sum(raw.values()) for s, value in raw.items()}

    def bend(row: int) -> np.ndarray:
        p, total = chances(row), np.zeros((size, size))
        for one, a in columns(row).items():
            for other, b in columns(row).items():
                total += (p[one] * (one == other) - p[one] * p[other]) * np.outer(a, b)
        return total

    n_train = len(data.train)
    precision = min(1, memory / n_train) * sum(bend(row) for row in range(n_train)) + MIN_CURVATURE * np.eye(
        size
    )
    every, keep = [theta], math.exp(-1 / memory)
    for row in range(n_train, len(data)):
        label = int(data.labels[row])
        if label in columns(row):
            slope = columns(row)[label] - sum(p * columns(row)[s] for s, p in chances(row).items())
            precision = keep * precision + (1 - keep) * MIN_CURVATURE * np.eye(size) + bend(row)
            theta = theta + np.linalg.inv(precision) @ slope
        every.append(theta)
    return every


@pytest.mark.parametrize("data", [make_logits(0, T=80, N=3), answers(5)], ids=["choices", "answers"])
@pytest.mark.parametrize("memory", [7.0, 1000.0])
def test_the_log_linear_pool_learns_as_written_out(data: Dataset, memory: float) -> None:
    every = literal_newton(data, memory)
    [policy] = OnlineLogLinear(memory=memory).fit(data.train, [0])
    parameters, precision = policy.parameters, policy.precision
    x, exists = evidence(data.test, np.ones(len(data.models), dtype=np.bool_))
    expected = []
    for row, before in enumerate(every[:-1]):
        assert parameters == pytest.approx(before, abs=1e-8)
        [slot] = replace(policy, parameters=before).decide(Calls(data.test.take(np.array([row])))).slots
        expected.append(int(slot))
        label = int(data.test.labels[row])
        if label >= 0 and exists[row, label]:
            given = features(x[row], data.kind)
            parameters, precision = newton_step(parameters, precision, given, exists[row], label, memory)
    assert parameters == pytest.approx(every[-1], abs=1e-8)
    assert any(not np.allclose(one, other) for one, other in pairwise(every))
    assert along(OnlineLogLinear(memory=memory), data).predictions.tolist() == expected


def test_without_labels_the_log_linear_pool_is_log_linear() -> None:
    for data in (choices(), answers()):
        frozen, plain = (
            make_method(name).fit(data.train, [0])[0] for name in ("online_log_linear", "log_linear")
        )
        one, other = decide(frozen, data.test.hide_labels()), decide(plain, data.test.hide_labels())
        assert (one.predictions == other.predictions).all()
        unlabelled = decide_online(frozen, data.test.hide_labels())  # type: ignore[arg-type]
        assert (unlabelled.predictions == one.predictions).all()


def test_learning_on_a_steady_stream_costs_the_log_linear_pool_little() -> None:
    """Of 1,200 documents; train's fit is of 400."""
    data = make_logits(3, T=1600, N=4)
    steady = replace(data, is_train=np.arange(1600) < 400)
    [policy] = OnlineLogLinear().fit(steady.train, [0])
    online, frozen = (
        (decided.predictions == steady.test.labels).mean()
        for decided in (decide_online(policy, steady.test), decide(policy, steady.test))
    )
    assert online > frozen - 0.01
