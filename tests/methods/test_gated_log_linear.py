"""The gated log-linear pool: what a model more is worth, its limits, and what it may read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from support.agents_data import asked_about, random_dataset, stream
from torch import Tensor

from rlfocal.base.errors import InputError
from rlfocal.data.dataset import Dataset, Kind
from rlfocal.data.policy import Budget, decide
from rlfocal.methods.rl_focal.config import GatedConfig
from rlfocal.methods.rl_focal.gated import MIN_LOG_SCORE, train, weigh_pools

SHORT = GatedConfig(steps=60)


@pytest.mark.parametrize("kind", ["choices", "answers"])
def test_the_value_of_one_more_model_by_brute_force(kind: Kind) -> None:
    """Every branch changed alone, the pool's logits built from scratch for both of its actions."""
    draw = torch.Generator().manual_seed(0)
    rows, n, c = 80, 3, 4
    added = 3 * torch.randn((rows, n, c), generator=draw, dtype=torch.float64)
    pools = (torch.rand((rows, n), generator=draw) < 0.5).double()
    exists = torch.arange(c) < torch.randint(1, c + 1, (rows, 1), generator=draw)
    given = (torch.rand((rows, n, c), generator=draw) < 0.4) & exists[:, None]
    gold = torch.randint(-1, c, (rows,), generator=draw)
    biases = torch.randn((rows, c), generator=draw).double()
    biases = biases if kind == "choices" else torch.zeros((), dtype=torch.float64)
    price = torch.tensor([0.0, 0.7], dtype=torch.float64).repeat(rows // 2)[:, None]
    of_answers = given if kind == "answers" else None
    worth = weigh_pools(added, biases, pools, exists, of_answers, gold, 0.3, price)
    for m in range(rows):
        bias = biases[m] if kind == "choices" else torch.zeros(c)

        def earned(asked: list[int], m: int = m, bias: Tensor = bias) -> tuple[float, float]:
            """The mask's reward, and Eq (6) in expectation."""
            logits = bias + sum((added[m, j] for j in asked), torch.zeros(c))
            is_open = exists[m] if kind == "choices" else given[m, asked].any(0)
            opened, score = is_open.nonzero()[:, 0].tolist(), MIN_LOG_SCORE
            if asked and int(gold[m]) in opened:
                chances = torch.log_softmax(logits[opened], 0)
                score = max(chances[opened.index(int(gold[m]))].item(), MIN_LOG_SCORE)
            p, share = np.exp(score) * (score > MIN_LOG_SCORE), len(asked) / n
            cost = (0.3 * (1 - np.exp(score)) + float(price[m])) * share
            return score - cost, p + (1 - p) * (-1 - 0.3 * share)

        asked = pools[m].nonzero()[:, 0].tolist()
        assert worth.reward[m].item() == pytest.approx(earned(asked)[1], abs=1e-3)  # but for WORST
        for i in range(n):
            others = [j for j in asked if j != i]
            gain = earned(sorted([*others, i]))[0] - earned(others)[0]
            assert worth.gain[m, i].item() == pytest.approx(gain, abs=1e-9)
    assert bool((gold < 0).any())
    assert bool((pools.sum(-1) == 0).any())


def letters(n_models: int = 28, n_docs: int = 500) -> Dataset:
    """Models that are right 55 times in a hundred, about questions without texts."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, n_docs)
    right = rng.random((n_docs, n_models)) < 0.55
    wrong = (labels[:, None] + rng.integers(1, 4, right.shape)) % 4
    return stream(np.where(right, labels[:, None], wrong), labels, 4)


@pytest.mark.slow
def test_the_mean_pool_and_budgets_are_kept_without_texts() -> None:
    """Of 28 models that are all as good."""
    data = letters()
    [agents] = train(data.train, SHORT, [0])
    decided = decide(agents, data.test)
    sizes = decided.pools.sum(1)
    assert sizes.min() >= 1
    assert 2 < sizes.mean() <= SHORT.mean_pool
    assert decide(agents, data.train).pools.sum(1).mean() <= SHORT.mean_pool
    for most in (1, 3):
        held = agents.hold_to_budget(Budget(most))
        assert held is not None
        assert (decide(held, data.test).pools.sum(1) == most).all()


def made(kind: Kind) -> Dataset:
    data = asked_about(random_dataset(3, kind, n_docs=120))
    return replace(data, is_train=np.arange(120) < 80)


def test_the_model_that_is_right_on_a_task_is_asked_and_followed() -> None:
    """One model is right on one task, another on the other; two are right at random."""
    rng = np.random.default_rng(0)
    tasks = np.arange(600) % 2
    labels = rng.integers(0, 4, 600)
    skills = np.where(tasks[:, None] == 0, [0.95, 0.3, 0.25, 0.25], [0.3, 0.95, 0.25, 0.25])
    wrong = (labels[:, None] + rng.integers(1, 4, (600, 4))) % 4
    data = stream(np.where(rng.random((600, 4)) < skills, labels[:, None], wrong), labels, 4)
    data = replace(data, tasks=np.array(["one", "two"])[tasks])
    own = np.arange(len(data.test)), (data.test.tasks == "two").astype(int)
    [agents] = train(data.train, replace(SHORT, steps=150, mean_pool=2.0), [0])
    decided = decide(agents, data.test)
    assert decided.pools[own].all()
    assert (decided.predictions == data.test.labels).mean() >= data.test.correct[own].mean() - 0.01


def halves(n_docs: int = 900) -> Dataset:
    """One model is right 92 times in a hundred; two know one half of the answer each, all of it together."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, n_docs)
    said = np.where(rng.random(n_docs) < 0.92, labels, (labels + rng.integers(1, 4, n_docs)) % 4)
    slots = np.arange(4)
    own = (slots == said[:, None], slots // 2 == labels[:, None] // 2, slots % 2 == labels[:, None] % 2)
    probs = np.stack([np.where(own[0], 0.91, 0.03), *(np.where(one, 0.49, 0.01) for one in own[1:])], axis=1)
    data = stream(probs.argmax(-1), labels, 4)
    return replace(data, probs=probs, logprobs=np.log(probs))


def test_within_a_budget_others_are_asked_than_without_one() -> None:
    data = halves()
    [agents] = train(data.train, replace(SHORT, steps=200, mean_pool=0.0, has_floor=False), [0])
    free = decide(agents, data.test)
    assert (free.predictions == data.test.labels).mean() > 0.95
    assert free.pools[:, 1:].all()
    held = agents.hold_to_budget(Budget(1))
    assert held is not None
    assert (decide(held, data.test).pools == [1, 0, 0]).all()


def test_it_refuses_to_learn_online() -> None:
    data = made("choices")
    [agents] = train(data.train, replace(SHORT, steps=1), [0])
    with pytest.raises(InputError, match="gated_log_linear does not learn online"):
        agents.decide_online(data.test)
