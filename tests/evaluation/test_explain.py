"""What is explained: what agents do as they are, and what they do without a model, as a Router would."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t as student
from support.datasets import make_answers, make_dataset

from rlfocal.data.calls import Calls
from rlfocal.data.dataset import Dataset
from rlfocal.data.outputs import Output
from rlfocal.data.policy import decide
from rlfocal.evaluation.explaining import (
    MIN_CHANCE,
    NO_LOSS_MARGIN,
    Explanation,
    ExplanationData,
    load,
    measure_belief,
    measure_model_use,
    observe,
    save,
    summarise,
)
from rlfocal.methods.learning.agents import TrainedAgents
from rlfocal.methods.rl_focal.agents import RLFocalAgents, stand_ins
from rlfocal.methods.rl_focal.config import RLFocalConfig
from rlfocal.methods.rl_focal_sequential.config import Ridges, SequentialConfig
from rlfocal.methods.trained import train_agents
from rlfocal.serving import Router
from rlfocal.statistics.intervals import Interval

SEQUENTIAL = SequentialConfig(
    has_floor=False,
    mean_pool=2.5,
    folds=3,
    word_directions=0,
    recipes=(Ridges(100), Ridges(0, shared=0.2, votes=5)),
)
RL_FOCAL = RLFocalConfig(
    window=60,
    decider_episodes=10,
    fusion_episodes=20,
    mean_pool=3.0,
    has_floor=False,
    start_others=2.0,
    call_penalty=0.0,
)
CONFIGS: dict[str, Any] = {"rl_focal": RL_FOCAL, "rl_focal_sequential": SEQUENTIAL}
METHODS = tuple(CONFIGS)


@cache
def told() -> Dataset:
    """Two tasks of 300 documents, a third of each test. m00 copies m01, m02 knows task `law` alone, m03 knows
    nothing, m04 is middling."""
    rng = np.random.default_rng(3)
    T, N, C = 600, 5, 4
    tasks = np.array(["law", "sea"])[np.arange(T) % 2]
    labels = rng.choice(C, T, p=[0.55, 0.15, 0.15, 0.15])
    skill = np.array([0.0, 0.65, 0.25, 0.25, 0.55]) + np.outer(tasks == "law", [0, 0, 0.72, 0, 0])
    right = rng.random((T, N)) < skill
    said = np.where(right, labels[:, None], (labels[:, None] + rng.integers(1, C, (T, N))) % C)
    logits = rng.normal(0, 0.3, (T, N, C)) + 2.0 * (np.arange(C) == said[..., None])
    logits[:, 0] = logits[:, 1]
    probs = np.exp(logits) / np.exp(logits).sum(axis=2, keepdims=True)
    return replace(make_dataset(probs, labels, n_train=400), tasks=tasks)


@cache
def spoken() -> Dataset:
    """Free answers of three letters and no answer."""
    rng = np.random.default_rng(4)
    gold = rng.choice(list("abc"), 240)
    right = rng.random((240, 4)) < [0.8, 0.7, 0.6, 0.4]
    said = np.where(right, gold[:, None], rng.choice(list("abcd-"), (240, 4)))
    return make_answers(*(("".join(row), g) for row, g in zip(said.tolist(), gold.tolist(), strict=True)))


@cache
def agents(method: str, kind: str) -> TrainedAgents:
    data = told() if kind == "choices" else spoken()
    [one] = train_agents(method, data.train, CONFIGS[method], [0])
    assert isinstance(one, TrainedAgents)
    return one


@cache
def seen(method: str, kind: str = "choices") -> ExplanationData:
    data = told() if kind == "choices" else spoken()
    return observe(data, [np.ones(len(data), dtype=np.bool_)], [agents(method, kind)])


def explained(of: ExplanationData, method: str = "rl_focal_sequential", **changes: Any) -> Explanation:
    given: dict[str, Any] = {"per": "benchmark", "split": "given", "seed": 0, "data": "d", "n_train": 1}
    return summarise(of, **({"method": method} | given | changes))


@pytest.mark.parametrize("kind", ["choices", "answers"])
@pytest.mark.parametrize("method", METHODS)
def test_an_account_is_what_is_decided(method: str, kind: str) -> None:
    data = (told() if kind == "choices" else spoken()).test
    decided, calls = decide(agents(method, kind), data), Calls(data)
    account = agents(method, kind).account(calls)
    assert (calls.stored_slots(account.slots) == decided.predictions).all()
    assert (calls.called == decided.pools).all()
    top = account.distribution.max(axis=1)
    assert decided.probability is not None
    np.testing.assert_allclose(top, decided.probability, atol=1e-6)
    of = seen(method, kind)
    assert (of.slots[0] == decided.predictions).all()
    np.testing.assert_allclose(of.chance[0, of.right], decided.probability[of.right], atol=1e-6)
    assert (of.chance[0] <= decided.probability + 1e-6).all()
    if kind == "answers":
        told_right = (of.pools & data.correct).any(axis=1)
        assert ((of.chance[0] > 0) == told_right).all()


@pytest.mark.parametrize("kind", ["choices", pytest.param("answers", marks=pytest.mark.slow)])
@pytest.mark.parametrize("method", METHODS)
def test_without_a_model_the_agents_do_what_a_router_does_whose_model_is_down(method: str, kind: str) -> None:
    data = (told() if kind == "choices" else spoken()).test
    router = Router(agents(method, kind), online=False)
    n_models, checked = len(data.models), 0
    for down in range(n_models):
        calls = Calls(data, np.arange(n_models) == down)
        slots = calls.stored_slots(agents(method, kind).account(calls).slots)
        assert not calls.called[:, down].any()
        for row in range(0, len(data), 3):
            outputs: dict[str, Output] = {}
            question = {"question": "", "task": str(data.tasks[row])}
            while names := router.choose(question, outputs):
                for name in names:
                    at = data.models.index(name)
                    outputs[name] = None if at == down else output(data, row, at)
            said = router.fuse(outputs)
            own = data.slots[row][slots[row]] if kind == "answers" and slots[row] >= 0 else slots[row]
            # Where the first asked say nothing, a Router goes on, which the agents did not learn.
            if (data.predictions[row] >= 0).all():
                heard = [data.models.index(name) for name, one in outputs.items() if one is not None]
                assert sorted(heard) == np.flatnonzero(calls.called[row]).tolist()
                assert said == own or is_tie(data, row, calls)
                checked += 1
    assert checked > n_models * len(data) / 12


def output(data: Dataset, row: int, at: int) -> Output:
    if data.kind == "choices":
        logprobs: Output = data.logprobs[row, at]
        return logprobs
    slot = data.predictions[row, at]
    return [data.slots[row][slot] if slot >= 0 else None]


def is_tie(data: Dataset, row: int, calls: Calls) -> bool:
    """Whether two answers have equally many votes: a Router and a dataset order free answers apart."""
    votes = data.predictions[row][calls.called[row]]
    counts = np.sort(np.bincount(votes[votes >= 0], minlength=2))
    return data.kind == "answers" and counts[-1] == counts[-2]


@pytest.mark.parametrize("kind", ["choices", "answers"])
@pytest.mark.parametrize("method", METHODS)
def test_where_a_model_is_not_asked_its_loss_changes_nothing(method: str, kind: str) -> None:
    of = seen(method, kind)
    unasked = ~of.pools.T
    assert unasked.any()
    assert (of.slots[1:] == of.slots[0])[unasked].all()
    assert (of.chance[1:] == of.chance[0])[unasked].all()
    for one in explained(of, method).models:
        if one.asked == 0:
            assert one.accuracy_without == one.log_score_without == Interval(0.0, 0.0, 0.0)


@pytest.mark.parametrize("kind", ["choices", "answers"])
def test_pulls_and_biases_add_up_to_the_logits(kind: str) -> None:
    data = (told() if kind == "choices" else spoken()).test
    one = agents("rl_focal", kind)
    assert isinstance(one, RLFocalAgents)
    calls = Calls(data)
    account = one.account(calls)
    assert account.pulls is not None
    assert (account.pulls[~calls.called] == 0).all()
    core = one.networks.fusion.core
    assert core is not None
    known = one.read_question_features(calls)
    with torch.no_grad():
        bias = core.biases(known).numpy() if kind == "choices" else None
    checked = 0
    for row in range(len(data)):
        open_slots = np.flatnonzero(account.distribution[row])
        others = open_slots[open_slots != account.slots[row]]
        if len(others) == 0:
            continue
        # Logits are logs of probabilities, but for a constant that differences do not know.
        chance = account.distribution[row]
        margin = np.log(chance[account.slots[row]]) - np.log(chance[others]).mean()
        of_bias = 0.0 if bias is None else bias[row, account.slots[row]] - bias[row, others].mean()
        assert account.pulls[row].sum() + of_bias == pytest.approx(margin, abs=1e-3)
        checked += 1
    assert checked > len(data) / 4


@pytest.mark.parametrize("method", METHODS)
def test_a_copy_noise_and_a_specialist_are_called_what_they_are(method: str) -> None:
    found = explained(seen(method), method)
    of = {one.model: one for one in found.models}
    law, sea = found.tasks
    assert (law.name, law.beliefs[0][0]) == ("law", "m02")
    # Where both are asked, copies share one belief.
    assert sea.beliefs[0][0] in ("m00", "m01", "m04")
    # Of the two that say the same, one can go; who knows the law alone cannot.
    without = of["m02"].accuracy_without
    assert (without.mean if method == "rl_focal_sequential" else without.high) < 0
    assert found.accuracy - 0.02 > of["m01"].accuracy
    assert not of["m02"].is_free
    assert max(of["m00"].accuracy_without.high, of["m01"].accuracy_without.high) >= 0
    noise = of["m03"].belief
    assert noise is None or noise.followed < noise.votes


@given(st.integers(0, 10_000), st.integers(2, 6))
def test_the_best_stand_in(seed: int, n_models: int) -> None:
    rng = np.random.default_rng(seed)
    team = rng.random((8, n_models)) < 0.5
    down, accuracy = rng.random(n_models) < 0.3, rng.random(n_models).round(1)
    found = stand_ins(team, down, accuracy)
    for before, after in zip(team, found, strict=True):
        missing = int((before & down).sum())
        others = [
            at for at in np.argsort(-accuracy, kind="stable").tolist() if not before[at] and not down[at]
        ]
        assert set(np.flatnonzero(after)) == set(np.flatnonzero(before & ~down)) | set(others[:missing])


def test_what_is_kept_is_what_was_found(tmp_path: Path) -> None:
    for method in METHODS:
        found = explained(seen(method), method)
        save(found, tmp_path / "e" / "x.json")
        assert load(tmp_path / "e" / "x.json") == found
    (tmp_path / "y.json").write_text('{"benchmark": 3}')
    assert load(tmp_path / "y.json") is None
    assert load(tmp_path / "missing.json") is None


# By hand, on four documents


def by_hand(**changes: Any) -> ExplanationData:
    """Four documents of three models and three choices; whom they asked is in `rounds`."""
    predictions = np.array([[0, 0, 1], [1, 2, 2], [2, 2, 2], [1, 1, 0]])
    probs = np.where(np.arange(3) == predictions[..., None], 0.6, 0.2)
    test = replace(make_dataset(probs, np.array([1, 1, 2, 2]), n_train=0), tasks=np.array(list("ttuu")))
    chance = np.array([0.5, 0.4, 0.9, 0.2])
    without = np.array([[0.5, 0.2, 0.9, 0.2], [0.5, 0.4, 0.9, 0.0], [0.1, 0.4, 0.9, 0.2]])
    given: dict[str, Any] = {
        "test": test,
        "train_accuracy": np.array([0.2, 0.7, 0.5]),
        "rounds": np.array([[1, 0, 2], [1, 2, 2], [1, 0, 0], [1, 2, 0]]),
        "slots": np.array([[1, 1, 2, 2], [1, 2, 2, 2], [1, 1, 2, 0], [0, 1, 2, 2]]),
        "chance": np.vstack([chance, without]),
        "pulls": np.array([[-1.0, 0, 3], [2, 0.5, 0], [1, 0, 0], [-0.5, -1, 0]]),
    }
    return ExplanationData(**(given | changes))


def test_a_belief_by_hand() -> None:
    every = np.ones(4, dtype=np.bool_)
    first = measure_belief(by_hand(), 0, every)
    assert first is not None
    # Disputed: the first two documents. Of 0 and 1 it says 0 (one vote of two), then 1 (one of three).
    assert (first.asked, first.disputed, first.followed) == (4, 2, 0.5)
    assert first.votes == pytest.approx((1 / 2 + 1 / 3) / 2)
    assert first.pull == pytest.approx((-1 + 2 + 1 - 0.5) / 4)
    assert first.weight == pytest.approx(-1 + 2 + 1 - 0.5)
    assert replace(first, pull=None).weight == pytest.approx(2 * (0.5 - 5 / 12))
    second = measure_belief(by_hand(), 1, every)
    assert second is not None
    assert (second.disputed, second.followed) == (1, 0.0)
    assert second.votes == pytest.approx(2 / 3)
    assert measure_belief(by_hand(), 2, by_hand().test.tasks == "u") is None


def test_no_answer_disputes_nothing() -> None:
    test = replace(by_hand().test, predictions=np.array([[0, 0, -1], [-1, 2, 2], [2, 2, 2], [1, 1, 0]]))
    one = measure_belief(by_hand(test=test), 0, np.ones(4, dtype=np.bool_))
    assert one is not None
    assert one.disputed == 0


def test_a_loss_by_hand() -> None:
    lost = measure_model_use(by_hand(), 1)
    accuracy = lost.accuracy_without
    assert accuracy.mean == -0.25
    assert accuracy.low == -1.0  # Student's interval would go below it
    assert accuracy.high == pytest.approx(-0.25 + student.ppf(0.975, 3) * 0.25)
    assert lost.log_score_without.mean == pytest.approx(np.log(MIN_CHANCE / 0.2) / 4)
    assert not lost.is_free


@pytest.mark.parametrize(("accuracy", "score", "is_free"), [(0, 0, True), (-1.5, 0, False), (0, -1.5, False)])
def test_no_loss_needs_both_intervals(accuracy: float, score: float, is_free: bool) -> None:
    low, other = (Interval(0.0, NO_LOSS_MARGIN * value, 0.1) for value in (accuracy, score))
    found = replace(measure_model_use(by_hand(), 1), accuracy_without=low, log_score_without=other)
    assert found.is_free == is_free


def test_an_interval_of_a_log_score_is_a_standard_error_wide() -> None:
    rng = np.random.default_rng(0)
    test = make_dataset(np.full((400, 1, 2), 0.5), np.zeros(400, dtype=np.int64), n_train=0)
    before, after = rng.uniform(0.3, 0.9, 400), rng.uniform(0.3, 0.9, 400)
    slots, rounds = np.zeros((2, 400), dtype=np.int64), np.ones((400, 1), dtype=np.int64)
    of = by_hand(test=test, chance=np.stack([before, after]), slots=slots, rounds=rounds, pulls=None)
    differences = np.log(after) - np.log(before)
    found = measure_model_use(of, 0).log_score_without
    error = differences.std() / np.sqrt(400)
    assert found.mean == pytest.approx(differences.mean())
    assert found.high - found.low == pytest.approx(2 * 1.96 * error, rel=0.1)


def test_models_stops_and_tasks_by_hand() -> None:
    about: dict[str, Any] = {"method": "rl_focal", "per": "benchmark", "split": "given", "seed": 0}
    found = summarise(by_hand(), **about, data="d", n_train=1)
    assert [one.model for one in found.models] == ["m00", "m01", "m02"]
    assert [one.asked for one in found.models] == [1.0, 0.5, 0.5]
    assert [one.mean_round for one in found.models] == [1.0, 2.0, 2.0]
    assert [(of.name, of.documents, of.accuracy, of.mean_pool_size) for of in found.stops] == [
        ("1", 1, 1.0, 1.0),
        ("2", 2, 1.0, 2.0),
        ("3", 1, 1.0, 3.0),
    ]
    tasks = found.tasks
    assert [(of.name, of.documents, of.mean_pool_size) for of in tasks] == [("t", 2, 2.5), ("u", 2, 1.5)]
    # By the sums of pulls: 3, 1, 0.5; then 0.5, -1.
    assert [name for name, _ in tasks[0].beliefs] == ["m02", "m00", "m01"]
    assert [name for name, _ in tasks[1].beliefs] == ["m00", "m01"]
    # Without pulls by surplus: 1 - 1/2 - 1/3; 1/2 - 2/3; -2/3.
    counted = summarise(by_hand(pulls=None), **about, data="d", n_train=1).tasks[0].beliefs
    surplus = {name: one.weight for name, one in counted}
    assert surplus == pytest.approx({"m00": 1 - 1 / 2 - 1 / 3, "m02": 1 - 1 / 2 - 2 / 3, "m01": -2 / 3})
    assert [name for name, _ in counted] == ["m00", "m02", "m01"]
