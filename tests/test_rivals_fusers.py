"""Rivals that fuse, and bandits: their formulas by hand, where they must win, and what they may not see."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import combinations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from test_methods import make_dataset
from test_yardsticks import make_answers, make_logits, only

from rlfocal.agents.shared.networks import stacked_mlp
from rlfocal.calls import Calls
from rlfocal.dataset import Dataset
from rlfocal.errors import InputError
from rlfocal.methods import check_methods, entries, make_method
from rlfocal.methods._bandits import Arms, contexts_of
from rlfocal.methods._budgets import affordable, most_affordable
from rlfocal.methods._mlp import Training, fit_mlps
from rlfocal.methods._regression import fit_text_regression
from rlfocal.methods._rlae import states_of
from rlfocal.methods._rlae_learning import Learning, Weighers, learn, rewards
from rlfocal.methods._teams import Search, fitness
from rlfocal.methods._text import RIDGES, fit_directions, ridge_by_folds
from rlfocal.methods.linucb import LinUcb
from rlfocal.methods.log_linear_text import Examples, Pool, minimised
from rlfocal.methods.thompson import Thompson
from rlfocal.methods.topla import numbered_as_called
from rlfocal.policy import Budget, Budgeted, Decisions, OnlineLearner, Policy, SeesAll, decide
from rlfocal.text import TFIDF

Floats = NDArray[np.float64]
TOPICS = ("planets orbit the distant star", "tenants sue the careless landlord", "enzymes fold inside cells")
TEXT = ("text_only", "log_linear+text", "stacking+text")
RLAE = ("rlae_ppo", "rlae_mappo")
BANDITS = ("linucb", "thompson")
METHODS = (*TEXT, "topla", *RLAE, *BANDITS)
FEW = {"iterations": 10}
QUICK = {"topla": {"epochs": 20}, "rlae_ppo": FEW, "rlae_mappo": FEW}
"""Settings with which an edge case need not take long."""
LETTERS = [("abab", "a"), ("bbca", "b"), ("ccca", "c"), ("a-ba", "a"), ("----", "a"), ("dacb", "z")]


def in_words(data: Dataset, topics: NDArray[np.int64], seed: int = 0) -> Dataset:
    """The documents with questions that tell their topic by some of its words."""
    rng = np.random.default_rng(seed)
    questions = tuple(" ".join(rng.choice(TOPICS[topic].split(), 4)) for topic in topics)
    return replace(data, questions=questions)


def topical(T: int = 900, seed: int = 0, n_models: int = 3) -> Dataset:
    """Models that are right nearly always on their own topic, and by chance on the others."""
    rng = np.random.default_rng(seed)
    topics, labels = rng.integers(n_models, size=T), rng.integers(4, size=T)
    knows = np.where(np.arange(n_models) == topics[:, None], rng.random((T, n_models)) < 0.95, False)
    said = np.where(knows, labels[:, None], rng.integers(4, size=(T, n_models)))
    probs = np.where(np.arange(4) == said[:, :, None], 0.7, 0.1)
    return in_words(make_dataset(probs, labels, n_train=2 * T // 3), topics)


def knowers(data: Dataset) -> float:
    """The accuracy of whoever knows the topic, of test documents as `topical` makes them."""
    topics = [
        next(at for at, words in enumerate(TOPICS) if set(text.split()) <= set(words.split()))
        for text in data.test.questions
    ]
    return float(data.test.correct[np.arange(len(data.test)), topics].mean())


def labels_in_words(T: int = 600, seed: int = 0) -> Dataset:
    """The topic tells the label seven times in ten; of the models, none tells much."""
    rng = np.random.default_rng(seed)
    topics = rng.integers(3, size=T)
    labels = np.where(rng.random(T) < 0.7, topics, rng.integers(3, size=T))
    logits = rng.normal(size=(T, 4, 3)) + 0.7 * (np.arange(3) == labels[:, None])[:, None]
    probs = np.exp(logits) / np.exp(logits).sum(axis=2, keepdims=True)
    return in_words(make_dataset(probs, labels, n_train=T // 2), topics)


def decided(name: str, data: Dataset, seed: int = 0, **settings: object) -> Decisions:
    method = replace(make_method(name), **settings)  # type: ignore[type-var]
    [policy] = method.fit(data.train, [seed])
    if entries()[name].protocols == ("online",):
        assert isinstance(policy, OnlineLearner)
        return policy.decide_online(data.test)
    return decide(policy, data.test)


def accuracy(name: str, data: Dataset, seed: int = 0, **settings: object) -> float:
    said = decided(name, data, seed, **settings).predictions
    return float(((said == data.test.labels) & (data.test.labels >= 0)).mean())


def slope(loss: Callable[[Floats], float], at: Floats) -> Floats:
    """By central differences."""
    steps = 1e-5 * np.eye(len(at))
    return np.array([(loss(at + step) - loss(at - step)) / 2e-5 for step in steps])


def strange() -> dict[str, Dataset]:
    """Data that are short of something."""
    rng = np.random.default_rng(0)
    plain = in_words(make_logits(0, T=60, N=3), rng.integers(3, size=60))
    answers = make_answers(*LETTERS * 8)
    spoken = in_words(answers, rng.integers(3, size=len(answers)))
    three = plain.take(np.array([1, 2, 40]))
    return {
        "choices of different numbers": plain,
        "answers": spoken,
        "no texts": replace(plain, questions=()),
        "answers without texts": answers,
        "empty questions": replace(plain, questions=("",) * 60),
        "one class": replace(plain, labels=np.zeros(60, dtype=np.int64)),
        "nothing right": replace(plain, labels=np.full(60, -1)),
        "three documents": three,
        "one train document": replace(three, is_train=np.array([True, False, False])),
        "three answers": spoken.take(np.array([0, 1, 30])),
        "no price known": replace(plain, prices=np.full(3, np.nan)),
        "two models": replace(only(plain, np.array([0, 2])), prices=np.ones(2)),
        "one model": replace(only(plain, np.array([1])), prices=np.ones(1)),
        "one model of answers": make_answers(("a", "a"), ("b", "a"), ("-", "b"), ("a", "b")),
    }


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("case", strange())
def test_strange_data_are_no_crash(case: str, name: str) -> None:
    data, entry = strange()[case], entries()[name]
    if data.kind not in entry.kinds or len(data.models) < entry.fewest_models:
        pytest.skip("not offered")
    result = decided(name, data, **QUICK.get(name, {}))
    assert result.predictions.shape == (len(data.test),)
    assert (result.predictions < data.test.n_choices).all()
    if data.kind == "choices":
        assert (result.predictions >= 0).all()
    if result.probability is not None:
        assert ((result.probability >= 0) & (result.probability <= 1 + 1e-9)).all()


def test_the_text_alone_tells_the_label_without_asking_anybody() -> None:
    data = labels_in_words()
    asked = decided("text_only", data)
    assert not asked.pools.any()
    assert accuracy("text_only", data) > 0.75  # of 0.8
    rng = np.random.default_rng(1)
    shuffled = data.labels.copy()
    shuffled[: len(data.train)] = rng.permutation(shuffled[: len(data.train)])
    assert accuracy("text_only", replace(data, labels=shuffled)) < 0.33 + 0.1


@pytest.mark.parametrize("name", ["log_linear", "stacking"])
def test_text_beside_log_probs_wins_where_it_tells_and_costs_nothing_where_not(name: str) -> None:
    data = labels_in_words()
    alone, read, both = (accuracy(one, data) for one in (name, "text_only", f"{name}+text"))
    assert both > max(alone, read) + 0.02
    babble = in_words(data, np.random.default_rng(2).integers(3, size=len(data)), seed=2)
    assert accuracy(f"{name}+text", babble) == pytest.approx(alone, abs=0.02)
    assert accuracy(f"{name}+text", replace(data, questions=())) == alone


def test_text_tells_which_of_free_answers_to_believe() -> None:
    rng = np.random.default_rng(0)
    topics = rng.integers(3, size=600)
    said = ["".join("a" if i == topic else rng.choice(list("bcd")) for i in range(3)) for topic in topics]
    data = in_words(make_answers(*[(one, "a") for one in said]), topics)
    assert accuracy("log_linear", data) < 0.6
    assert accuracy("log_linear+text", data) > 0.98


@pytest.mark.parametrize("kind", ["choices", "answers"])
def test_a_log_linear_pool_with_text_is_the_minimum_of_its_loss(kind: str) -> None:
    train = make_logits(0, T=60).train if kind == "choices" else make_answers(*LETTERS * 6).train
    rng = np.random.default_rng(0)
    text = rng.normal(size=(len(train), 2))
    examples = Examples.of(train, text)
    (n, M, C), width = examples.x.shape, examples.text_width
    start = Pool(np.zeros(M), np.zeros(C), np.zeros((2, width)))
    found, _ = minimised(examples, 3.0, start, {"ftol": 1e-15, "gtol": 1e-8, "maxiter": 10_000})

    def loss(parameters: Floats) -> float:
        w, b, v = parameters[:M], parameters[M : M + C], parameters[M + C :].reshape(2, width)
        total = 1e-3 / 2 * float(w @ w) + 3.0 / 2 * float((v**2).sum())
        for t in range(len(train)):
            slots = [c for c in range(C) if kind == "choices" or train.probs[t, :, c].any()]
            slots = [c for c in slots if c < train.n_choices[t]]
            if train.labels[t] not in slots:
                continue
            scores = {}
            for c in slots:
                if kind == "choices":
                    scores[c] = w @ train.logprobs[t, :, c] + b[c] + text[t] @ v[:, c]
                else:
                    scores[c] = (w + text[t] @ v) @ train.probs[t, :, c]
            total -= scores[train.labels[t]] - np.log(np.sum(np.exp(list(scores.values()))))
        return total

    assert n > 10
    solution = np.concatenate([part.ravel() for part in found])
    assert np.abs(slope(loss, solution)).max() < 1e-3
    others = np.random.default_rng(0).normal(size=(20, len(solution))) / 10
    assert all(loss(solution) < loss(solution + other) for other in others)


def test_a_regression_on_text_is_the_minimum_of_its_loss() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(-1, 3, size=200)
    text = rng.normal(size=(200, 2)) + (labels == 1)[:, None]
    others = rng.normal(size=(200, 3)) * [1, 10, 0] + (labels == 0)[:, None] * [1, 0, 0]
    found = fit_text_regression(others, text, labels, 0.1)
    assert found.model is not None
    assert np.isfinite(found.ridge)
    taught = labels >= 0
    x, e, y = others[taught], text[taught], labels[taught]
    x = (x - x.mean(axis=0)) / np.maximum(x.std(axis=0), 1e-12)

    def loss(parameters: Floats) -> float:
        b, w, v = np.split(parameters.reshape(3, 6), [1, 4], axis=1)
        scores = x @ w.T + e @ v.T + b[:, 0]
        cross_entropy = np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(len(y)), y]
        return float(cross_entropy.sum() + (w**2).sum() / 0.2 + found.ridge / 2 * (v**2).sum())

    unscaled = np.repeat([1.0, (0.1 * found.ridge) ** -0.5], [3, 2])
    solution = np.column_stack([found.model.intercept_, found.model.coef_ * unscaled]).ravel()
    assert np.abs(slope(loss, solution)).max() < 1e-3


def test_a_ridge_is_chosen_by_what_is_held_out() -> None:
    held_out: list[int] = []
    losses = [5.0, 4.0, 3.0, 3.0, 1.0, 1.0, 1.0, 1.0, 1.0]

    def fold(fitted: NDArray[np.int64], held: NDArray[np.int64]):  # type: ignore[no-untyped-def]
        assert not set(fitted) & set(held)
        assert len(fitted) + len(held) == 53
        held_out.extend(held)
        yield from losses

    assert len(losses) == len(RIDGES)
    assert ridge_by_folds(53, fold) == RIDGES[2]  # the first of equals, and no further
    assert sorted(held_out) == list(range(53))
    assert ridge_by_folds(5, fold) == np.inf


def test_directions_are_uncorrelated_and_of_one_length() -> None:
    data = topical(T=300)
    found = fit_directions(TFIDF, data.questions, 4)
    along = found.encode(data.questions)
    assert along.shape == (300, 4)
    assert np.cov(along.T, bias=True) == pytest.approx(np.eye(4), abs=1e-6)
    assert along.mean(axis=0) == pytest.approx(np.zeros(4), abs=1e-9)
    for nothing in (("",) * 5, ("same words",) * 5, ("one",)):
        assert fit_directions(TFIDF, nothing, 4).encode(["one", "two"]).shape == (2, 0)


def right_and_wrong(correct: list[list[int]]) -> Dataset:
    """Two choices, of which the first is right: 1 where a model says so, a row for each document."""
    right = np.array(correct, dtype=np.bool_)
    probs = np.stack([np.where(right, 0.75, 0.25), np.where(right, 0.25, 0.75)], axis=2)
    return make_dataset(probs, np.zeros(len(right), dtype=np.int64), n_train=len(right))


def test_the_fitness_of_a_team_by_hand() -> None:
    # Eq (8): ρ is 2/7, 1/3 and 1/3; of six pluralities the first, the fourth and the last are right.
    rows = [[1, 0, 1], [0, 0, 1], [0, 1, 0], [1, 1, 0], [0, 0, 0], [1, 1, 1]]
    train = right_and_wrong([[*row, 1] for row in rows])
    team = np.array([[True, True, True, False]])
    diversity = (2 / 7 + 1 / 3 + 1 / 3) / 3
    assert fitness(train, team, 0.5, 0.0) == pytest.approx(0.5 * diversity + 0.5 * 3 / 6, abs=1e-9)
    assert fitness(train, team, 0.6, 0.1) == pytest.approx(
        0.6 * diversity + 0.4 * 3 / 6 - 0.1 * 3 / 4, abs=1e-9
    )
    perfect = right_and_wrong([[1, 1, 0], [1, 1, 1]])
    assert fitness(perfect, np.array([[True, True, False]]), 0.5, 0.0) == pytest.approx(1.0)


def tried(enumerable: int) -> Search:
    return Search(enumerable, population=100, generations=1000, parents=50, saturation=100)


@pytest.mark.parametrize("budget", [Budget(np.inf), Budget(3), Budget(6.5, "cents")])
def test_the_fittest_team_is_found_one_by_one_and_by_breeding(budget: Budget) -> None:
    train = make_logits(0, T=400, N=9).train
    value = partial(fitness, train, focal_weight=0.5, size_penalty=0.0)
    found = {}
    for size in range(2, 10):
        for members in combinations(range(9), size):
            team = np.isin(np.arange(9), members)
            cost = sum(1 + i for i in members) if budget.unit == "cents" else size
            if cost <= budget.amount:
                found[members] = float(value(team[None])[0])
    best = max(found, key=lambda members: found[members])  # max: the first of equals

    def fittest(enumerable: int, seed: int) -> tuple[int, ...]:
        team = tried(enumerable).fittest(value, train.prices, budget, seed)
        assert team is not None
        return tuple(np.flatnonzero(team).tolist())

    assert fittest(1000, 0) == best
    bred = [fittest(0, seed) for seed in (0, 1, 2, 0)]
    assert bred[0] == bred[3]
    assert max(found[team] for team in bred) == found[best]
    assert np.mean([found[team] for team in bred]) > np.quantile(list(found.values()), 0.75)


def test_breeding_draws_from_its_seed_alone() -> None:
    train = make_logits(1, T=200, N=14).train
    value = partial(fitness, train, focal_weight=0.5, size_penalty=0.0)
    short = Search(0, population=8, generations=2, parents=4, saturation=50)
    teams = [short.fittest(value, train.prices, Budget(np.inf), seed) for seed in [*range(8)] * 2]
    found = [tuple(np.flatnonzero(team).tolist()) for team in teams if team is not None]
    assert found[:8] == found[8:]
    assert len(set(found)) > 2


def test_what_a_budget_bears() -> None:
    prices = np.array([3.0, 0.1, np.nan, 0.2])
    pools = np.array([[1, 0, 0, 0], [0, 1, 0, 1], [0, 1, 1, 0], [1, 1, 0, 1]], dtype=np.bool_)
    assert affordable(pools, prices, Budget(2)).tolist() == [True, True, True, False]
    assert affordable(pools, prices, Budget(0.3, "cents")).tolist() == [False, True, False, False]
    assert affordable(pools, prices, Budget(np.inf, "cents")).tolist() == [True, True, False, True]
    most = [
        most_affordable(prices, budget) for budget in map(Budget.of, ("2.5", "all", "0.3c", "0.05c", "9c"))
    ]
    assert most == [2, 4, 2, 0, 3]


def policy_of(name: str, data: Dataset, **settings: object) -> Policy:
    [policy] = replace(make_method(name), **settings).fit(data.train, [0])  # type: ignore[type-var]
    assert not isinstance(policy, SeesAll)
    return policy


def test_topla_keeps_to_a_budget() -> None:
    data = make_logits(0, T=200, N=5)
    policy = policy_of("topla", data, epochs=5)
    assert isinstance(policy, Budgeted)
    for budget in (Budget(2), Budget(3), Budget(5.0, "cents")):
        held = policy.within(budget)
        assert held is not None
        pools = decide(held, data.test).pools
        assert affordable(pools, data.prices, budget).all()
        assert (pools == pools[0]).all()
    assert policy.within(Budget(np.inf)) is policy
    assert policy.within(Budget(1)) is None
    assert policy.within(Budget(2, "cents")) is None
    free = policy_of("topla", replace(data, prices=np.full(5, np.nan)), epochs=5)
    assert isinstance(free, Budgeted)
    assert free.within(Budget(1e9, "cents")) is None


def test_topla_learns_to_believe_the_member_that_knows() -> None:
    rng = np.random.default_rng(0)
    knows, labels = rng.integers(3, size=1500), rng.integers(4, size=1500)
    told = np.where(np.arange(3) == knows[:, None], labels[:, None], rng.integers(4, size=(1500, 3)))
    sure = np.where(np.arange(3) == knows[:, None], 0.7, 0.4)[:, :, None]
    probs = np.where(np.arange(4) == told[:, :, None], sure, (1 - sure) / 3)
    data = make_dataset(probs, labels, n_train=1200)
    assert accuracy("plurality", data) < 0.8
    assert accuracy("topla", data, size_penalty=-1.0) > 0.98
    shuffled = labels.copy()
    shuffled[:1200] = rng.permutation(shuffled[:1200])
    assert accuracy("topla", replace(data, labels=shuffled), epochs=30) < 0.25 + 0.1


@pytest.mark.parametrize("as_coded", [True, False])
def test_the_network_of_a_team_takes_the_loss_it_says(as_coded: bool) -> None:
    """One step of Adam moves each weight by the rate against the sign of the slope."""
    rng = np.random.default_rng(0)
    given, labels = rng.random((8, 6)), rng.integers(3, size=8)
    how = Training(4, 1e-4, 8, 1, 1, 0.25, as_coded)
    [fitted] = fit_mlps(given, labels, 3, [5], how)
    generator = torch.Generator().manual_seed(5)
    start = stacked_mlp([6, 4, 4, 3], [generator])
    rows = torch.randperm(8, generator=generator)[2:]  # the first two are held out

    scores = start(torch.tensor(given, dtype=torch.float32)[rows][None])[0]
    if as_coded:
        scores = torch.exp(torch.sigmoid(scores))
        scores = scores / scores.sum(1, keepdim=True)
    top = torch.exp(scores)
    loss = -torch.log(top[range(6), labels[rows]] / top.sum(1)).mean()
    slopes = torch.autograd.grad(loss, list(start.parameters()))
    for before, after, slope in zip(start.parameters(), fitted.parameters(), slopes, strict=True):
        clear = slope.abs() > 1e-5
        moved = (after - before)[clear].detach().numpy()
        assert moved == pytest.approx(-1e-4 * slope.sign()[clear].numpy(), rel=0.02)


def test_of_every_epoch_the_best_on_held_out_documents_is_kept() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=120)
    given = rng.random((120, 6)) + (np.arange(6) == labels[:, None])
    generator = torch.Generator().manual_seed(3)
    stacked_mlp([6, 8, 8, 3], [generator])
    held = torch.randperm(120, generator=generator)[:30]
    reached: list[float] = []
    last: list[float] = []
    for epochs in range(1, 12):
        for patience, found in ((10_000, reached), (1, last)):
            [network] = fit_mlps(given, labels, 3, [3], Training(8, 0.3, 16, epochs, patience, 0.25, False))
            said = network(torch.tensor(given, dtype=torch.float32)[held][None])[0].argmax(1)
            found.append(float((said == torch.tensor(labels)[held]).float().mean()))
    assert reached == sorted(reached)
    assert reached[-1] > reached[0]
    stops = next(at for at in range(1, 12) if reached[at] <= reached[at - 1])
    assert last == [*reached[:stops], *[reached[stops]] * (len(last) - stops)]
    first = reached.index(reached[-1]) + 1
    [kept], [found_then] = (
        fit_mlps(given, labels, 3, [3], Training(8, 0.3, 16, epochs, 10_000, 0.25, False))
        for epochs in (11, first)
    )
    assert_same(kept, found_then)  # the first of equals


def test_networks_of_several_seeds_are_those_of_each_alone() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=120)
    given = rng.random((120, 6)) + (np.arange(6) == labels[:, None])
    how = Training(8, 0.3, 16, 30, 2, 0.25, False)
    seeds = range(6)
    for seed, network in zip(seeds, fit_mlps(given, labels, 3, seeds, how), strict=True):
        assert_same(network, fit_mlps(given, labels, 3, [seed], how)[0])


def assert_same(one: torch.nn.Module, other: torch.nn.Module) -> None:
    for of_one, of_other in zip(one.parameters(), other.parameters(), strict=True):
        assert of_one.detach().numpy() == pytest.approx(of_other.detach().numpy(), abs=1e-4)


def test_topla_answers_choices_that_exist() -> None:
    data = make_logits(5, T=400)
    third = np.where(np.arange(len(data)) % 9 == 0, 0, 2)  # is nearly always right where there is one
    skewed = replace(data, labels=np.where(data.n_choices == 3, third, -1))
    asked = decided("topla", skewed, epochs=20)
    assert (asked.predictions < skewed.test.n_choices).all()
    assert (asked.predictions == 2).any()
    assert asked.probability is not None
    assert decided("topla", data, epochs=2, as_coded=True).probability is None


def test_labels_are_numbered_as_the_calls_number_answers() -> None:
    data = make_answers(("aab", "b"), ("abc", "c"), ("ab-", "b"), ("aaa", "z"), ("---", "a"))
    calls = Calls(data)
    calls.call(np.array([False, False, True]))
    assert numbered_as_called(calls, data.labels).tolist() == [0, 0, -1, -1, -1]
    calls.call_all()
    assert numbered_as_called(calls, data.labels).tolist() == [0, 0, 1, -1, -1]


def test_topla_fuses_free_answers_and_hears_its_team_alone() -> None:
    rng = np.random.default_rng(0)
    said = []
    for _ in range(400):  # two that are often right, and three that agree on something wrong
        pair = ["a" if rng.random() < skill else rng.choice(list("de")) for skill in (0.9, 0.65)]
        said.append("".join([*pair, *["b" if rng.random() < 0.9 else "c"] * 3]))
    data = make_answers(*[(one, "a") for one in said])
    assert accuracy("plurality", data) < 0.4
    assert accuracy("topla", data, epochs=60, small_batch=32) > 0.85
    policy = policy_of("topla", data, epochs=5)
    asked = decide(policy, data.test)
    team = asked.pools[0]
    assert 2 <= team.sum() < 5
    deaf = replace(data.test, probs=np.where(team[:, None], data.test.probs, 0.0))
    assert (decide(policy, deaf).predictions == asked.predictions).all()


@pytest.mark.parametrize("name", ["topla", *RLAE, *BANDITS])
def test_the_same_seed_gives_the_same_result(name: str) -> None:
    data = in_words(make_logits(0, T=200, N=4), np.zeros(200, dtype=np.int64))
    method = replace(make_method(name), **QUICK.get(name, {}))  # type: ignore[type-var]
    together, alone = method.fit(data.train, [0, 1]), [method.fit(data.train, [seed])[0] for seed in (0, 1)]
    for one, other in zip(together, alone, strict=True):
        assert (decide(one, data.test).predictions == decide(other, data.test).predictions).all()


def test_the_reward_of_weights_by_hand() -> None:
    probs = torch.tensor([[[[0.6, 0.4], [0.1, 0.9]]] * 3])  # one seed, three documents, two models
    ln = np.log(
        [[3.0, 1.0], [6.0, 1.0]]
    )  # weights 3/4, 1/4: 0.475 against 0.525; 6/7, 1/7: 0.53 against 0.47
    actions = torch.tensor(ln, dtype=torch.float32)[None, :, None].expand(1, 2, 3, 2)
    earned = rewards(actions, probs, torch.tensor([[0, 1, -1]]))
    assert earned.tolist() == [[[-1, 1, -1], [1, -1, -1]]]


@pytest.mark.parametrize("each_its_own", [False, True])
def test_log_probabilities_of_weights_are_those_of_gaussians(each_its_own: bool) -> None:
    how = Learning(each_its_own, 5, 1, 1, 1, 1, 0.2, 0.1, 0.7)
    weighers = Weighers(3, 5, how, [torch.Generator().manual_seed(seed) for seed in (0, 1)])
    with torch.no_grad():
        weighers.log_spread.add_(torch.randn(weighers.log_spread.shape))
    means, actions = torch.randn(2, 4, 3), torch.randn(2, 6, 4, 3)
    gaussian = torch.distributions.Normal(means[:, None], weighers.spreads)
    expected = gaussian.log_prob(actions) + 0.5 * np.log(2 * np.pi)  # type: ignore[no-untyped-call]
    found = weighers.log_probs(means, actions).detach()
    per_agent = expected if each_its_own else expected.sum(-1, keepdim=True)
    assert found.numpy() == pytest.approx(per_agent.detach().numpy(), rel=1e-5, abs=1e-5)


def test_an_agent_of_many_sees_the_question_and_its_own_model() -> None:
    how = Learning(True, 5, 1, 1, 1, 1, 0.2, 0.1, 0.7)
    weighers = Weighers(3, 5, how, [torch.Generator().manual_seed(seed) for seed in (0, 1)])
    states = torch.randn(2, 4, 5)
    for seen in range(5):
        other = states.clone()
        other[..., seen] += 1
        changed = (weighers(other) != weighers(states)).all(1)
        expected = [True] * 3 if seen < 2 else [seen - 2 == model for model in range(3)]
        assert changed.tolist() == [expected, expected]
    other = states.clone()
    other[0] += 1
    assert (weighers(other) == weighers(states))[1].all()


@pytest.mark.parametrize("each_its_own", [False, True])
def test_policies_learn_each_seed_as_alone(each_its_own: bool) -> None:
    data = topical(T=90).train
    states = np.random.default_rng(0).normal(size=(len(data), 5))
    how = Learning(each_its_own, 8, 5, 30, 4, 2, 0.2, 1e-2, 1.0)
    together = learn(states, data.probs, data.labels, [0, 1], how)
    for seed in (0, 1):
        assert_same(together[seed], learn(states, data.probs, data.labels, [seed], how)[0])


def test_states_are_the_question_and_the_entropies() -> None:
    data = topical(T=60)
    states = states_of(data, fit_directions(TFIDF, data.questions, 2))
    entropy = -(0.7 * np.log(0.7) + 0.3 * np.log(0.1))
    assert states[:, 2:] == pytest.approx(np.full((60, 3), entropy))
    told = replace(data, probs=np.where(np.arange(4) == 1, 1.0, np.zeros((60, 3, 1))))
    assert not states_of(told, fit_directions(TFIDF, data.questions, 2))[:, 2:].any()


@pytest.mark.parametrize("name", RLAE)
def test_weights_follow_the_text_that_tells_the_right_model(name: str) -> None:
    data = topical(T=1200)
    assert accuracy("soft_vote", data) < 0.7
    assert accuracy(name, data, iterations=150) > knowers(data) - 0.02
    assert decided(name, data, iterations=1).pools.all()
    rng = np.random.default_rng(1)
    shuffled = data.labels.copy()
    shuffled[: len(data.train)] = rng.permutation(shuffled[: len(data.train)])
    single = accuracy("best_single", data)
    assert accuracy(name, replace(data, labels=shuffled), iterations=30) < single + 0.15


@pytest.mark.parametrize("name", RLAE)
def test_weights_follow_the_model_that_is_sure(name: str) -> None:
    rng = np.random.default_rng(0)
    knows, labels = rng.integers(3, size=900), rng.integers(4, size=900)
    told = np.where(np.arange(3) == knows[:, None], labels[:, None], rng.integers(4, size=(900, 1)))
    sure = np.where(np.arange(3) == knows[:, None], 0.45, 0.4)[:, :, None]  # the two others outvote it
    probs = np.where(np.arange(4) == told[:, :, None], sure, (1 - sure) / 3)
    data = make_dataset(probs, labels, n_train=600)
    assert accuracy("soft_vote", data) < 0.4
    assert accuracy(name, data) > 0.95


def test_what_an_arm_learns_by_hand() -> None:
    arms = Arms.fresh(2, 1)
    score = LinUcb(alpha=2.0).score(0)
    assert score(arms, np.array([3.0])) == pytest.approx([6.0, 6.0])  # 0 + 2 · √9
    arms.learn(1, np.array([1.0]), 1.0)  # A = 2, b = 1
    arms.learn(1, np.array([2.0]), 0.0)  # A = 6, b = 1
    assert arms.means == pytest.approx(np.array([[0.0], [1 / 6]]))
    assert score(arms, np.array([3.0])) == pytest.approx([6.0, 3 / 6 + 2 * (9 / 6) ** 0.5])


def test_arms_are_ridge_regressions_however_they_learn() -> None:
    rng = np.random.default_rng(0)
    contexts, right = rng.normal(size=(30, 3)), rng.random((30, 2)) < 0.5
    one_by_one = Arms.fresh(2, 3)
    for row, arm in np.ndindex(30, 2):
        one_by_one.learn(arm, contexts[row], float(right[row, arm]))
    at_once = Arms.taught(contexts, right)
    expected = np.linalg.solve(np.eye(3) + contexts.T @ contexts, contexts.T @ right).T
    for arms in (one_by_one, at_once):
        assert arms.means == pytest.approx(expected)
        assert arms.inverses == pytest.approx(
            np.tile(np.linalg.inv(np.eye(3) + contexts.T @ contexts), (2, 1, 1))
        )
    copy = at_once.copy()
    copy.learn(0, contexts[0], 1.0)
    assert at_once.means == pytest.approx(expected)


def test_draws_of_thompson_have_their_mean_and_spread() -> None:
    rng = np.random.default_rng(0)
    arms = Arms.taught(rng.normal(size=(5, 3)), rng.random((5, 2)) < 0.5)
    context = np.array([1.0, -2.0, 0.5])
    score = Thompson(v=0.3).score(1)
    draws = np.array([score(arms, context) for _ in range(20_000)])
    spread = 0.3 * (context @ arms.inverses[0] @ context) ** 0.5
    assert draws.mean(axis=0) == pytest.approx(arms.means @ context, abs=5 * spread / 20_000**0.5)
    assert draws.std(axis=0) == pytest.approx([spread, spread], rel=0.03)
    assert abs(np.corrcoef(draws.T)[0, 1]) < 0.03


@pytest.mark.parametrize("name", BANDITS)
@pytest.mark.parametrize("warm_start", [True, False])
def test_a_bandit_calls_the_model_that_the_text_tells(name: str, warm_start: bool) -> None:
    data = topical(T=1500)
    asked = decided(name, data, warm_start=warm_start)
    assert (asked.pools.sum(axis=1) == 1).all()
    right = asked.predictions == data.test.labels
    assert (asked.predictions == data.test.predictions[asked.pools]).all()
    late = slice(0 if warm_start else 250, None)
    assert right[late].mean() > knowers(data) - (0.02 if warm_start else 0.1)
    if not warm_start:
        assert right[:20].mean() < 0.9


@pytest.mark.parametrize("name", BANDITS)
def test_a_bandit_learns_from_labels_as_they_come_and_from_the_called_model_alone(name: str) -> None:
    data = topical(T=600)
    asked = decided(name, data, warm_start=False)
    labels = data.labels.copy()
    labels[500:] = (labels[500:] + 1) % 4
    later = decided(name, replace(data, labels=labels), warm_start=False)
    until = 500 - len(data.train) + 1
    assert (later.pools[:until] == asked.pools[:until]).all()
    assert (later.pools != asked.pools).any()
    called = np.vstack([np.ones_like(data.train.correct), asked.pools])
    lied = np.where(called, data.predictions, (data.predictions + 1) % 4)
    lies = replace(data, predictions=lied, probs=np.where(np.arange(4) == lied[:, :, None], 0.7, 0.1))
    told = decided(name, lies, warm_start=False)
    assert (told.pools == asked.pools).all()
    assert (told.predictions == asked.predictions).all()


@pytest.mark.parametrize("name", BANDITS)
def test_a_bandit_without_labels_stays_as_train_left_it(name: str) -> None:
    data = topical(T=1500)
    [policy] = make_method(name).fit(data.train, [0])
    frozen = decide(policy, data.test.unlabelled())
    assert (frozen.predictions == data.test.labels).mean() > knowers(data) - 0.02
    before = decide(policy, data.test.unlabelled())
    assert isinstance(policy, OnlineLearner)
    policy.decide_online(data.test)
    assert (decide(policy, data.test.unlabelled()).pools == before.pools).all()
    rng = np.random.default_rng(1)
    shuffled = data.labels.copy()
    shuffled[: len(data.train)] = rng.permutation(shuffled[: len(data.train)])
    [fooled] = make_method(name).fit(replace(data, labels=shuffled).train, [0])
    right = decide(fooled, data.test).predictions == data.test.labels
    assert right.mean() < accuracy("best_single", data) + 0.1


@pytest.mark.parametrize("name", BANDITS)
def test_bandits_run_online_only(name: str) -> None:
    with pytest.raises(InputError, match="needs --protocol online"):
        check_methods([name], topical(T=60))
    check_methods([name], topical(T=60), "online")


def test_contexts_are_directions_and_a_one() -> None:
    data = topical(T=300)
    contexts = contexts_of(data.questions, fit_directions(TFIDF, data.questions, 4))
    assert contexts.shape == (300, 5)
    assert (contexts[:, 4] == 1).all()
    assert (contexts[:, :4] ** 2).sum(axis=1).mean() == pytest.approx(1.0)
    assert contexts_of(("",) * 3, fit_directions(TFIDF, ("",) * 3, 4)).tolist() == [[1.0]] * 3
