"""Algorithm 2: what online learning may know, how often it updates, and the streams that it has to follow."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from support.agents_data import JOINT, TINY, LiteralEnvironment, asked_about, random_dataset, skilled

from benchmarks.results.streams import best_constant, make_turning_stream
from rlfocal.data.dataset import Dataset, Kind
from rlfocal.data.policy import decide
from rlfocal.methods.learning.agents import Tracker
from rlfocal.methods.rl_focal.agents import RLFocalAgents
from rlfocal.methods.rl_focal.config import RLFocalConfig, rl_focal_config
from rlfocal.methods.rl_focal.online import AskedStream
from rlfocal.methods.rl_focal.training import train
from rlfocal.statistics.windows import observed_metrics

WAYS = {"rl_focal": replace(JOINT, update_period=7), "literal": replace(TINY, update_period=7)}


@pytest.mark.parametrize("kind", ["choices", "answers"])
def test_a_window_holds_what_all_members_answered(kind: Kind) -> None:
    """Against the literal environment on just those documents."""
    data, lead, window = random_dataset(2, kind, n_docs=40), 10, 12
    config = RLFocalConfig(sees_questions=False, log_linear=False)
    stream = AskedStream(
        data, partial(observed_metrics, names=config.metrics),
        n_slots=5, window=window, lead=lead, n_metrics=2,
    )  # fmt: skip
    rng = np.random.default_rng(0)
    asked = rng.random((40, 4)) < 0.7
    asked[:lead] = True
    stream.note(torch.arange(lead, 40), torch.tensor(asked[lead:]).float())
    n_known = []
    for end in (1, lead, lead + 5, 40):
        for pool in np.ndindex(2, 2, 2, 2):
            members = np.flatnonzero(pool).tolist()
            rows = [t for t in range(max(end - window, 0), end) if asked[t, members].all()]
            n_known.append(len(rows) < min(end, window))
            expected = [0.0, 0.0]
            if rows:
                at = np.isin(np.arange(40), rows)
                literal = LiteralEnvironment(data.rows(at), config, window, len(rows))
                literal.pool = members
                expected = [literal.metric(name) for name in config.metrics]
            found = stream.metrics(torch.tensor(pool).float().expand(1, 1, -1), end)
            np.testing.assert_allclose(found[0, 0], expected, atol=1e-6)
    assert any(n_known)


def made(kind: Kind = "choices", n_docs: int = 120) -> Dataset:
    data = asked_about(random_dataset(4, kind, n_docs=n_docs))
    return replace(data, is_train=np.arange(n_docs) < 60)


@pytest.mark.parametrize("way", ["rl_focal", pytest.param("literal", marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["choices", pytest.param("answers", marks=pytest.mark.slow)])
def test_updates_use_only_models_that_were_asked(kind: Kind, way: str) -> None:
    """Whatever they would have said, pools, answers and so all updates in between stay the same."""
    data = made(kind)
    [agents] = train(data.train, WAYS[way], [0])
    test = data.test
    once = agents.decide_online(test)
    silent = ~once.pools
    assert 0.05 < silent.mean() < 0.95
    rng = np.random.default_rng(7)
    probs, predictions = test.probs.copy(), test.predictions.copy()
    probs[silent] = np.roll(probs[silent], 1, axis=1)
    predictions[silent] = rng.integers(0, 2, silent.sum())
    again = agents.decide_online(replace(test, probs=probs, predictions=predictions))
    np.testing.assert_array_equal(again.pools, once.pools)
    np.testing.assert_array_equal(again.predictions, once.predictions)


@pytest.mark.parametrize("way", ["rl_focal", pytest.param("literal", marks=pytest.mark.slow)])
def test_agents_are_updated_after_every_t_u_labels(way: str) -> None:
    data = made()
    [agents] = train(data.train, WAYS[way], [0])
    for n_test in (1, 7, 8, 60):
        decided = agents.decide_online(data.test.rows(np.arange(60) < n_test))
        assert [update.episode for update in decided.updates] == list(range(-(-n_test // 7)))
        assert len(decided.predictions) == n_test


def test_agents_that_do_not_look_at_questions_learn_online() -> None:
    data = made()
    config = replace(WAYS["rl_focal"], sees_questions=False, log_linear=False)
    [agents] = train(data.train, config, [0])
    assert len(agents.decide_online(data.test).updates) == 9


def agents_of(data: Dataset, seed: int) -> RLFocalAgents:
    [agents] = train(data.train, replace(rl_focal_config(400), window=60), [seed])
    return agents


@pytest.mark.parametrize("seeds", [[0], pytest.param([7, 0], marks=pytest.mark.slow)])
def test_rl_focal_online_follows_a_change_and_costs_little_without_one(seeds: list[int]) -> None:
    """From 300 documents after the turn on, 90 % of the best constant pool; steady, half a point."""
    shares, late = [], np.arange(900) >= 600
    for seed in seeds:
        turned = make_turning_stream(seed, 300)
        agents = agents_of(turned, seed)  # train does not turn
        right = (agents.decide_online(turned.test).predictions == turned.test.labels)[late].mean()
        assert right > (decide(agents, turned.test).predictions == turned.test.labels)[late].mean() + 0.2
        shares.append(right / best_constant(turned.test.rows(late)))
    assert np.mean(shares) >= 0.9
    steady = make_turning_stream(seeds[-1], 900).test
    online, frozen = agents.decide_online(steady), decide(agents, steady)
    lost = np.mean(frozen.predictions == steady.labels) - np.mean(online.predictions == steady.labels)
    assert lost <= 0.005


def test_a_model_that_is_hardly_ever_asked_is_found_once_it_is_the_best() -> None:
    """Of eight models the two good ones fail from the 150th document on; without exploring, the pools of the
    last documents hold the new best one 27 times in a hundred. Pools keep to their mean size."""
    data = make_turning_stream(0, 150, (0.95, 0.9) + (0.3,) * 6, (0.3,) * 7 + (0.95,), train=200, test=600)
    config = replace(rl_focal_config(200), window=60)
    [agents] = train(data.train, config, [0])
    online, late = agents.decide_online(data.test), np.arange(600) >= 400
    assert decide(agents, data.test).pools[:, -1].mean() == 0
    assert online.pools[late, -1].mean() > 0.8
    assert (online.predictions == data.test.labels)[late].mean() > 0.65
    assert online.pools.sum(axis=1).mean() <= config.mean_pool


# ---- what learning adds to watching, and when a vote answers


UPDATE_PERIOD = TINY.update_period
GOOD, BAD = [0.9, 0.85, 0.3, 0.35], [0.3, 0.35, 0.9, 0.85]


def test_online_rl_focal_learns_and_does_not_only_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Past rewards and the window alone change what it sees; its updates change what it does with that."""
    config = replace(TINY, window=20, learning_rate=0.02)
    [agents] = train(skilled(GOOD, n_docs=200).train, config, [0])
    rows = skilled(BAD, n_docs=200, seed=1)  # who was good on train is bad
    rows = replace(rows, is_train=np.zeros(len(rows), dtype=np.bool_))
    learned = agents.decide_online(rows)
    monkeypatch.setattr(
        "rlfocal.methods.rl_focal.online.OnlineJointLearner.learn", lambda self, rollout: None
    )
    watched = agents.decide_online(rows)
    np.testing.assert_array_equal(watched.pools[:UPDATE_PERIOD], learned.pools[:UPDATE_PERIOD])
    differs = (watched.pools != learned.pools).any(axis=1) | (watched.predictions != learned.predictions)
    assert differs[UPDATE_PERIOD:].any()


def test_the_vote_answers_once_it_is_clearly_ahead_and_not_by_a_lucky_label() -> None:
    tracker = Tracker(np.full(3, 0.5), expected_accuracy=0.5, size=2, seed=0)
    ahead, behind = (False, True), (True, False)
    asked, nobody = np.ones(3, dtype=np.bool_), np.zeros(3, dtype=np.bool_)

    def leads_after(*compared: tuple[bool, bool]) -> bool:
        for both in compared:
            tracker.learn(asked, nobody, is_answer_right=False, comparison=both)
        return tracker.leads

    assert not leads_after(ahead)
    assert not leads_after(behind, ahead, ahead)
    assert not leads_after((True, True), (False, False))  # both right, both wrong: nothing is learned
    assert leads_after(*[ahead] * 6)
    assert not leads_after(*[behind] * 4)
