"""Tests of routers that learn from questions: Elo computed by hand, and data whose questions tell who is
right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import exp, log
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.topics import TOPICS as WORDS
from support.topics import NumberEncoder, answered, by_topic, policy_of
from support.topics import accuracy as accuracy_of

from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import Budget, decide
from rlfocal_rivals import question, routellm, towers
from rlfocal_rivals.eagle import Eagle, EagleRouter, Games, draw_games, mean_ratings, rounds

Floats = NDArray[np.float64]


def rated(start: Sequence[float], games: Games, documents: Sequence[int], step: float = 32.0) -> Floats:
    """(N,) Elo ratings by the textbook formula, game by game: the mean over all rounds of all documents."""
    ratings, after = list(start), []
    for document in documents:
        seats, right = games.seats[document].tolist(), games.right[document].astype(float).tolist()
        for met in rounds(len(start)):
            for one, other in zip(*(part.tolist() for part in met), strict=True):
                a, b = seats[one], seats[other]
                expected = 1 / (1 + 10 ** ((ratings[b] - ratings[a]) / 400))
                score = 0.5 + (right[a] - right[b]) / 2
                ratings[a] += step * (score - expected)
                ratings[b] += step * ((1 - score) - (1 - expected))
            after.append(list(ratings))
    return np.array(after).mean(axis=0) if after else np.array(start)


@given(st.integers(1, 5), st.integers(0, 12), st.integers(0, 5))
def test_ratings_are_means_over_the_games(n_models: int, n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    games = draw_games(rng.random((20, n_models)) < 0.5, rng)
    start = rng.normal(1500, 100, (3, n_models))
    at = np.stack([rng.permutation(20)[:n] for _ in range(3)])
    found = mean_ratings(start, games, at, 32.0)
    for row, documents in enumerate(at.tolist()):
        assert found[row] == pytest.approx(rated(start[row].tolist(), games, documents))
        assert found[row].sum() == pytest.approx(start[row].sum())


@pytest.mark.parametrize("n", [1, 2, 5, 16])
def test_each_pair_meets_once_and_nobody_twice_in_a_round(n: int) -> None:
    met = [list(zip(one.tolist(), other.tolist(), strict=True)) for one, other in rounds(n)]
    assert all(len({seat for pair in pairs for seat in pair}) == 2 * len(pairs) for pairs in met)
    pairs = [frozenset(pair) for pairs in met for pair in pairs]
    assert len(pairs) == len(set(pairs)) == n * (n - 1) // 2


def test_documents_and_seats_are_drawn() -> None:
    right = np.random.default_rng(0).random((3000, 4)) < 0.5
    games = draw_games(right, np.random.default_rng(1))
    np.testing.assert_array_equal(games.right, right)
    assert (np.sort(games.seats, axis=1) == np.arange(4)).all()
    assert (games.seats == 0).mean(axis=0) == pytest.approx(0.25, abs=0.03)
    assert sorted(games.place.tolist()) == list(range(3000))
    assert np.corrcoef(games.place, np.arange(3000))[0, 1] < 0.1
    again = draw_games(right, np.random.default_rng(1))
    np.testing.assert_array_equal(games.place, again.place)


def test_irt_learns_no_skill_from_shuffled_labels() -> None:
    """With shuffled labels, estimated probabilities must not differ between topics."""
    data = by_topic(0, T=1200)
    train, order = data.train, np.random.default_rng(0).permutation(600)
    shuffled = replace(train, predictions=train.predictions[order], labels=train.labels[order])
    told, untold = policy_of("irt", train), policy_of("irt", shuffled)
    scores, made_up = (policy.scorer.scores(data.test.questions) for policy in (told, untold))
    topic = data.test.correct[:, 0]
    spread = [np.abs(s[topic].mean(axis=0) - s[~topic].mean(axis=0)).max() for s in (scores, made_up)]
    assert spread[0] > 0.9
    assert spread[1] < 0.15
    best = accuracy_of(policy_of("best_single", train), data.test)
    assert accuracy_of(told, data.test) > 0.98
    assert accuracy_of(untold, data.test) <= best + 2 * np.sqrt(0.25 / 600)


def by_degree(seed: int, T: int = 3000) -> Dataset:
    """Documents on which m00 is likelier right, and m01 less, the more words of the first topic they have."""
    rng = np.random.default_rng(seed)
    share = rng.random(T)
    questions = [" ".join(rng.choice(WORDS[int(rng.random() > s)]) for _ in range(12)) for s in share]
    chances = np.column_stack([0.95 * share, 0.9 * (1 - share), np.full(T, 0.3), np.full(T, 0.1)])
    return answered(rng.random((T, 4)) < chances, questions, n_train=T // 2)


@pytest.mark.parametrize("name", [pytest.param("mf", marks=pytest.mark.slow), "irt"])
def test_chances_are_what_they_say(name: str) -> None:
    data = by_degree(6)
    faster: dict[str, Any] = {"rate": 1e-3} if name == "mf" else {}  # these documents are few
    chances = policy_of(name, data.train, **faster).scorer.scores(data.test.questions)
    right = data.test.correct
    assert chances.mean(axis=0) == pytest.approx(right.mean(axis=0), abs=0.06)
    for model in range(2):
        order = np.argsort(chances[:, model])
        for fifth in np.split(order, 5):
            assert chances[fifth, model].mean() == pytest.approx(right[fifth, model].mean(), abs=0.1)
        assert chances[order[-300:], model].mean() - chances[order[:300], model].mean() > 0.5


def test_eagle_is_the_brute_force() -> None:
    data = by_topic(2, T=120)
    [policy] = Eagle(neighbours=7, global_share=0.3).fit(data.train, [5])
    games, train = policy.games, data.train
    overall = rated([1500.0] * 4, games, np.argsort(games.place).tolist())
    assert policy.overall == pytest.approx(overall)
    vectors = policy.encoder.encode(train.questions)
    for asked in data.test.questions[:10]:
        [vector] = policy.encoder.encode([asked])
        near = np.argsort(-(vectors @ vector).round(9), kind="stable")[:7]
        local = rated(overall.tolist(), games, sorted(near.tolist(), key=lambda row: games.place[row]))
        [found] = policy.scores((asked,))
        assert found == pytest.approx(0.3 * overall + 0.7 * local)


def test_a_question_without_a_known_word_has_the_global_ratings() -> None:
    games = Games(np.eye(2, dtype=np.bool_), np.array([[0, 1], [1, 0]]), np.array([0, 1]))
    overall = np.array([1400.0, 1600.0])
    router = EagleRouter(Eagle(), NumberEncoder(), np.eye(2), games, overall, np.array([2.0, 1.0]))
    assert router.scores(("0 0",))[0] == pytest.approx(overall)


def test_eagle_asks_the_best_that_one_call_may_cost() -> None:
    data = by_topic(9, prices=[9.0, 5.0, 3.0, 1.0])
    policy = policy_of("eagle", data.train)
    for amount, priciest in [(9.0, 0), (8.9, 1), (5.0, 1), (4.9, 2), (1.0, 3)]:
        asked = decide(policy.hold_to_budget(Budget(amount, "cents")), data.test).pools
        assert not asked[:, :priciest].any()
        assert asked[:, priciest].any()
    assert policy.hold_to_budget(Budget(0.9, "cents")) is None


# Scores and losses by hand: given parameters, the equations of their papers


Loss = Callable[[torch.Tensor], torch.Tensor]
# "3 1" is the vector (3, 1), which W and u or a0 below turn into (4, 2).
QUESTIONS = ("3 1", "3 1", "0 0", "0 0")
RIGHT = np.array([[True, False], [True, False], [False, True], [True, True]])
W = [[1.0, 0.0], [0.0, 2.0]]
u = [1.0, 0.0]


def fitted(
    name: str, parameters: Sequence[Any], monkeypatch: pytest.MonkeyPatch, **settings: Any
) -> tuple[Any, Loss, int]:
    """A router with the given parameters in place of learned ones, its loss, and its number of documents."""
    seen: list[tuple[Loss, int]] = []

    def given(_: object, own: Sequence[torch.Tensor], loss: Loss, n: int, *__: object, **___: object) -> None:
        with torch.no_grad():
            for tensor, values in zip(own, parameters, strict=True):
                assert tensor.shape == torch.tensor(values).shape
                tensor.copy_(torch.tensor(values))
        seen.append((loss, n))

    for learns, encodes in ((towers, question), (routellm, routellm)):
        monkeypatch.setattr(learns, "descend", given)
        monkeypatch.setattr(encodes, "fit_encoder", lambda *_: NumberEncoder())
    policy = policy_of(name, answered(RIGHT, QUESTIONS, n_train=4, prices=[2.0, 1.0]).train, **settings)
    return (policy, *seen[0])


def sigmoid(x: float) -> float:
    return 1 / (1 + exp(-x))


def test_mf(monkeypatch: pytest.MonkeyPatch) -> None:
    v, w, b = [[1.0, 2.0], [0.0, -1.0]], [[0.5, 1.0], [1.0, 0.0]], [0.5, 0.75]
    policy, loss, n = fitted("mf", [v, W, u, w, b], monkeypatch, dimensions=2, noise=0.0)
    # Model 0: 0.5 · 1 · 4 - 1 · 2 · 2 + 0.25; model 1: 0.5 · 0 · 4 + 1 · 1 · 2 + 0.25.
    assert policy.scorer.scores(("3 1",))[0] == pytest.approx([sigmoid(-1.75), sigmoid(2.25)])
    # Of nothing, (1, 0) is left: 0.5 · 1 + 0.25 and 0.25.
    assert policy.scorer.scores(("0 0",))[0] == pytest.approx([sigmoid(0.75), sigmoid(0.25)])
    assert n == 4
    entropy = [-log(sigmoid(-1.75)), -log(1 - sigmoid(2.25))]
    assert float(loss(torch.tensor([0])).detach()) == pytest.approx(sum(entropy) / 2, rel=1e-5)
    entropy += [-log(1 - sigmoid(0.75)), -log(sigmoid(0.25))]
    assert float(loss(torch.tensor([0, 2])).detach()) == pytest.approx(sum(entropy) / 4, rel=1e-5)


def test_irt(monkeypatch: pytest.MonkeyPatch) -> None:
    theta, beta, b0 = [[1.0, -1.0], [0.5, 1.0]], [1.0, -2.0], [0.5]
    policy, loss, n = fitted("irt", [W, u, theta, beta, b0], monkeypatch, skills=2)
    # a = (4, 2), b = 3 - 2 + 0.5: 4 - 2 - 1.5 and 2 + 2 - 1.5. Of nothing, a = (1, 0), b = 0.5.
    assert policy.scorer.scores(("3 1",))[0] == pytest.approx([sigmoid(0.5), sigmoid(2.5)])
    assert policy.scorer.scores(("0 0",))[0] == pytest.approx([sigmoid(0.5), sigmoid(0.0)])
    assert n == 4
    entropy = [-log(sigmoid(0.5)), -log(1 - sigmoid(2.5))]
    assert float(loss(torch.tensor([1])).detach()) == pytest.approx(sum(entropy) / 2, rel=1e-5)


def test_routellm_mf(monkeypatch: pytest.MonkeyPatch) -> None:
    v, w = [[3.0, 4.0], [0.0, -2.0]], [0.5, -1.0]
    policy, loss, n = fitted("routellm_mf", [v, [*W, u], w], monkeypatch, dimensions=2, noise=0.0)
    assert policy.pair == (0, 1)
    # v / |v| are (0.6, 0.8) and (0, -1): δ are 0.5 · 0.6 · 4 - 0.8 · 2 and 2; of nothing 0.3 and 0.
    assert policy.estimator.values(("3 1", "0 0")) == pytest.approx([sigmoid(-0.4 - 2.0), sigmoid(0.3)])
    # The last document is no battle: both are right.
    assert n == 3
    assert float(loss(torch.tensor([0])).detach()) == pytest.approx(-log(sigmoid(-2.4)), rel=1e-5)
    assert float(loss(torch.tensor([2])).detach()) == pytest.approx(-log(sigmoid(-0.3)), rel=1e-5)
