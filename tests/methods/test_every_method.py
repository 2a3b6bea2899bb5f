"""What holds of every method of the register: budgets as entered, and edges of data."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from support.datasets import answers, choices, edges
from support.rival_data import brief

from rlfocal.base.errors import InputError
from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import Budget, BudgetedPolicy, FailingModels, OnlineLearner, decide, decide_online
from rlfocal.methods import check_methods, every_method
from rlfocal.methods.registry import PROTOCOLS, entry_of

pytestmark = pytest.mark.usefixtures("few_steps")

QUICK = ("one class", "no texts", "few answers")
"""Edges that each method meets in `make test`; the others take as long again."""


EACH_KIND = pytest.mark.parametrize("kind", ["choices", pytest.param("answers", marks=pytest.mark.slow)])


def offered(data: Dataset) -> set[str]:
    """Under either protocol."""
    return {name for protocol in PROTOCOLS for name in every_method(data, protocol)[0]}


ON_CHOICES = offered(choices())
NAMES = sorted(ON_CHOICES | offered(answers()))


def fitted(name: str, data: Dataset) -> object:
    return brief(name).fit(data.train, [0])[0]


@cache
def fitted_once(name: str, kind: str) -> tuple[Dataset, Any]:
    data = choices() if kind == "choices" else answers()
    if name not in every_method(data)[0]:
        pytest.skip("not for such data")
    return data, fitted(name, data)


@pytest.mark.parametrize("name", NAMES)
@EACH_KIND
def test_whoever_fails_the_answer_comes_and_is_charged_to_those_that_gave_it(name: str, kind: str) -> None:
    data, policy = fitted_once(name, kind)
    test = data.test if name == "oracle" else data.test.hide_labels()
    usual = decide(policy, test)
    nobody, n_models = np.zeros(len(data.models), dtype=np.bool_), len(data.models)
    same = decide(policy, test, FailingModels(nobody, 0))
    for field in ("pools", "predictions", "rounds", "probability"):
        assert np.array_equal(getattr(usual, field), getattr(same, field)), field
    favourite = int(usual.pools.sum(axis=0).argmax())
    for down in (np.arange(n_models) == favourite, np.arange(n_models) != favourite):
        best = int((~down).argmax())
        decided = decide(policy, test, FailingModels(down, best))
        assert not decided.pools[:, down].any()
        for rounds in [] if decided.rounds is None else decided.rounds.tolist():
            assert {*rounds} | {0} == {*range(max(rounds) + 1)}  # none is spent on models that are down
        assert (decided.pools.any(axis=1) >= usual.pools.any(axis=1)).all()
        gave = (decided.pools & (test.predictions >= 0)).any(axis=1)
        assert (decided.predictions[gave] >= 0).all()


@pytest.mark.parametrize("name", NAMES)
@EACH_KIND
def test_budgets_are_kept_and_entered(name: str, kind: str) -> None:
    data, policy = fitted_once(name, kind)
    assert isinstance(policy, BudgetedPolicy) == entry_of(name).has_budgets
    if not isinstance(policy, BudgetedPolicy):
        return
    for text in ("1", "1.3", "2", "all", "3c"):
        budget = Budget.parse(text)
        held = policy.hold_to_budget(budget)
        if held is None:
            continue
        on_train = decide(held, data.train.hide_labels())
        costs = on_train.pools.sum(axis=1) if budget.unit == "models" else on_train.pools @ data.prices
        assert costs.mean() <= budget.amount * 1.25 + 1e-9  # thresholds may be set on held-out parts
    assert policy.hold_to_budget(Budget(0.5)) is policy.hold_to_budget(Budget(0.5, "cents")) is None
    unpriced = replace(data, prices=np.full(len(data.models), np.nan))
    if name in every_method(unpriced)[0]:
        untold = fitted(name, unpriced)
        assert isinstance(untold, BudgetedPolicy)
        assert untold.hold_to_budget(Budget(100.0, "cents")) is None


@pytest.mark.parametrize(
    "edge", [*QUICK, *(pytest.param(e, marks=pytest.mark.slow) for e in edges() if e not in QUICK)]
)
def test_no_method_breaks_at_an_edge(edge: str) -> None:
    data = edges()[edge]
    assert all(every_method(data)[1].values())
    for name in sorted(offered(data)):
        needs_two = name.startswith(("gated", "log_linear_team"))
        if name.startswith("rl_focal") or (needs_two and edge == "one train document"):
            continue
        policy = fitted(name, data)
        found = [decide(policy, data.test.hide_labels())]  # type: ignore[arg-type]
        if entry_of(name).protocols == ("online",):
            assert isinstance(policy, OnlineLearner)
            found.append(decide_online(policy, data.test))
        if isinstance(policy, BudgetedPolicy):
            held = (policy.hold_to_budget(Budget.parse(text)) for text in ("1", "2.5", "all", "2.5c", "0.5c"))
            found += [decide(one, data.test.hide_labels()) for one in held if one is not None]
        for decided in found:
            assert decided.predictions.shape == (len(data.test),), name
            assert (decided.predictions >= (0 if data.kind == "choices" else -1)).all(), name
            assert (decided.predictions < np.maximum(data.test.n_choices, 1)).all(), name
            assert (decided.pools.any(axis=1) == decided.pools.any()).all(), name  # some ask nobody
            if entry_of(name).answers == "what it answers":
                [rows, asked] = np.nonzero(decided.pools)
                assert (rows == np.arange(len(data.test))).all(), name
                assert (decided.predictions == data.test.predictions[rows, asked]).all(), name
            if decided.probability is not None:
                assert np.isfinite(decided.probability).all(), name
                assert ((decided.probability > -1e-9) & (decided.probability < 1 + 1e-9)).all(), name


@pytest.mark.parametrize("name", [n for n in NAMES if not n.startswith("rl_focal") and n != "oracle"])
def test_a_seed_decides_alike_alone_and_in_company_and_reads_no_test_label(name: str) -> None:
    data = choices() if name in ON_CHOICES else answers()
    in_company, alone = (brief(name).fit(data.train, seeds)[-1] for seeds in ([0, 1], [1]))
    once, again = decide(in_company, data.test), decide(alone, data.test.hide_labels())
    assert (once.predictions == again.predictions).all()
    assert (once.pools == again.pools).all()


@pytest.mark.parametrize("name", [name for name in NAMES if entry_of(name).protocols == ("online",)])
def test_what_learns_from_every_label_runs_online_only(name: str) -> None:
    with pytest.raises(InputError, match="needs --protocol online"):
        check_methods([name], choices())
    check_methods([name], choices(), "online")


@pytest.mark.parametrize("name", ["rl_focal", "rl_focal_start", "gated_log_linear"])
def test_a_choice_that_no_question_of_train_has_is_answered(name: str) -> None:
    """Answers to other documents of the same batch stay as they are."""
    data, policy = fitted_once(name, "choices")
    test, n = data.test.hide_labels(), data.probs.shape[2]
    probs = np.pad(test.probs, ((0, 0), (0, 0), (0, 2)))
    probs[::2] = 0.01
    probs[::2, :, n] = 1 - 0.01 * (n + 1)
    logprobs = np.log(probs, where=probs > 0, out=np.full(probs.shape, -np.inf))
    is_wide = np.arange(len(test)) % 2 == 0
    wide = replace(
        test,
        probs=probs,
        logprobs=logprobs,
        n_choices=np.where(is_wide, n + 2, test.n_choices),
        predictions=probs.argmax(axis=2),
    )
    answered = decide(policy, wide).predictions
    assert (answered[is_wide] == n).all()
    assert np.array_equal(answered[~is_wide], decide(policy, test).predictions[~is_wide])
