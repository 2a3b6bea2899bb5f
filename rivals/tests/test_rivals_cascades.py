"""Tests of FrugalGPT, self-consistency, DyLAN and More Agents: cases by hand, and data where they must
win."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from support.datasets import make_answers, make_dataset, make_logits, sampled
from support.rival_data import CHOICES, accuracy, fitted, telling, within

from rlfocal.data.policy import Budget, decide
from rlfocal.methods.cascade import CascadeTable, best_chain, run, top_probability_of
from rlfocal_rivals.cascades import Dylan, MoreAgents, entropy_of, importance, margin_of


def test_confidence_measures_by_hand() -> None:
    probs = np.array([[[0.5, 0.25, 0.25]], [[0.0, 1.0, 0.0]]])
    data = replace(CHOICES, probs=probs, predictions=np.array([[0], [-1]]))
    assert top_probability_of(data, 0).tolist() == [0.5, 0.0]
    assert margin_of(data, 0).tolist() == [0.25, 1.0]
    assert entropy_of(data, 0) == pytest.approx([1.5 * math.log(2), 0.0])


def test_frugalgpt_moves_thresholds_on_from_a_coarse_grid() -> None:
    scores = np.column_stack([np.linspace(0.3, 0.7, 100), np.full(100, 0.5)])
    right = np.column_stack([np.arange(100) >= 37, np.arange(100) < 37])
    table = CascadeTable(scores, right, np.ones(2))
    coarse, fine = (best_chain(table, np.ones(2), math.inf, 2, polish) for polish in (False, True))
    assert coarse is not None
    assert fine is not None
    assert run(coarse, table, np.ones(2)).n_right < 98 <= run(fine, table, np.ones(2)).n_right
    assert [fitted(name, telling().train).polish for name in ("cascade", "frugalgpt")] == [False, True]  # type: ignore[attr-defined]


def test_self_consistency_stops_when_passes_agree() -> None:
    """Model m00 is right where its passes agree, and m01 where they do not."""
    agreed, split = ("aaaa", "bbbb"), ("bbac", "aaaa")
    data = sampled(*[agreed, split] * 20, gold=["a", "a"] * 20)
    decided = decide(fitted("self_consistency_cascade", data.train), data.test)
    assert accuracy(data.test, decided) == 1.0
    assert decided.pools.tolist() == [[True, False], [True, True]] * 10
    assert decided.probability is not None
    assert (decided.probability > 0.85).all()
    one = within(fitted("self_consistency_cascade", data.train), Budget(1))
    assert one is not None
    assert decide(one, data.test).pools.sum(axis=1).tolist() == [1] * 20


def test_dylans_importance_by_hand() -> None:
    data = make_answers(("aab", "z"), ("abc", "z"), ("bbb", "z"), ("---", "z"), ("-bc", "z"))
    # Row 2 is a tie, which the first model's answer wins; in row 4 nobody says anything.
    assert importance(data) == pytest.approx([1 / 2 + 1 + 1 / 3, 1 / 2 + 1 / 3 + 1, 1 / 3])


def test_dylan_stops_once_more_than_two_thirds_agree() -> None:
    said = ["aaaa", "aaba", "abaa", "aabb", "abcd", "---d", "bbbc"]
    data = make_answers(*[(one, "a") for one in said * 2])
    [policy] = Dylan(4, order="importance").fit(data.train, [0])
    policy = replace(policy, ranking=np.arange(4))
    decided = decide(policy, data.test)
    # ⌊2·4/3⌋ = 2: from three replies on, three must be the same.
    assert decided.pools.sum(axis=1).tolist() == [3, 4, 4, 4, 4, 4, 3]
    texts = [row[slot] for row, slot in zip(data.test.slots, decided.predictions, strict=True)]
    assert texts == ["a", "a", "a", "a", "a", "d", "b"]
    assert decided.rounds is not None
    assert decided.rounds.max(axis=1).tolist() == [3, 4, 4, 4, 4, 4, 3]
    [two] = Dylan(2, order="importance").fit(data.train, [0])  # ⌊4/3⌋ = 1: both are asked
    assert decide(two, data.test).pools.sum(axis=1).tolist() == [2] * 7
    three = replace(policy, size=3)  # ⌊6/3⌋ = 2: all three have to agree, and all are asked
    assert decide(three, data.test).pools.sum(axis=1).tolist() == [3] * 7


def test_dylan_asks_its_team_in_an_order_of_chance() -> None:
    data = make_logits(5, T=400, N=6)
    policies = Dylan(3).fit(data.train, [0, 1])
    first, again, other = (decide(p, data.test) for p in (policies[0], policies[0], policies[1]))
    team = np.flatnonzero(first.pools.any(axis=0))
    assert team.tolist() == np.sort(np.argsort(-importance(data.train))[:3]).tolist()
    assert first.rounds is not None
    assert again.rounds is not None
    assert other.rounds is not None
    assert (first.rounds == again.rounds).all()
    assert (first.rounds != other.rounds).any()
    asked_first = (first.rounds[:, team] == 1).mean(axis=0)
    assert asked_first == pytest.approx([1 / 3] * 3, abs=0.1)


def test_more_agents_vote_as_often_as_drawn() -> None:
    probs = np.tile(np.array([[[0.7, 0.3]], [[0.0, 1.0]]]), (500, 1, 1)) + 1e-300
    data = make_dataset(probs, np.tile([0, 1], 500), n_train=500)
    [three] = MoreAgents(3).fit(data.train, [0])
    decided = decide(three, data.test)
    first = decided.predictions[::2]
    # Two or three of three draws: 0.7³ + 3 · 0.7² · 0.3
    assert (first == 0).mean() == pytest.approx(0.784, abs=0.06)
    assert (decided.predictions[1::2] == 1).all()
    assert decided.probability is not None
    assert set(decided.probability.round(6)) == {0.666667, 1.0}
    [many] = MoreAgents(1001).fit(data.train, [0])
    assert (decide(many, data.test).predictions[::2] == 0).all()
    [other] = MoreAgents(3).fit(data.train, [1])
    assert (decide(other, data.test).predictions != decided.predictions).any()


def test_more_agents_draw_no_answer_from_passes_without_one() -> None:
    data = sampled(*[("--a-", "bbbb")] * 2, gold=["a"] * 2)
    [policy] = MoreAgents(40).fit(data.train, [0])
    decided = decide(policy, data.test)
    assert [data.test.slots[0][slot] for slot in decided.predictions] == ["a"]
    assert decided.probability is not None
    assert 0 < decided.probability[0] < 0.5
