"""Routers that learn from questions: EAGLE by hand, and streams whose questions tell who knows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from test_rivals_routers import TOPICS as WORDS
from test_rivals_routers import Words, answered, by_topic, policy_of
from test_rivals_routers import accuracy as accuracy_of
from worded_data import accuracy, knowers, topical

from rlfocal.dataset import Dataset
from rlfocal.errors import InputError
from rlfocal.methods.routers._towers import Towers
from rlfocal.methods.routers.eagle import Eagle, EagleRouter, elo
from rlfocal.policy import Budget, decide


def test_ratings_move_as_elo_says() -> None:
    first = elo([1500.0, 1500.0], [[1.0, 0.0]], 32.0)
    assert first == [1516.0, 1484.0]
    # Both right is a draw, which costs the one that was expected to win.
    expected = 1 / (1 + 10 ** ((1484 - 1516) / 400))
    second = elo([1500.0, 1500.0], [[1.0, 0.0], [1.0, 1.0]], 32.0)
    assert second == pytest.approx([1516 + 32 * (0.5 - expected), 1484 - 32 * (0.5 - expected)])


def test_three_models_play_every_two_in_turn() -> None:
    a, b, c = 1500.0, 1500.0, 1500.0
    for one, two, score in (("a", "b", 1.0), ("a", "c", 1.0), ("b", "c", 0.5)):
        now = {"a": a, "b": b, "c": c}
        moved = 32 * (score - 1 / (1 + 10 ** ((now[two] - now[one]) / 400)))
        now[one], now[two] = now[one] + moved, now[two] - moved
        a, b, c = now["a"], now["b"], now["c"]
    assert elo([1500.0] * 3, [[1.0, 0.0, 0.0]], 32.0) == pytest.approx([a, b, c])
    assert a > b
    assert sum((a, b, c)) == pytest.approx(4500)


def test_it_asks_whom_similar_questions_speak_for() -> None:
    data = topical()
    assert accuracy("eagle", data) > knowers(data) - 0.05
    assert accuracy("eagle", data, global_share=1.0) < knowers(data) - 0.1


@pytest.mark.parametrize(("name", "n_models"), [("mf", 3), ("irt", 3), ("routellm_mf", 2)])
def test_learned_routers_ask_who_knows_the_topic(name: str, n_models: int) -> None:
    data = topical(n_models=n_models)
    assert accuracy(name, data) > knowers(data) - 0.05


@pytest.mark.parametrize("seed", range(4))
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


@pytest.mark.parametrize("name", ["mf", "irt", "routellm_mf", "eagle"])
def test_learned_routers_learn_nothing_from_shuffled_labels(name: str) -> None:
    excess = []
    for seed in range(3):
        data = by_topic(seed)
        labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(2), len(data.train) // 2))
        policy = policy_of(name, replace(data.train, labels=labels), seed)
        excess.append(accuracy_of(policy, data.test) - data.test.correct.mean(axis=0).max())
    assert np.mean(excess) <= 2 * np.sqrt(0.25 / (3 * 300))


def by_degree(seed: int, T: int = 3000, prices: Sequence[float] = ()) -> Dataset:
    """The more words of the first topic, the likelier m00 is right, and the less m01; others are poor."""
    rng = np.random.default_rng(seed)
    share = rng.random(T)
    questions = [" ".join(rng.choice(WORDS[int(rng.random() > s)]) for _ in range(12)) for s in share]
    chances = np.column_stack([0.95 * share, 0.9 * (1 - share), np.full(T, 0.3), np.full(T, 0.1)])
    return answered(rng.random((T, 4)) < chances, questions, n_train=T // 2, prices=prices)


@pytest.mark.parametrize("name", ["mf", "irt"])
def test_chances_are_what_they_say(name: str) -> None:
    data = by_degree(6)
    chances = policy_of(name, data.train).scorer.scores(data.test.questions)
    right = data.test.correct
    assert chances.mean(axis=0) == pytest.approx(right.mean(axis=0), abs=0.06)
    for model in range(2):
        order = np.argsort(chances[:, model])
        for fifth in np.split(order, 5):
            assert chances[fifth, model].mean() == pytest.approx(right[fifth, model].mean(), abs=0.1)
        assert chances[order[-300:], model].mean() - chances[order[:300], model].mean() > 0.5


def test_factorised_battles_are_won_by_who_is_likelier_right() -> None:
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
    assert np.linalg.norm(policy.worth.towers.models, axis=1) == pytest.approx([1.0, 1.0])


def test_a_factorisation_of_many_models() -> None:
    data = by_topic(5, prices=[9.0, 5.0, 3.0, 1.0])
    policy = policy_of("routellm_mf", data.train, n_models=4)
    assert accuracy_of(policy, data.test) >= 0.98
    assert decide(policy.within(Budget(1.0, "cents")), data.test).pools[:, 3].mean() > 0.95
    two = decide(policy_of("routellm_mf", data.train), data.test).pools
    assert not two[:, [1, 2]].any()


@pytest.mark.parametrize("name", ["mf", "irt"])
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
        Words(),
        project=np.array([[1.0, 0.0], [2.0, -1.0]]),
        offset=np.array([0.5, 0.0]),
        models=np.array([[1.0, 1.0], [0.0, 2.0]]),
        level=np.array([0.1, 0.0]),
        base=-1.0,
    )
    # "3 1": (3 + 2 + 0.5, -1), which is 4.5 and -2 with the models, and 0.3 - 1 for all.
    assert towers.log_odds(("3 1",))[0] == pytest.approx([3.8, -2.7])


def test_many_streams_of_elo_are_rated_at_once() -> None:
    feedback = (np.random.default_rng(0).random((5, 3, 7)) < 0.5).astype(float)  # documents, models, streams
    together = elo([np.full(7, 1500.0)] * 3, list(feedback), 32.0)
    for stream in range(7):
        alone = elo([1500.0] * 3, feedback[..., stream].tolist(), 32.0)
        assert [rating[stream] for rating in together] == pytest.approx(alone)


def test_eagle_mixes_global_and_local_ratings() -> None:
    # The nearest two to "1 0" are the last and the first, whose feedback came in the other order.
    vectors = np.array([[0.9, 0.1], [0.0, 1.0], [1.0, 0.0]])
    right = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    overall = np.array([1400.0, 1600.0])
    router = EagleRouter(Eagle(neighbours=2), Words(), vectors, right, overall, np.array([2.0, 1.0]))
    local = np.array(elo([1500.0, 1500.0], [[1.0, 0.0], [1.0, 1.0]], 32.0))
    assert router.scores(("1 0",))[0] == pytest.approx((overall + local) / 2)
    assert router.scores(("0 0",))[0] == pytest.approx(overall)
    warm = replace(router, settings=Eagle(neighbours=2, local_start="global", global_share=0.2))
    started = np.array(elo(overall.tolist(), [[1.0, 0.0], [1.0, 1.0]], 32.0))
    assert warm.scores(("1 0",))[0] == pytest.approx(0.2 * overall + 0.8 * started)


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
    with pytest.raises(InputError, match="neighbours=0"):
        policy_of("eagle", data.train, neighbours=0)
    with pytest.raises(InputError, match="unknown start of local ratings 'globe' in eagle; did you mean"):
        policy_of("eagle", data.train, local_start="globe")
