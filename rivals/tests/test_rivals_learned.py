"""Routers that learn from questions: EAGLE by hand, and streams whose questions tell who knows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.topics import TOPICS as WORDS
from support.topics import Words, answered, by_topic, policy_of
from support.topics import accuracy as accuracy_of
from support.worded_data import accuracy, knowers, topical

from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import Budget, decide
from rlfocal_rivals.eagle import Eagle, EagleRouter, Games, draw_games, mean_ratings
from rlfocal_rivals.towers import Towers

Floats = NDArray[np.float64]


def rated(start: Sequence[float], games: Sequence[tuple[int, int, float]], step: float = 32.0) -> Floats:
    """Elo by the textbook, a game at a time; the mean over the games."""
    ratings, after = list(start), []
    for one, other, score in games:
        expected = 1 / (1 + 10 ** ((ratings[other] - ratings[one]) / 400))
        ratings[one] += step * (score - expected)
        ratings[other] += step * ((1 - score) - (1 - expected))
        after.append(list(ratings))
    return np.array(after).mean(axis=0) if after else np.array(start)


def test_ratings_follow_elos_update() -> None:
    games = Games(np.array([[0, 0]]), np.array([[1, 1]]), np.array([[1.0, 0.5]]), np.array([[0, 1]]))
    # Both right is a draw, which costs the one that was expected to win.
    expected = 1 / (1 + 10 ** ((1484 - 1516) / 400))
    second = 1516 + 32 * (0.5 - expected)
    [found] = mean_ratings(np.full((1, 2), 1500.0), games, 32.0)
    assert found == pytest.approx([(1516 + second) / 2, 3000 - (1516 + second) / 2])


@given(st.integers(1, 5), st.integers(0, 12), st.integers(0, 5))
def test_ratings_are_means_over_the_games(n_models: int, n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    streams = [draw_games(rng.random((n, n_models)) < 0.5, rng) for _ in range(3)]
    start = rng.normal(1500, 100, (3, n_models))
    together = Games(*(np.stack(column) for column in zip(*streams, strict=True)))
    found = mean_ratings(start, together, 32.0)
    for row, games in enumerate(streams):
        told = list(zip(games.one.tolist(), games.other.tolist(), games.score.tolist(), strict=True))
        if n_models > 1:
            assert found[row] == pytest.approx(rated(start[row].tolist(), told))
        assert found[row].sum() == pytest.approx(start[row].sum())


def test_one_comparison_a_document_in_random_order() -> None:
    right = np.random.default_rng(0).random((3000, 4)) < 0.5
    games = draw_games(right, np.random.default_rng(1))
    assert (games.one != games.other).all()
    pairs = np.bincount(games.one * 4 + games.other, minlength=16).reshape(4, 4)
    assert pairs[~np.eye(4, dtype=np.bool_)].min() > 200
    score = {(True, False): 1.0, (False, True): 0.0, (True, True): 0.5, (False, False): 0.5}
    for row, (one, other) in enumerate(zip(games.one[:50], games.other[:50], strict=True)):
        assert games.score[row] == score[bool(right[row, one]), bool(right[row, other])]
    assert sorted(games.place.tolist()) == list(range(3000))
    assert np.corrcoef(games.place, np.arange(3000))[0, 1] < 0.1
    again = draw_games(right, np.random.default_rng(1))
    np.testing.assert_array_equal(games.place, again.place)


def test_it_asks_the_model_that_was_right_on_similar_questions() -> None:
    data = topical()
    assert accuracy("eagle", data, neighbours=60) > knowers(data) - 0.05
    assert accuracy("eagle", data, global_share=1.0) < knowers(data) - 0.1


@pytest.mark.parametrize(
    ("name", "n_models"),
    [
        pytest.param("mf", 3, marks=pytest.mark.slow),
        ("irt", 3),
        pytest.param("routellm_mf", 2, marks=pytest.mark.slow),
    ],
)
def test_learned_routers_ask_the_model_that_knows_the_topic(name: str, n_models: int) -> None:
    data = topical(n_models=n_models)
    assert accuracy(name, data) > knowers(data) - 0.05


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_irt_learns_no_skill_from_shuffled_labels(seed: int) -> None:
    """The control that one public IRT router failed: chances that differ between topics would be made up."""
    data = by_topic(seed, T=1200)
    train, order = data.train, np.random.default_rng(seed).permutation(600)
    shuffled = replace(train, predictions=train.predictions[order], labels=train.labels[order])
    told, untold = policy_of("irt", train, seed), policy_of("irt", shuffled, seed)
    scores, made_up = (policy.scorer.scores(data.test.questions) for policy in (told, untold))
    topic = data.test.correct[:, 0]
    spread = [np.abs(s[topic].mean(axis=0) - s[~topic].mean(axis=0)).max() for s in (scores, made_up)]
    assert spread[0] > 0.9
    assert spread[1] < 0.15
    best = accuracy_of(policy_of("best_single", train), data.test)
    assert accuracy_of(told, data.test) > 0.98
    assert accuracy_of(untold, data.test) <= best + 2 * np.sqrt(0.25 / 600)


def by_degree(seed: int, T: int = 3000, prices: Sequence[float] = ()) -> Dataset:
    """The more words of the first topic, the likelier m00 is right, and the less m01; others are poor."""
    rng = np.random.default_rng(seed)
    share = rng.random(T)
    questions = [" ".join(rng.choice(WORDS[int(rng.random() > s)]) for _ in range(12)) for s in share]
    chances = np.column_stack([0.95 * share, 0.9 * (1 - share), np.full(T, 0.3), np.full(T, 0.1)])
    return answered(rng.random((T, 4)) < chances, questions, n_train=T // 2, prices=prices)


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


@pytest.mark.slow
def test_factorised_battles_favour_the_likelier_right_model() -> None:
    data = by_degree(6, prices=[9.0, 1.0, 5.0, 5.0])
    policy = policy_of("routellm_mf", data.train)
    assert policy.pair == (0, 1)
    chances = policy.worth.values(data.test.questions)
    battles = data.test.correct[:, 0] != data.test.correct[:, 1]
    won = data.test.correct[battles, 0]
    fifths = np.array_split(np.argsort(chances[battles]), 5)
    assert won[fifths[0]].mean() < 0.1
    assert won[fifths[-1]].mean() > 0.9
    assert chances[battles][fifths[0]].mean() < 0.45 < 0.55 < chances[battles][fifths[-1]].mean()
    assert np.linalg.norm(policy.worth.battles.towers.models, axis=1) == pytest.approx([1.0, 1.0])


@pytest.mark.slow
def test_a_factorisation_of_many_models() -> None:
    data = by_topic(5, prices=[9.0, 5.0, 3.0, 1.0])
    policy = policy_of("routellm_mf", data.train, n_models=4)
    assert accuracy_of(policy, data.test) >= 0.98
    assert decide(policy.within(Budget(1.0, "cents")), data.test).pools[:, 3].mean() > 0.95
    two = decide(policy_of("routellm_mf", data.train), data.test).pools
    assert not two[:, [1, 2]].any()


@pytest.mark.parametrize("name", [pytest.param("mf", marks=pytest.mark.slow), "irt"])
def test_budgets_in_cents_are_kept(name: str) -> None:
    data = by_degree(3, prices=[9.0, 5.0, 3.0, 1.0])
    policy = policy_of(name, data.train)
    found = []
    for amount in (1.0, 4.0, 9.0):
        decided = decide(policy.within(Budget(amount, "cents")), data.test)
        assert (decided.pools * data.prices).sum(axis=1).mean() <= amount * 1.1
        found.append((decided.predictions == data.test.labels).mean())
    assert found[0] + 0.1 < found[1] < found[2] - 0.05
    assert policy.within(Budget(0.9, "cents")) is None


def test_towers_by_hand() -> None:
    towers = Towers(
        project=np.array([[1.0, 0.0], [2.0, -1.0]]),
        offset=np.array([0.5, 0.0]),
        models=np.array([[1.0, 1.0], [0.0, 2.0]]),
        level=np.array([0.1, 0.0]),
        base=-1.0,
    )
    # "3 1": (3 + 2 + 0.5, -1), which is 4.5 and -2 with the models, and 0.3 - 1 for all.
    assert towers.log_odds(np.array([[3.0, 1.0]]))[0] == pytest.approx([3.8, -2.7])


def test_eagle_is_the_brute_force() -> None:
    data = by_topic(2, T=120)
    [policy] = Eagle(neighbours=7, global_share=0.3).fit(data.train, [5])
    games, train = policy.games, data.train
    order = np.argsort(games.place)

    def played(rows: Sequence[int]) -> list[tuple[int, int, float]]:
        return [(int(games.one[row]), int(games.other[row]), float(games.score[row])) for row in rows]

    overall = rated([1500.0] * 4, played(order.tolist()))
    assert policy.overall == pytest.approx(overall)
    vectors = policy.encoder.encode(train.questions)
    for question in data.test.questions[:10]:
        [vector] = policy.encoder.encode([question])
        near = np.argsort(-(vectors @ vector).round(9), kind="stable")[:7]
        local = rated(overall.tolist(), played(sorted(near.tolist(), key=lambda row: games.place[row])))
        [found] = policy.scores((question,))
        assert found == pytest.approx(0.3 * overall + 0.7 * local)


def test_a_question_without_a_known_word_has_the_global_ratings() -> None:
    games = Games(np.array([0, 1]), np.array([1, 0]), np.array([1.0, 1.0]), np.array([0, 1]))
    overall = np.array([1400.0, 1600.0])
    router = EagleRouter(Eagle(), Words(), np.eye(2), games, overall, np.array([2.0, 1.0]))
    assert router.scores(("0 0",))[0] == pytest.approx(overall)


def test_eagle_asks_the_best_that_one_call_may_cost() -> None:
    data = by_topic(9, prices=[9.0, 5.0, 3.0, 1.0])
    policy = policy_of("eagle", data.train)
    for amount, priciest in [(9.0, 0), (8.9, 1), (5.0, 1), (4.9, 2), (1.0, 3)]:
        asked = decide(policy.within(Budget(amount, "cents")), data.test).pools
        assert not asked[:, :priciest].any()
        assert asked[:, priciest].any()
    assert policy.within(Budget(0.9, "cents")) is None
    assert policy.within(Budget(0.5)) is None
    unpriced = replace(data, prices=np.array([9.0, 5.0, np.nan, 1.0]))
    assert policy_of("eagle", unpriced.train).within(Budget(4.0, "cents")) is None
