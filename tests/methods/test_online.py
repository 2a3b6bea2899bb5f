"""Online: each answer comes before its label, which shows in later ones, and the agents stay as they were."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from support.agents_data import TINY, skilled
from support.sequential_data import SMALL

from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import decide
from rlfocal.methods import RLFocal
from rlfocal.methods.learning.agents import TrainedAgents
from rlfocal.methods.learning.tracking import Tracker

UPDATE_PERIOD = TINY.update_period
GOOD, BAD = [0.9, 0.85, 0.3, 0.35], [0.3, 0.35, 0.9, 0.85]
METHODS = ["rl_focal", "rl_focal_sequential"]


@cache
def trained(method: str) -> TrainedAgents:
    config = {"rl_focal": replace(TINY, window=20, learning_rate=0.02), "rl_focal_sequential": SMALL}[method]
    [agents] = RLFocal(method, config).fit(skilled(GOOD, n_docs=200).train, [0])
    return agents


@cache
def turned() -> Dataset:
    """Test documents on which the models that were good on train are bad."""
    rows = skilled(BAD, n_docs=200, seed=1)
    return replace(rows, is_train=np.zeros(len(rows), dtype=np.bool_))


def with_other_labels(rows: Dataset, changed: slice) -> Dataset:
    labels = rows.labels.copy()
    labels[changed] = (labels[changed] + 1) % 4
    return replace(rows, labels=labels)


@pytest.mark.parametrize("method", METHODS)
def test_labels_change_later_answers_and_not_the_agents(method: str) -> None:
    agents, rows = trained(method), turned()
    frozen = decide(agents, rows)
    decided = agents.decide_online(rows)
    other = agents.decide_online(with_other_labels(rows, slice(None, 100)))
    differs = (other.pools != decided.pools).any(axis=1) | (other.predictions != decided.predictions)
    assert differs[100:].any()
    again = decide(agents, rows)
    np.testing.assert_array_equal(again.predictions, frozen.predictions)
    np.testing.assert_array_equal(again.pools, frozen.pools)


def test_online_rl_focal_learns_and_does_not_only_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Past rewards and the window alone change what it sees; its updates change what it does with that."""
    agents, rows = trained("rl_focal"), turned()
    learned = agents.decide_online(rows)
    monkeypatch.setattr("rlfocal.methods.rl_focal.online.OnlineLearner.learn", lambda self, rollout: None)
    watched = agents.decide_online(rows)
    np.testing.assert_array_equal(watched.pools[:UPDATE_PERIOD], learned.pools[:UPDATE_PERIOD])
    differs = (watched.pools != learned.pools).any(axis=1) | (watched.predictions != learned.predictions)
    assert differs[UPDATE_PERIOD:].any()


def test_the_vote_answers_once_it_is_clearly_ahead_and_not_by_a_lucky_label() -> None:
    tracker = Tracker(np.full(3, 0.5), expected=0.5, size=2, seed=0)
    ahead, behind = (False, True), (True, False)
    asked, nobody = np.ones(3, dtype=np.bool_), np.zeros(3, dtype=np.bool_)

    def leads_after(*compared: tuple[bool, bool]) -> bool:
        for both in compared:
            tracker.learn(asked, nobody, answered_right=False, compared=both)
        return tracker.leads

    assert not leads_after(ahead)
    assert not leads_after(behind, ahead, ahead)
    assert not leads_after((True, True), (False, False))  # both right, both wrong: nothing is learned
    assert leads_after(*[ahead] * 6)
    assert not leads_after(*[behind] * 4)
