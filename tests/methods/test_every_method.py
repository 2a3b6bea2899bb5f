"""What holds of every method of the register: budgets as entered, edges of data, labels that mean nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.datasets import answers, choices, edges

from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import Budget, Budgeted, decide
from rlfocal.methods import check_methods, every_method, make_method
from rlfocal.methods.registry import Making, entry_of, settable

QUICK = ("one class", "no texts", "few answers")
"""Edges that each method meets in `make test`; the others take as long again."""
NAMES = sorted({name for data in (choices(), answers()) for name in every_method(data)[0]})


def fitted(name: str, data: Dataset, *, briefly: bool = False) -> object:
    """The method's policy; `briefly`: after few gradient steps, where its settings tell how many."""
    check_methods([name], data)
    known = settable(make_method(name))
    few: dict[str, str] = {
        setting: "20" for setting in ("iterations", "epochs") if briefly and setting in known
    }
    [policy] = make_method(name, Making(settings=few)).fit(data.train, [0])
    return policy


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["choices", "answers"])
def test_budgets_are_kept_and_entered(name: str, kind: str) -> None:
    data = choices() if kind == "choices" else answers()
    if name not in every_method(data)[0]:
        pytest.skip("not for such data")
    policy = fitted(name, data, briefly=True)
    assert isinstance(policy, Budgeted) == entry_of(name).has_budgets
    if isinstance(policy, Budgeted):
        for text in ("1", "2", "all", "3c"):
            budget = Budget.of(text)
            held = policy.within(budget)
            if held is None:
                continue
            on_train = decide(held, data.train.unlabelled())
            costs = on_train.pools.sum(axis=1) if budget.unit == "models" else on_train.pools @ data.prices
            assert costs.mean() <= budget.amount * 1.25 + 1e-9  # thresholds may be set on held-out parts


@pytest.mark.parametrize(
    "edge", [*QUICK, *(pytest.param(e, marks=pytest.mark.slow) for e in edges() if e not in QUICK)]
)
def test_no_method_breaks_at_an_edge(edge: str) -> None:
    data = edges()[edge]
    names, left_out = every_method(data)
    assert names
    assert all(left_out.values())
    for name in names:
        if name.startswith("rl_focal"):
            continue
        policy = fitted(name, data, briefly=True)
        decided = decide(policy, data.test.unlabelled())  # type: ignore[arg-type]
        assert decided.predictions.shape == (len(data.test),), name
        assert (decided.predictions >= -1).all(), name
        assert (decided.predictions < np.maximum(data.test.n_choices, 1)).all(), name
        if decided.probability is not None:
            assert np.isfinite(decided.probability).all(), name
            assert ((decided.probability > -1e-9) & (decided.probability < 1 + 1e-9)).all(), name


@pytest.mark.slow
def test_random_labels_give_chance_accuracy() -> None:
    data = choices(1500)
    labels = data.labels.copy()
    train = np.flatnonzero(data.is_train)
    labels[train] = np.random.default_rng(5).integers(0, 3, len(train))
    labels[~data.is_train] = np.random.default_rng(6).integers(0, 3, int((~data.is_train).sum()))
    noise = replace(data, labels=labels)
    for name in every_method(noise)[0]:
        if name.startswith(("rl_focal", "rlae")) or entry_of(name).role == "ceiling":
            continue
        decided = decide(fitted(name, noise), noise.test.unlabelled())  # type: ignore[arg-type]
        accuracy = (decided.predictions == noise.test.labels).mean()
        assert abs(accuracy - 1 / 3) < 4 * np.sqrt(2 / 9 / len(noise.test)), name


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith(("rl_focal", "rlae"))])
def test_equal_seeds_decide_alike(name: str) -> None:
    data = choices() if name in every_method(choices())[0] else answers()
    policies = (fitted(name, data, briefly=True) for _ in range(2))
    once, again = (decide(policy, data.test.unlabelled()) for policy in policies)  # type: ignore[arg-type]
    assert (once.predictions == again.predictions).all()
    assert (once.pools == again.pools).all()


@pytest.mark.parametrize("name", ["rl_focal", "rl_focal_sequential"])
def test_one_checkpoint_decides_at_any_budget(name: str) -> None:
    data = choices(240, 5)
    policy = fitted(name, data)
    assert isinstance(policy, Budgeted)
    free = decide(policy, data.test.unlabelled())  # type: ignore[arg-type]
    for most in range(1, 6):
        held = policy.within(Budget(most))
        if held is None:
            assert name == "rl_focal_sequential"
            assert free.pools.sum(axis=1).min() > most
            continue
        decided = decide(held, data.test.unlabelled())
        asked = decided.pools.sum(axis=1)
        assert asked.max() <= most
        unbound = free.pools.sum(axis=1) <= most
        if name == "rl_focal_sequential" or unbound.all():
            assert (decided.predictions[unbound] == free.predictions[unbound]).all()
    cheap = policy.within(Budget(3, "cents"))  # the prices are 1, 2, 3, 4 and 5
    assert cheap is not None
    asked = decide(cheap, data.test.unlabelled()).pools
    assert asked.any(axis=1).all()
    assert (asked @ data.prices).max() <= 3
    assert policy.within(Budget(0.5, "cents")) is None
    everything = policy.within(Budget(float("inf")))
    assert everything is not None
    assert (decide(everything, data.test.unlabelled()).pools == free.pools).all()
