"""Fusion's core against numpy: its evidence, its start, and that models nobody asked are not there."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rlfocal.data.dataset import Kind
from rlfocal.methods.rl_focal.networks import LEAST, LogLinear, Sizes, Standardiser, accuracies

SIZES = Sizes(models=3, slots=4, metrics=2, past_rewards=0, question=2)
DRAW = np.random.default_rng(0)


def core_on(kind: Kind, outputs: np.ndarray, exists: np.ndarray) -> LogLinear:
    """At random weights and the scales of these documents."""
    core = LogLinear(SIZES, kind)
    core.learn(torch.tensor(outputs), torch.tensor(exists), torch.tensor([0.2, 0.5, 0.8]), 3.0)
    draw = torch.Generator().manual_seed(0)
    for p in core.parameters():
        p.data = torch.randn(p.shape, generator=draw)
    return core.double()


def documents(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Distributions (n, 3, 4) with zeros on slots that do not exist, and which do (n, 4)."""
    exists = np.arange(4) < DRAW.integers(2, 5, (n, 1))
    outputs = DRAW.dirichlet(np.full(4, 0.3), size=(n, 3)) * exists[:, None]
    outputs[0, 0] = [1, 0, 0, 0]
    return outputs / outputs.sum(-1, keepdims=True), exists


def centred(p: np.ndarray, is_open: np.ndarray) -> np.ndarray:
    logs = np.maximum(np.log(np.maximum(p, 1e-37)), LEAST)
    return np.where(is_open, logs - logs[is_open].mean(), 0)


@pytest.mark.parametrize("kind", ["choices", "answers"])
def test_its_logits_are_numpys(kind: Kind) -> None:
    train, train_exists = documents(60)
    core = core_on(kind, train, train_exists)
    logs = np.array([[centred(p, e) for p in of] for of, e in zip(train, train_exists, strict=True)])
    # Over the slots that exist, as all others are 0.
    deviation = np.sqrt((logs**2).sum((0, 2)) / train_exists.sum())
    outputs, exists = documents(20)
    outputs[np.arange(20) % 4 == 1, 2] = 0
    question = DRAW.normal(size=(20, 2))
    seen = core.evidence(torch.tensor(outputs), torch.tensor(exists))
    logits = core(seen, torch.tensor(question)).detach()
    added = core.contributions(seen, torch.tensor(question)).detach()
    torch.testing.assert_close(added.sum(1) + core.biases(torch.tensor(question)).detach(), logits)
    weight, slots, bias = (p.detach().numpy() for p in core.parameters())
    for t in range(20):
        expected = question[t] @ bias if kind == "choices" else np.zeros(4)
        for i in range(3):
            of_model = question[t] @ weight[:, i]
            if kind == "answers":
                expected = expected + of_model * outputs[t, i]
            elif outputs[t, i].any():
                z = centred(outputs[t, i], exists[t])
                own = (z - logs[:, i].mean(0)) / logs[:, i].std(0) * exists[t]
                expected = expected + of_model * z / deviation[i] + own @ slots[4 * i : 4 * i + 4]
        np.testing.assert_allclose(logits[t], expected, atol=1e-6)


def test_it_starts_by_the_odds_of_being_right() -> None:
    outputs, exists = documents(60)
    right = torch.tensor(DRAW.random((60, 3)) < [0.2, 0.5, 1.1])
    core = LogLinear(SIZES, "choices")
    core.learn(torch.tensor(outputs), torch.tensor(exists), accuracies(right), 3.0)
    odds = np.array([(n + 1) / (60 - n + 1) for n in right.sum(0).tolist()])
    assert odds[2] == 61
    np.testing.assert_allclose(core.weight[0].detach(), 3 * odds / odds.sum(), rtol=1e-5)
    assert not any(part.any() for part in (core.weight[1:], core.slots, core.bias))


@pytest.mark.parametrize("kind", ["choices", "answers"])
def test_models_that_were_not_asked_do_not_change_the_fusion(kind: Kind) -> None:
    outputs, exists = documents(30)
    core = core_on(kind, outputs, exists)
    outputs[:, 1] = 0
    seen = core.evidence(torch.tensor(outputs), torch.tensor(exists))
    question = torch.ones(30, 2, dtype=torch.float64)
    for part in (*seen, core.contributions(seen, question)):
        assert not part[:, 1].any()
    assert seen.shared[:, 0].any()
    assert seen.own.any() == (kind == "choices")


def test_standardised_outputs_of_models_that_were_not_asked_stay_0() -> None:
    draw = torch.Generator().manual_seed(0)
    outputs = torch.rand(50, SIZES.models, SIZES.slots, generator=draw)
    standardiser = Standardiser(SIZES)
    standardiser.learn(outputs)
    seen = outputs[:1].clone()
    seen[:, 1] = 0
    found = standardiser(seen.flatten(1)).view(SIZES.models, SIZES.slots)
    asked = [0, 2]
    expected = (outputs[0] - outputs.mean(0)) / (outputs.std(0, correction=0) + 1e-3)
    torch.testing.assert_close(found[asked], expected[asked])
    assert not found[1].any()
