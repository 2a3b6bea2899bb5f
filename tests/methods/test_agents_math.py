"""Advantages, the clipped objective and the action probabilities against independent computations."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from rlfocal.data.dataset import Kind
from rlfocal.methods.learning.networks import (
    choice_entropy,
    gumbel_noise,
    logistic_noise,
    mask_closed,
    modal_move,
    modal_pool,
    move,
    moves,
    sample_pool,
    sample_slot,
)
from rlfocal.methods.rl_focal.mappo import gae
from rlfocal.methods.rl_focal.networks import MIN_LOGPROB, LogLinearCore, Sizes, Standardiser, accuracies


def test_advantages_are_the_discounted_sum_of_td_errors() -> None:
    rng = np.random.default_rng(0)
    rewards, values = rng.normal(size=(20, 2, 3)), rng.normal(size=(21, 2, 3))
    gamma, lam = 0.9, 0.7
    deltas = rewards + gamma * values[1:] - values[:-1]
    expected = [
        sum((gamma * lam) ** (later - t) * deltas[later] for later in range(t, 20)) for t in range(20)
    ]
    advantages, returns = gae(torch.tensor(rewards), torch.tensor(values), gamma, lam)
    np.testing.assert_allclose(advantages, expected, atol=1e-12)
    np.testing.assert_allclose(returns, expected + values[:-1], atol=1e-12)


def test_choices_that_do_not_exist_have_no_probability() -> None:
    logits = torch.tensor([[1.0, 2.0, 9.0], [0.5, -1.0, 0.0]], dtype=torch.float64, requires_grad=True)
    masked = mask_closed(logits, torch.tensor([[True, True, False], [False, False, False]]))
    log_probs = torch.log_softmax(masked, -1)[[0, 1], [1, 0]]
    entropy = choice_entropy(masked)
    p = 1 / (1 + math.exp(-1))
    assert log_probs.tolist() == pytest.approx([math.log(p), 0.0])
    assert entropy.tolist() == pytest.approx([-(p * math.log(p) + (1 - p) * math.log(1 - p)), 0.0])
    (log_probs.sum() + entropy.sum()).backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()
    assert logits.grad[0, 2] == 0


def test_sampled_slots_and_pools_follow_their_distributions() -> None:
    draws = torch.rand(200_000, 4, generator=torch.Generator().manual_seed(0))
    logits = torch.tensor([0.0, 1.0, -torch.inf, 0.5])
    shares = torch.bincount(sample_slot(logits, gumbel_noise(draws)), minlength=4) / 200_000
    np.testing.assert_allclose(shares, torch.softmax(logits, -1), atol=5e-3)
    branches = torch.tensor([0.0, 1.0, -2.0, 0.5])
    asked = sample_pool(branches, logistic_noise(draws)).mean(0)
    np.testing.assert_allclose(asked, torch.sigmoid(branches), atol=5e-3)
    ends = torch.tensor([0.0, 1 - 2**-24])
    assert torch.isfinite(gumbel_noise(ends)).all()
    assert torch.isfinite(logistic_noise(ends)).all()


def test_moves_of_a_single_branch() -> None:
    pools = torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0], [1.0, 1.0, 1.0]])
    actions = torch.tensor([0, 2, 1, 3])
    after = move(pools, actions)
    assert after.tolist() == [[0, 0, 1], [0, 1, 1], [0, 1, 0], [1, 1, 1]]
    assert moves(pools, after).tolist() == actions.tolist()
    wish = torch.tensor([1.0, 5.0, 2.0, 0.0])
    # The likeliest move would leave nobody in the second pool.
    assert modal_move(wish.expand(4, 4), pools).tolist() == [[1, 1, 1], [0, 1, 1], [0, 1, 0], [1, 0, 1]]


def test_modal_pool_is_never_empty() -> None:
    pools = modal_pool(torch.tensor([[0.1, -0.1, 2.0], [-3.0, -1.0, -2.0]]))
    assert pools.tolist() == [[1, 0, 1], [0, 1, 0]]


# ---- Fusion's core against numpy: its evidence, its start, and that models nobody asked are not there


SIZES = Sizes(models=3, slots=4, metrics=2, past_rewards=0, question=2)
DRAW = np.random.default_rng(0)


def core_on(kind: Kind, outputs: np.ndarray, exists: np.ndarray) -> LogLinearCore:
    """At random weights and the scales of these documents."""
    core = LogLinearCore(SIZES, kind)
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
    logs = np.maximum(np.log(np.maximum(p, 1e-37)), MIN_LOGPROB)
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
    core = LogLinearCore(SIZES, "choices")
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
