"""Online: what learning adds to watching, and when a vote answers instead of the agents."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.agents_data import TINY, skilled

from rlfocal.methods.learning.agents import Tracker
from rlfocal.methods.rl_focal.training import train

UPDATE_PERIOD = TINY.update_period
GOOD, BAD = [0.9, 0.85, 0.3, 0.35], [0.3, 0.35, 0.9, 0.85]


def test_online_rl_focal_learns_and_does_not_only_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Past rewards and the window alone change what it sees; its updates change what it does with that."""
    config = replace(TINY, window=20, learning_rate=0.02)
    [agents] = train(skilled(GOOD, n_docs=200).train, config, [0])
    rows = skilled(BAD, n_docs=200, seed=1)  # who was good on train is bad
    rows = replace(rows, is_train=np.zeros(len(rows), dtype=np.bool_))
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
