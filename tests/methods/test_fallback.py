"""What decides: simpler policies, unless out-of-fold train documents show that another one is better."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from support.agents_data import random_dataset, skilled, stream

from rlfocal.data.dataset import Dataset, Kind
from rlfocal.data.policy import Budget, Decisions, decide
from rlfocal.methods import make_method
from rlfocal.methods.fallback import (
    PolicyName,
    choose_base,
    choose_fallback,
    is_ahead,
    may_come_ahead,
    needed_margin,
)
from rlfocal.methods.rl_focal.agents import PoolAgents, PoolDriver
from rlfocal.methods.rl_focal.candidates import _measure_accuracies
from rlfocal.methods.rl_focal.config import RLFocalConfig
from rlfocal.methods.rl_focal.training import fit_and_choose, keep_mean_pool, prepare, train
from rlfocal.methods.trained import configure, train_agents

FAST: dict[str, dict[str, Any]] = {
    "rl_focal": {"joint_episodes": 4, "stretches": 16},
    "gated_log_linear": {"steps": 60},
    "rl_focal_sequential": {"folds": 3},
}
each_method = pytest.mark.parametrize(
    "method",
    ["rl_focal", "rl_focal_sequential", pytest.param("gated_log_linear", marks=pytest.mark.slow)],
)
each_kind = pytest.mark.parametrize("kind", ["choices", pytest.param("answers", marks=pytest.mark.slow)])


def fit(method: str, rows: Dataset, seed: int = 0, **changes: Any) -> Any:
    config = configure(method, len(rows), FAST[method] | changes)
    [agents] = train_agents(method, rows, config, [seed])
    return agents


def decide_within(agents: PoolAgents, budget: int, documents: Dataset) -> Decisions:
    policy = agents.hold_to_budget(Budget(budget))
    assert policy is not None
    return decide(policy, documents)


def accuracy(agents: Any, documents: Dataset) -> float:
    decided = decide(agents, documents)
    return float((decided.predictions == documents.labels).mean())


def best_single(data: Dataset) -> float:
    best = data.train.correct.mean(axis=0).argmax()
    return float(data.test.correct[:, best].mean())


@each_method
def test_one_model_far_ahead_decides_alone(method: str) -> None:
    """Nothing can be learned from nine models that guess, and each of them costs."""
    rng = np.random.default_rng(0)
    said = rng.integers(0, 4, (250, 10))
    labels = np.where(rng.random(250) < 0.95, said[:, 0], rng.integers(0, 4, 250))
    data = stream(said, labels, 4)
    agents = fit(method, data.train)
    assert agents.deciding_policies[-1] in {"best single", "start"}
    decided = decide(agents, data.test)
    assert decided.pools.sum(axis=1).tolist() == [1] * len(data.test)
    assert accuracy(agents, data.test) == best_single(data)


@each_method
@each_kind
def test_shuffled_labels_teach_nothing(method: str, kind: Kind) -> None:
    """The good models agree, whatever the labels are made to say; one of them or some answer."""
    data = skilled([0.9, 0.85, 0.9, 0.8], n_docs=600, kind=kind)
    shuffled = np.random.default_rng(1).permutation(data.train.labels)
    agents = fit(method, replace(data.train, labels=shuffled))
    assert set(agents.deciding_policies) <= {"best single", "start"}
    assert accuracy(agents, data.test) > 0.7


@each_method
def test_what_earns_its_place_decides(method: str) -> None:
    """Five models that are right independently of each other beat any one of them."""
    data = skilled([0.7] * 5, n_docs=700)
    agents = fit(method, data.train)
    assert agents.deciding_policies[-1] in {"start", "constant pool", "learned"}
    assert accuracy(agents, data.test) > best_single(data) + 0.03


@each_method
def test_without_the_floor_all_that_was_learned_decides(method: str) -> None:
    data = skilled([0.95, *(0.25,) * 5], n_docs=200)
    agents = fit(method, data.train, has_floor=False)
    assert set(agents.deciding_policies) <= {"learned"}


def test_tasks_have_their_own_best_model() -> None:
    """Two models that each know one task, where the task is an input."""
    rng = np.random.default_rng(0)
    labels, tasks = rng.integers(0, 4, 400), np.arange(400) % 2
    right = rng.random((400, 2)) < np.where(tasks[:, None] == np.arange(2), 0.95, 0.3)
    said = np.where(right, labels[:, None], (labels[:, None] + 1) % 4)
    data = replace(stream(said, labels, 4), tasks=np.array(["even", "odd"])[tasks])
    config = replace(configure("rl_focal", 320), joint_episodes=0)
    [agents] = train(data.train, config, [0])
    assert agents.simple_policies is not None
    agents = replace(
        agents,
        simple_policies=agents.simple_policies._replace(deciding_policies=("best single per task",) * 2),
    )
    asked = decide_within(agents, 1, data.test).pools
    np.testing.assert_array_equal(asked.argmax(axis=1), np.arange(320, 400) % 2)
    elsewhere = replace(data.test, tasks=np.full(len(data.test), "a third"))
    assert len(np.unique(decide_within(agents, 1, elsewhere).pools.argmax(axis=1))) == 1


def test_what_one_task_knows_is_little_beside_all_of_train() -> None:
    """Of three documents of a task, the worse model happens to be right more often."""
    right = np.ones((203, 2), dtype=np.bool_)
    right[:100, 1] = False
    right[200:, 0] = False
    labels = np.zeros(203, dtype=np.int64)
    said = np.where(right, 0, 1)
    rows = replace(stream(said, labels, 2), tasks=np.array(["many"] * 200 + ["few"] * 3))
    assert _measure_accuracies(rows, ["many", "few"]).argmax(axis=1).tolist() == [0, 0, 0]


def deciding(name: PolicyName, kind: Kind = "choices") -> tuple[PoolAgents, Dataset]:
    """Agents of which this policy decides, whatever it is worth."""
    data = random_dataset(5, kind, n_docs=150)
    data = replace(data, is_train=np.arange(150) < 100)
    config = replace(RLFocalConfig(), joint_episodes=1, mean_pool=3.0)
    [agents] = train(data.train, config, [0])
    assert agents.simple_policies is not None
    return replace(
        agents,
        simple_policies=agents.simple_policies._replace(
            deciding_policies=(name,) * len(agents.deciding_policies)
        ),
    ), data.test


@pytest.mark.parametrize(("moved", "is_limited"), [(5.0, False), (5.0, True), (-5.0, True)])
def test_the_mean_pool_is_kept_whatever_training_ended_with(moved: float, is_limited: bool) -> None:
    """Of six models that are right 6 times in ten, each by itself: all of them are worth a call."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 400)
    wrong = (labels[:, None] + rng.integers(1, 4, (400, 6))) % 4
    data = stream(np.where(rng.random((400, 6)) < 0.6, labels[:, None], wrong), labels, 4)
    config = replace(RLFocalConfig(), has_floor=False, joint_episodes=0, mean_pool=3.0)
    [agents] = train(data, config, [0])
    assert agents.questions is not None
    agents.networks.decider.question.data[0] += moved
    assert decide(agents, data).pools.sum(axis=1).mean() == (6 if moved > 0 else 1)
    keep_mean_pool(agents, agents.questions.numbers(data), is_limited=is_limited)
    assert 2 <= decide(agents, data).pools.sum(axis=1).mean() <= 3


@pytest.mark.parametrize("kind", ["choices", "answers"])
def test_each_policy_asks_and_answers_as_it_says(kind: Kind) -> None:
    alone, test = deciding("best single", kind)
    assert alone.simple_policies is not None
    best = alone.places[int(alone.simple_policies.singles[0].argmax())]
    for decided in (decide(alone, test), decide_within(alone, 2, test)):
        assert decided.pools[:, best].all()
        assert decided.pools.sum() == len(test)
        np.testing.assert_array_equal(decided.predictions, test.predictions[:, best])
    for name in ("start", "constant pool"):
        pool, test = deciding(name, kind)
        assert pool.simple_policies is not None
        for budget, members in zip(pool.budgets, pool.simple_policies.pools.numpy(), strict=False):
            decided = decide_within(pool, budget, test)
            asked = np.isin(np.arange(len(pool.models)), pool.places[members > 0])
            np.testing.assert_array_equal(decided.pools, np.tile(asked, (len(test), 1)))
            assert decided.pools[0].sum() == budget


@pytest.mark.parametrize("name", ["best single", "start", "constant pool"])
def test_a_router_does_the_same(name: PolicyName) -> None:
    agents, test = deciding(name)
    together, driver = decide(agents, test), PoolDriver(agents)
    for row in range(5):
        driver.begin(test.questions[row] if test.questions else "", str(test.tasks[row]))
        np.testing.assert_array_equal(driver._pool > 0, together.pools[row])


@each_method
@each_kind
def test_names_and_places_of_models_do_not_matter(method: str, kind: Kind) -> None:
    """Two models are equally accurate, so that a tie would go by place."""
    data = skilled([0.5, 0.7, 0.7, 0.6], n_docs=300, kind=kind, seed=3)
    order = np.array([2, 0, 3, 1])
    moved = replace(data.reorder(order), models=tuple(f"renamed-{i}" for i in range(4)))
    first, second = (fit(method, rows.train) for rows in (data, moved))
    assert first.deciding_policies == second.deciding_policies
    for simple in ({}, {"simple_policies": None}) if method != "rl_focal_sequential" else ({},):
        one, other = (
            decide(replace(first, **simple), data.test),
            decide(replace(second, **simple), moved.test),
        )
        np.testing.assert_array_equal(one.predictions, other.predictions)
        np.testing.assert_array_equal(one.pools[:, order], other.pools)


def test_what_was_learned_is_tried_out_of_fold_where_it_may_be_better() -> None:
    """Each model knows the questions of one word, and a Decider that reads the word decides."""
    rng = np.random.default_rng(0)
    n, about = 900, np.arange(900) % 2
    labels = rng.integers(0, 4, n)
    right = rng.random((n, 2)) < np.where(about[:, None] == np.arange(2), 0.98, 0.25)
    said = np.where(right, labels[:, None], (labels[:, None] + 1) % 4)
    words = np.array(["apples and pears", "ships on seas"])[about]
    data = replace(stream(said, labels, 4), questions=tuple(words))
    agents = fit("rl_focal", data.train, joint_episodes=24, call_penalty=0.1)
    assert agents.deciding_policies[-1] == "learned"
    assert accuracy(agents, data.test) > best_single(data) + 0.25
    prepared = prepare(data.train, agents.config)
    worse = replace(agents, simple_policies=None)
    worse.networks.decider.question.data[:] = 0  # asks for both, or for neither
    chosen = fit_and_choose(prepared, agents.config, 0, lambda of, report: worse, lambda share: None)
    assert chosen.deciding_policies[-1] != "learned"


def test_what_is_ahead_by_chance_does_not_decide() -> None:
    ones, zeros = np.ones(3), np.zeros(3)
    assert is_ahead(np.ones(40))
    assert not is_ahead(zeros)
    assert not is_ahead(ones[:1])  # one document is none
    assert not is_ahead(np.array([1.0, -1, 1, -1]))
    assert not is_ahead(np.array([*np.ones(8), *np.zeros(40)]), margin=3.0)


@pytest.mark.parametrize("n", [80, 300, 1000])
def test_policies_that_are_no_better_rarely_decide(n: int) -> None:
    """All four are as good as each other, then each is a point worse than the one before it."""
    rng = np.random.default_rng(0)
    for loss, level in ((0.0, 0.05), (0.01, 0.01)):
        skills = 0.7 - loss * np.arange(4)
        fits = rng.random((1000, 4, n)) < skills[None, :, None]
        chosen = [choose_fallback(("a", "b", "c", "d"), earned.astype(float)) for earned in fits]
        allowed = level + 2.5 * (level * (1 - level) / len(fits)) ** 0.5
        assert np.mean([name != "a" for name in chosen]) <= allowed


def test_a_clear_gain_decides_and_passes_its_level_on() -> None:
    rng = np.random.default_rng(0)
    fits = rng.random((100, 3, 400)) < np.array([0.5, 0.65, 0.8])[None, :, None]
    chosen = [choose_fallback(("a", "b", "c"), earned.astype(float)) for earned in fits]
    assert chosen.count("c") > 90
    assert choose_fallback(("a", "b"), np.zeros((2, 0))) == "a"


def test_the_start_has_to_earn_more_than_one_model() -> None:
    """On a tie and without documents the simpler one decides, which costs less."""
    one, both = np.array([1.0, 0.0, 1.0]), np.array([1.0, 1.0, 0.0])
    assert choose_base("one", "start", np.stack([one, both + 0.1])) == "start"
    assert choose_base("one", "start", np.stack([one, both - 0.1])) == "one"
    assert choose_base("one", "start", np.stack([one, both])) == "one"
    assert choose_base("one", "start", np.zeros((2, 0))) == "one"


@each_method
def test_one_model_alone_is_the_best_single_one_where_several_are_as_accurate(method: str) -> None:
    """Three models of the same accuracy that are wrong together, under three sets of names."""
    labels = np.random.default_rng(0).integers(0, 4, 40)
    said = np.repeat(np.where(np.arange(40) % 4 == 0, (labels + 1) % 4, labels)[:, None], 3, axis=1)
    said[:4] = (labels[:4, None] + 1 + np.arange(3)) % 4
    rows = stream(said, labels, 4)
    chosen = set()
    for order in ((0, 1, 2), (2, 0, 1), (1, 2, 0)):
        moved = replace(rows.reorder(np.array(order)), models=("a", "b", "c"))
        [best] = make_method("best_single").fit(moved, [0])
        asked = decide(fit(method, moved), moved).pools
        np.testing.assert_array_equal(asked, decide(best, moved).pools)
        chosen.add(order[int(asked[0].argmax())])
    assert len(chosen) == 1


def test_labels_that_tell_nothing_ask_for_more() -> None:
    data = skilled([0.9, 0.5, 0.5], n_docs=300)
    assert needed_margin(data.train) == 0
    draws = [np.random.default_rng(seed).permutation(data.train.labels) for seed in range(100)]
    margins = [needed_margin(replace(data.train, labels=labels)) for labels in draws]
    assert margins.count(0) < 12  # 5 of 100 by design


@pytest.mark.parametrize(("gain", "goes_on"), [(0.2, True), (0.0, False), (-0.2, False)])
def test_trials_end_once_the_rest_cannot_bring_a_clear_lead(gain: float, goes_on: bool) -> None:
    """Of 300 documents 100 were tried, of which a fifth differ by 1 or -1."""
    first = np.zeros(100)
    first[:20] = 1.0
    first[: round(10 - 50 * gain)] = -1.0
    assert first.mean() == pytest.approx(gain, abs=0.01)
    assert may_come_ahead(first, 300) == goes_on


def test_a_clear_lead_may_always_come_and_all_documents_decide_as_they_are() -> None:
    rng = np.random.default_rng(0)
    for mean in (0.02, 0.05, 0.1):
        gains = rng.choice([-1.0, 0.0, 1.0], 500, p=[0.1, 0.8 - mean, 0.1 + mean])
        assert may_come_ahead(gains, len(gains)) >= is_ahead(gains)
    assert may_come_ahead(np.zeros(0), 10)


def test_a_trial_takes_pool_sizes_and_priors_as_given_and_tries_none() -> None:
    data = skilled([0.7, 0.65, 0.6, 0.5], 120).train
    of = prepare(data, RLFocalConfig())
    assert of.simple_candidates is not None
    again = prepare(data, RLFocalConfig(), of.questions, of.simple_candidates.selection)
    assert again.simple_candidates is not None
    policies, others = again.simple_candidates.policies, of.simple_candidates.policies
    for one, other in ((policies.weight, others.weight), (policies.start, others.start)):
        assert one is not None
        assert other is not None
        assert torch.equal(one, other)
    assert again.simple_candidates.rewards.shape[-1] == 0
    size, n = of.simple_candidates.selection.size, len(data)
    assert of.simple_candidates.selection_rewards.shape == (of.simple_candidates.rewards.shape[0], n)
    right = of.simple_candidates.selection_rewards[-1] + RLFocalConfig().call_penalty * size
    assert set(right.round(9).tolist()) <= {0.0, 1.0}
