"""What models say about one query, checked and laid out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from rlfocal.errors import InputError, unknown

Output = Sequence[float] | str | Sequence[str | None] | None
"""What one model says. Choices: a log-prob per choice, any additive constant. Answers: one, or one per
sampled pass. None: the model is down."""

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


class Given:
    """What the models said about one query."""

    def __init__(
        self, asked: Mask, is_down: Mask, probs: Floats, logprobs: Floats | None, answers: list[str]
    ):
        self.asked, self.is_down = asked, is_down
        """(N,) who was asked, and who of them is down"""
        self.probs, self.logprobs = probs, logprobs
        """(N, C) distributions, and log-softmax for choices; zeros where nothing was given"""
        self.answers = answers
        """What the slots stand for (answers only)."""
        self.down = np.flatnonzero(is_down).tolist()
        self.slots = (
            np.where(probs.any(axis=1), probs.argmax(axis=1), -1) if probs.size else np.full(len(asked), -1)
        )
        """(N,) each model's slot; -1 for none"""


def read_outputs(models: Sequence[str], kind: str, outputs: Mapping[str, Output]) -> Given:
    """Check and lay out a pool's outputs. Raises InputError for a model or a value that cannot be used."""
    for name in outputs:
        if name not in models:
            raise unknown("model", name, models, "the router's pool")
    asked = np.array([name in outputs for name in models], dtype=np.bool_)
    is_down = np.array([name in outputs and outputs[name] is None for name in models], dtype=np.bool_)
    live = {
        at: outputs[name] for at, name in enumerate(models) if name in outputs and outputs[name] is not None
    }
    if kind == "answers":
        return _answers(models, asked, is_down, live)
    width = 0
    for at, output in live.items():
        if isinstance(output, str) or not all(isinstance(v, int | float | np.number) for v in output or ()):
            raise InputError(f"output of {models[at]!r}: give one log-prob per choice, not {output!r}")
        if not output or any(not math.isfinite(float(v)) for v in output):  # type: ignore[arg-type]
            raise InputError(
                f"output of {models[at]!r} is {list(output or ())}: every log-prob must be finite"
            )
        if width and len(output) != width:
            raise InputError(
                f"output of {models[at]!r} has {len(output)} choices, the ones before it {width}"
            )
        width = len(output)
    logprobs = np.zeros((len(models), width))
    probs = np.zeros((len(models), width))
    for at, output in live.items():
        scores = np.array(output, dtype=np.float64)
        logprobs[at] = scores - scores.max() - np.log(np.exp(scores - scores.max()).sum())
        probs[at] = np.exp(logprobs[at])
    return Given(asked, is_down, probs, logprobs, [])


def _answers(models: Sequence[str], asked: Mask, is_down: Mask, live: Mapping[int, Output]) -> Given:
    passes: dict[int, list[str | None]] = {}
    for at, output in live.items():
        passes[at] = []
        for answer in [output] if isinstance(output, str) else list(output or ()):
            if not isinstance(answer, str | None):
                raise InputError(
                    f"output of {models[at]!r}: give an answer or a list of answers, not {output!r}"
                )
            passes[at].append(answer)
    answers = list(dict.fromkeys(a for said in passes.values() for a in said if a is not None))
    shares = np.zeros((len(models), len(answers)))
    for at, said in passes.items():
        for answer in said:
            if answer is not None:
                shares[at, answers.index(answer)] += 1 / len(said)
    order = np.argsort(-shares.sum(axis=0).round(9), kind="stable")  # as a dataset orders its slots
    return Given(asked, is_down, shares[:, order], None, [answers[at] for at in order])
