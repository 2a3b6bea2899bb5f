"""What every policy that looks at answers must stand: budgets, labels that teach nothing."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from support.datasets import make_logits
from support.rival_data import CHOICES, PASSES, accuracy, admitted, best_single, fitted, shuffled, within

from rlfocal.data.policy import Budget, Budgeted, decide

CASCADES = ("cascade", "frugalgpt")
OTHER_DES = tuple(f"des:{name}" for name in ("knora_u", "dews", "des_p"))
POOLS = ("mutual_information_pool", "likelihood_pool")
BY_NEIGHBOURS = ("outputs_knn", "des:knora_e", "des:ola", "des:lwse")
LEARNED = (*CASCADES, "dylan", *POOLS, *BY_NEIGHBOURS, "pairwise_log_linear")
OURS = (*LEARNED, *(f"{name}:2" for name in POOLS), "self_consistency_cascade", "more_agents", *OTHER_DES)


@pytest.mark.parametrize("name", OURS)
def test_unaffordable_budgets_give_no_policy(name: str) -> None:
    data = PASSES if name.startswith("self") else CHOICES
    if not admitted(name, data):
        pytest.skip("needs more models")
    policy = fitted(name, data.train)
    if isinstance(policy, Budgeted):
        assert within(policy, Budget(0.5)) is None
        assert within(policy, Budget(0.5, "cents")) is None
        unpriced = replace(data, prices=np.full(len(data.models), np.nan))
        assert within(fitted(name, unpriced.train), Budget(100.0, "cents")) is None


@pytest.mark.slow
@pytest.mark.parametrize("name", [*CASCADES, "dylan", *POOLS])
def test_budgets_are_kept_on_train(name: str) -> None:
    data = make_logits(1, T=400, N=5)
    policy = fitted(name, data.train)
    for budget in (Budget(1.3), Budget(2.0), Budget(3.2), Budget(4.0, "cents")):
        kept = within(policy, budget)
        if kept is None:
            assert name == "dylan"  # its first model is dear
            continue
        pools = decide(kept, data.train).pools
        spent = pools @ (np.ones(5) if budget.unit == "models" else data.prices)
        assert spent.mean() <= budget.amount + 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("name", LEARNED)
def test_shuffled_labels_teach_nothing(name: str) -> None:
    data = make_logits(2, T=1200, N=4)
    decided = decide(fitted(name, shuffled(data).train), data.test)
    assert accuracy(data.test, decided) <= best_single(data) + 2 * math.sqrt(0.25 / 600)


@pytest.mark.parametrize("name", OURS)
def test_what_other_models_would_say_changes_nothing(name: str) -> None:
    """Told another story about everybody who was not called, it decides the same."""
    data = PASSES if name.startswith("self") else CHOICES
    policy = fitted(name, data.train)
    decided = decide(policy, data.test)
    called = decided.pools
    lies = np.random.default_rng(0).permutation(data.probs.shape[2]) if data.kind == "choices" else [0] * 3
    heard = [
        np.where(called[..., None], told, told[..., lies]) if len(told) else told
        for told in (data.test.probs, data.test.logprobs)
    ]
    if data.kind == "answers":
        heard[0] = np.where(called[..., None], heard[0], 0.0)
    says = np.where(called, data.test.predictions, 1 if data.kind == "choices" else -1)
    again = decide(policy, replace(data.test, probs=heard[0], logprobs=heard[1], predictions=says))
    assert (again.pools == called).all()
    assert (again.predictions == decided.predictions).all()
