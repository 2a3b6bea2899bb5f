"""The log-linear pool that keeps learning: a Newton step per label, with a curvature that forgets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np
from pydantic import Field

from rlfocal.base.arrays import Bools, Floats
from rlfocal.data.calls import Answered, Calls
from rlfocal.data.dataset import Dataset, Kind
from rlfocal.data.stream import Stream
from rlfocal.methods.checking import Range, checked
from rlfocal.methods.log_linear import LogLinearPool, evidence, fit_log_linear
from rlfocal.methods.registry import MethodBase, answer_policy

RIDGE = 1.0
"""Minimum curvature along every weight and bias, so that steps stay bounded where data are uninformative."""


@answer_policy(
    "online_log_linear",
    "all",
    "as `log_linear`, whose weights and biases take a step with every label",
    protocols=("online",),
    fewest_models=2,
    source="recursive Newton estimation with exponential forgetting (Ljung and Söderström 1983)",
    differs="starts from the fit on train, which counts as at most `memory` documents",
    needs=("log-probs",),
)
@checked
class OnlineLogLinear(MethodBase):
    """The log-linear pool of all models, fitted on train and then label by label."""

    memory: Annotated[float, Field(ge=1), Range(100.0, 10_000.0, log=True)] = 1000.0
    """Documents after which a label counts 1/e of what it did at first."""

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[NewtonPool]:
        everyone = np.ones(len(train.models), dtype=np.bool_)
        pool = fit_log_linear(train, everyone)
        parameters = np.concatenate([pool.weights, pool.biases])
        x, exists = evidence(train, everyone)
        bends = np.zeros((len(parameters), len(parameters)))
        for row in range(len(train)):
            bends += seen(parameters, features(x[row], train.kind), exists[row]).curvature
        counts = min(1.0, self.memory / max(len(train), 1))
        return [NewtonPool(parameters, counts * bends + RIDGE * np.eye(len(bends)), self.memory)]


@dataclass(frozen=True)
class NewtonPool:
    """Answers as a `LogLinearPool` of all models."""

    parameters: Floats
    """(M + C,) weights and biases after train"""
    precision: Floats
    """(M + C, M + C) the remembered curvature of the loss"""
    memory: float

    def decide(self, calls: Calls) -> Answered:
        """Without labels: as `log_linear`."""
        return self._pool(self.parameters, len(calls.models)).decide(calls)

    def decide_along(self, stream: Stream) -> None:
        """Skips updates for documents where no slot is right, or no model gave the right answer."""
        parameters, precision = self.parameters, self.precision
        for turn in stream:
            answered = self._pool(parameters, len(stream.models)).decide(turn.calls)
            turn.answer(int(answered.slots[0]))
            x, exists = evidence(turn.calls.outputs(), turn.calls.called[0])
            if turn.label >= 0 and exists[0, turn.label]:
                parameters, precision = newton_step(
                    parameters, precision, features(x[0], stream.kind), exists[0], turn.label, self.memory
                )

    def _pool(self, parameters: Floats, n_models: int) -> LogLinearPool:
        everyone = np.ones(n_models, dtype=np.bool_)
        return LogLinearPool(everyone, parameters[:n_models], parameters[n_models:])


class Seen(NamedTuple):
    """One document, before its label is known."""

    chances: Floats
    """(C,)"""
    curvature: Floats
    """(K, K) of the cross-entropy, whatever the label"""


def features(x: Floats, kind: Kind) -> Floats:
    """(C, M + C) the features in which the logits are linear, from a document's evidence (M, C). Free answers
    have no biases."""
    n_slots = x.shape[1]
    return np.hstack([x.T, np.eye(n_slots) if kind == "choices" else np.zeros((n_slots, n_slots))])


def seen(parameters: Floats, given: Floats, exists: Bools) -> Seen:
    """From features (C, K) and which slots exist (C,)."""
    if not exists.any():
        return Seen(np.zeros(len(given)), np.zeros((len(parameters), len(parameters))))
    logits = np.where(exists, given @ parameters, -np.inf)
    chances = np.exp(logits - logits.max())
    chances /= chances.sum()
    mean = chances @ given
    return Seen(chances, (given.T * chances) @ given - np.outer(mean, mean))


def newton_step(
    parameters: Floats, precision: Floats, given: Floats, exists: Bools, label: int, memory: float
) -> tuple[Floats, Floats]:
    """Parameters and precision once a document's label is known.

    A <- γ A + (1 - γ) RIDGE I + H and θ <- θ + A⁻¹ g, with γ = exp(-1 / memory), g the gradient of the right
    slot's log-chance and H its negative curvature.
    """
    chances, curvature = seen(parameters, given, exists)
    keep = np.exp(-1 / memory)
    precision = keep * precision + (1 - keep) * RIDGE * np.eye(len(parameters)) + curvature
    slope = given[label] - chances @ given
    return parameters + np.linalg.solve(precision, slope), precision
