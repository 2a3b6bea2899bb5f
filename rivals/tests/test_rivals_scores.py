"""Scores and losses of the learned routers by hand: given parameters, the equations of their papers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import exp, log
from typing import Any

import numpy as np
import pytest
import torch
from support.topics import Words, answered, policy_of

from rlfocal_rivals import question, routellm, towers

Loss = Callable[[torch.Tensor], torch.Tensor]
# "3 1" is the vector (3, 1), which W and u or a0 below turn into (4, 2).
QUESTIONS = ("3 1", "3 1", "0 0", "0 0")
RIGHT = np.array([[True, False], [True, False], [False, True], [True, True]])
W = [[1.0, 0.0], [0.0, 2.0]]
u = [1.0, 0.0]


def fitted(
    name: str, parameters: Sequence[Any], monkeypatch: pytest.MonkeyPatch, **settings: Any
) -> tuple[Any, Loss, int]:
    """A router of these parameters instead of learned ones, its loss, and on how many documents it learns."""
    seen: list[tuple[Loss, int]] = []

    def given(_: object, own: Sequence[torch.Tensor], loss: Loss, n: int, *__: object, **___: object) -> None:
        with torch.no_grad():
            for tensor, values in zip(own, parameters, strict=True):
                assert tensor.shape == torch.tensor(values).shape
                tensor.copy_(torch.tensor(values))
        seen.append((loss, n))

    for learns, encodes in ((towers, question), (routellm, routellm)):
        monkeypatch.setattr(learns, "descend", given)
        monkeypatch.setattr(encodes, "fit_encoder", lambda *_: Words())
    policy = policy_of(name, answered(RIGHT, QUESTIONS, n_train=4, prices=[2.0, 1.0]).train, **settings)
    return (policy, *seen[0])


def sigmoid(x: float) -> float:
    return 1 / (1 + exp(-x))


def test_mf(monkeypatch: pytest.MonkeyPatch) -> None:
    v, w, b = [[1.0, 2.0], [0.0, -1.0]], [[0.5, 1.0], [1.0, 0.0]], [0.5, 0.75]
    policy, loss, n = fitted("mf", [v, W, u, w, b], monkeypatch, dimensions=2, noise=0.0)
    # Model 0: 0.5 · 1 · 4 - 1 · 2 · 2 + 0.25; model 1: 0.5 · 0 · 4 + 1 · 1 · 2 + 0.25.
    assert policy.scorer.scores(("3 1",))[0] == pytest.approx([sigmoid(-1.75), sigmoid(2.25)])
    # Of nothing, (1, 0) is left: 0.5 · 1 + 0.25 and 0.25.
    assert policy.scorer.scores(("0 0",))[0] == pytest.approx([sigmoid(0.75), sigmoid(0.25)])
    assert n == 4
    entropy = [-log(sigmoid(-1.75)), -log(1 - sigmoid(2.25))]
    assert float(loss(torch.tensor([0])).detach()) == pytest.approx(sum(entropy) / 2, rel=1e-5)
    entropy += [-log(1 - sigmoid(0.75)), -log(sigmoid(0.25))]
    assert float(loss(torch.tensor([0, 2])).detach()) == pytest.approx(sum(entropy) / 4, rel=1e-5)


def test_irt(monkeypatch: pytest.MonkeyPatch) -> None:
    theta, beta, b0 = [[1.0, -1.0], [0.5, 1.0]], [1.0, -2.0], [0.5]
    policy, loss, n = fitted("irt", [W, u, theta, beta, b0], monkeypatch, skills=2)
    # a = (4, 2), b = 3 - 2 + 0.5: 4 - 2 - 1.5 and 2 + 2 - 1.5. Of nothing, a = (1, 0), b = 0.5.
    assert policy.scorer.scores(("3 1",))[0] == pytest.approx([sigmoid(0.5), sigmoid(2.5)])
    assert policy.scorer.scores(("0 0",))[0] == pytest.approx([sigmoid(0.5), sigmoid(0.0)])
    assert n == 4
    entropy = [-log(sigmoid(0.5)), -log(1 - sigmoid(2.5))]
    assert float(loss(torch.tensor([1])).detach()) == pytest.approx(sum(entropy) / 2, rel=1e-5)


def test_routellm_mf(monkeypatch: pytest.MonkeyPatch) -> None:
    v, w = [[3.0, 4.0], [0.0, -2.0]], [0.5, -1.0]
    policy, loss, n = fitted("routellm_mf", [v, [*W, u], w], monkeypatch, dimensions=2, noise=0.0)
    assert policy.pair == (0, 1)
    # v / |v| are (0.6, 0.8) and (0, -1): δ are 0.5 · 0.6 · 4 - 0.8 · 2 and 2; of nothing 0.3 and 0.
    assert policy.worth.values(("3 1", "0 0")) == pytest.approx([sigmoid(-0.4 - 2.0), sigmoid(0.3)])
    # The last document is no battle: both are right.
    assert n == 3
    assert float(loss(torch.tensor([0])).detach()) == pytest.approx(-log(sigmoid(-2.4)), rel=1e-5)
    assert float(loss(torch.tensor([2])).detach()) == pytest.approx(-log(sigmoid(-0.3)), rel=1e-5)
