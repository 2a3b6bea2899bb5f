"""Tests of TOPLA and RLAE: values computed by hand, brute force, and data that lack something."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch
from support.datasets import make_answers, make_dataset, make_logits
from support.worded_data import accuracy, assert_same, decided, knowers, topical

from rlfocal.data.calls import Calls
from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import Budget
from rlfocal.data.text import TFIDF
from rlfocal.methods.learning.networks import mlp
from rlfocal_rivals.directions import fit_directions
from rlfocal_rivals.networks import WeightPolicies, fit_mlps, learn_weights, mlp_of_each, rewards
from rlfocal_rivals.rlae import Rlae, RlaeMappo, RlaePpo, states_of
from rlfocal_rivals.topla import Topla, fit_reader, fitness, most_affordable, numbered_as_called

SMALL = Topla(hidden=8, learning_rate=0.3, batch=16, few=0, validation=0.25)


def right_and_wrong(correct: list[list[int]]) -> Dataset:
    """Documents whose first of two choices is right; `correct` (T, N) says which models choose it."""
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


@pytest.mark.parametrize("budget", [Budget(np.inf), Budget(3), Budget(6.5, "cents")])
def test_the_fittest_team_is_found_one_by_one_and_by_breeding(budget: Budget) -> None:
    train = make_logits(0, T=400, N=9).train
    found = {}
    for size in range(2, 10):
        for members in combinations(range(9), size):
            team = np.isin(np.arange(9), members)
            cost = sum(1 + i for i in members) if budget.unit == "cents" else size
            if cost <= budget.amount:
                found[members] = float(fitness(train, team[None], 0.5, 0.0)[0])
    best = max(found, key=lambda members: found[members])  # max: the first of equals

    def fittest(enumerable: int, seed: int) -> tuple[int, ...]:
        team = Topla(enumerable=enumerable).team(train, seed, budget)
        assert team is not None
        return tuple(np.flatnonzero(team).tolist())

    assert fittest(1000, 0) == best
    bred = [fittest(0, seed) for seed in (0, 1, 2, 0)]
    assert bred[0] == bred[3]
    assert max(found[team] for team in bred) == found[best]
    assert np.mean([found[team] for team in bred]) > np.quantile(list(found.values()), 0.75)


def test_affordable_teams_by_hand() -> None:
    prices = np.array([3.0, 0.1, np.nan, 0.2])
    pools = np.array([[1, 0, 0, 0], [0, 1, 0, 1], [0, 1, 1, 0], [1, 1, 0, 1]], dtype=np.bool_)
    assert Budget(2).covers(pools, prices).tolist() == [True, True, True, False]
    assert Budget(0.3, "cents").covers(pools, prices).tolist() == [False, True, False, False]
    assert Budget(np.inf, "cents").covers(pools, prices).tolist() == [True, True, False, True]
    most = [
        most_affordable(prices, budget) for budget in map(Budget.parse, ("2.5", "all", "0.3c", "0.05c", "9c"))
    ]
    assert most == [2, 4, 2, 0, 3]


@pytest.mark.slow
def test_topla_learns_which_member_is_right() -> None:
    rng = np.random.default_rng(0)
    knows, labels = rng.integers(3, size=1500), rng.integers(4, size=1500)
    told = np.where(np.arange(3) == knows[:, None], labels[:, None], rng.integers(4, size=(1500, 3)))
    sure = np.where(np.arange(3) == knows[:, None], 0.7, 0.4)[:, :, None]
    probs = np.where(np.arange(4) == told[:, :, None], sure, (1 - sure) / 3)
    data = make_dataset(probs, labels, n_train=1200)
    assert accuracy("plurality", data) < 0.8
    assert accuracy("topla", data, size_penalty=-1.0) > 0.98


def test_team_networks_train_on_the_cross_entropy() -> None:
    """The test uses that Adam's first step moves each weight by the rate, against the gradient's sign."""
    rng = np.random.default_rng(0)
    given, labels = rng.random((8, 6)), rng.integers(3, size=8)
    how = Topla(hidden=4, learning_rate=1e-4, batch=8, few=0, epochs=1, patience=1, validation=0.25)
    [fitted] = fit_mlps(given, labels, 3, [5], how)
    generator = torch.Generator().manual_seed(5)
    start = mlp([6, 4, 4, 3], generator)
    rows = torch.randperm(8, generator=generator)[2:]  # the first two are held out

    scores = start(torch.tensor(given, dtype=torch.float32)[rows])
    top = torch.exp(scores)
    loss = -torch.log(top[range(6), labels[rows]] / top.sum(1)).mean()
    slopes = torch.autograd.grad(loss, list(start.parameters()))
    for before, after, slope in zip(start.parameters(), fitted.parameters(), slopes, strict=True):
        clear = slope.abs() > 1e-5
        moved = (after - before)[clear].detach().numpy()
        assert moved == pytest.approx(-1e-4 * slope.sign()[clear].numpy(), rel=0.02)


def test_the_best_epoch_on_held_out_documents_is_kept() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=120)
    given = rng.random((120, 6)) + (np.arange(6) == labels[:, None])
    generator = torch.Generator().manual_seed(3)
    mlp([6, 8, 8, 3], generator)
    held = torch.randperm(120, generator=generator)[:30]
    reached: list[float] = []
    last: list[float] = []
    for epochs in range(1, 12):
        for patience, found in ((10_000, reached), (1, last)):
            [network] = fit_mlps(given, labels, 3, [3], replace(SMALL, epochs=epochs, patience=patience))
            said = network(torch.tensor(given, dtype=torch.float32)[held]).argmax(1)
            found.append(float((said == torch.tensor(labels)[held]).float().mean()))
    assert reached == sorted(reached)
    assert reached[-1] > reached[0]
    stops = next(at for at in range(1, 12) if reached[at] <= reached[at - 1])
    assert last == [*reached[:stops], *[reached[stops]] * (len(last) - stops)]
    first = reached.index(reached[-1]) + 1
    [kept], [found_then] = (
        fit_mlps(given, labels, 3, [3], replace(SMALL, epochs=epochs, patience=10_000))
        for epochs in (11, first)
    )
    assert_same(kept, found_then)  # the first of equals


def test_networks_of_several_seeds_are_those_of_each_alone() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=120)
    given = rng.random((120, 6)) + (np.arange(6) == labels[:, None])
    how = replace(SMALL, epochs=30, patience=2)
    seeds = range(6)
    for seed, network in zip(seeds, fit_mlps(given, labels, 3, seeds, how), strict=True):
        assert_same(network, fit_mlps(given, labels, 3, [seed], how)[0])


def test_networks_read_what_is_centred_and_standardised_on_train() -> None:
    data = make_logits(5, T=400)
    team = np.arange(len(data.models)) != 1
    flat = replace(
        data, probs=data.probs / 2 + data.probs.sum(2, keepdims=True) / 2 / data.n_choices[:, None, None]
    )
    for documents in (data, flat):
        C = documents.probs.shape[2]
        reader = fit_reader(documents, team, C)
        given = reader.read(documents).reshape(len(documents), -1, C)
        exists = np.arange(C) < documents.n_choices[:, None]
        assert (given.transpose(0, 2, 1)[~exists] == 0).all()
        always = exists.all(axis=0)
        assert given[:, :, always].std(axis=0) == pytest.approx(np.ones((team.sum(), always.sum())))
        assert given[:, :, always].mean(axis=0) == pytest.approx(
            np.zeros((team.sum(), always.sum())), abs=1e-9
        )


def test_of_few_documents_none_is_held_out() -> None:
    rng = np.random.default_rng(0)
    labels, given = rng.integers(3, size=60), rng.random((60, 6))
    few = replace(SMALL, few=61, small_batch=16, small_epochs=3)
    [held, whole, same] = (
        fit_mlps(given, labels, 3, [3], how)[0]
        for how in (replace(SMALL, epochs=3), few, replace(few, validation=0.9, epochs=40))
    )
    assert_same(whole, same)
    assert any((a != b).any() for a, b in zip(held.parameters(), whole.parameters(), strict=True))


def test_topla_answers_choices_that_exist() -> None:
    data = make_logits(5, T=400)
    third = np.where(np.arange(len(data)) % 9 == 0, 0, 2)  # is nearly always right where there is one
    skewed = replace(data, labels=np.where(data.n_choices == 3, third, -1))
    asked = decided("topla", skewed, epochs=20)
    assert (asked.predictions < skewed.test.n_choices).all()
    assert (asked.predictions == 2).any()
    assert asked.probability is not None


def test_labels_are_numbered_as_the_calls_number_answers() -> None:
    data = make_answers(("aab", "b"), ("abc", "c"), ("ab-", "b"), ("aaa", "z"), ("---", "a"))
    calls = Calls(data)
    calls.call(np.array([False, False, True]))
    assert numbered_as_called(calls, data.labels).tolist() == [0, 0, -1, -1, -1]
    calls.call_all()
    assert numbered_as_called(calls, data.labels).tolist() == [0, 0, 1, -1, -1]


@pytest.mark.slow
def test_topla_fuses_free_answers() -> None:
    rng = np.random.default_rng(0)
    said = []
    for _ in range(400):  # two that are often right, and three that agree on something wrong
        pair = ["a" if rng.random() < skill else rng.choice(list("de")) for skill in (0.9, 0.65)]
        said.append("".join([*pair, *["b" if rng.random() < 0.9 else "c"] * 3]))
    data = make_answers(*[(one, "a") for one in said])
    assert accuracy("plurality", data) < 0.4
    assert accuracy("topla", data, epochs=60, small_batch=32) > 0.85


# ---- RLAE over a single span: its rewards and steps against independent ones, and where it must win


KINDS: list[type[Rlae]] = [RlaePpo, RlaeMappo]
SLOWER = ["rlae_mappo", pytest.param("rlae_ppo", marks=pytest.mark.slow)]


def test_the_reward_of_weights_by_hand() -> None:
    probs = torch.tensor([[[[0.6, 0.4], [0.1, 0.9]]] * 3])  # one seed, three documents, two models
    ln = np.log(
        [[3.0, 1.0], [6.0, 1.0]]
    )  # weights 3/4, 1/4: 0.475 against 0.525; 6/7, 1/7: 0.53 against 0.47
    actions = torch.tensor(ln, dtype=torch.float32)[None, :, None].expand(1, 2, 3, 2)
    earned = rewards(actions, probs, torch.tensor([[0, 1, -1]]))
    assert earned.tolist() == [[[-1, 1, -1], [1, -1, -1]]]


def test_an_agent_of_many_sees_the_question_and_its_own_model() -> None:
    how = RlaeMappo(
        hidden=5, iterations=1, batch=1, draws=1, epochs=1, clip=0.2, learning_rate=0.1, spread=0.7
    )
    weighers = WeightPolicies(3, 5, how, [torch.Generator().manual_seed(seed) for seed in (0, 1)])
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


@pytest.mark.parametrize("kind", KINDS)
def test_policies_learn_by_clipped_steps_of_adam(kind: type[Rlae]) -> None:
    """The test repeats training with torch's own optimiser and distributions, and compares the weights."""
    data = topical(T=60).train
    states = np.random.default_rng(0).normal(size=(len(data), 5))
    how = kind(hidden=8, iterations=2, batch=25, draws=4, epochs=6, clip=0.1, learning_rate=0.03, spread=1.0)
    [found] = learn_weights(states, data.probs, data.labels, [7], how)

    generator = torch.Generator().manual_seed(7)
    actor = WeightPolicies(3, 5, how, [generator])
    critic = mlp_of_each([5, 8, 1], [generator])
    steps = [torch.optim.Adam(network.parameters(), lr=0.03) for network in (actor, critic)]
    clipped = 0
    for _ in range(2):
        rows = torch.randperm(len(data), generator=generator)[:25]
        seen = torch.tensor(states, dtype=torch.float32)[rows][None]
        noise = torch.randn((4, 25, 3), generator=generator)
        old = torch.distributions.Normal(actor(seen)[0].detach(), actor.spreads[0, 0, 0].detach())
        actions = old.mean + old.stddev * noise
        q = torch.tensor(data.probs, dtype=torch.float32)[rows]
        said = torch.einsum("dbn,bnc->dbc", torch.softmax(actions, 2), q).argmax(2)
        reward = torch.where(said == torch.tensor(data.labels)[rows], 1.0, -1.0)
        surplus = (reward - critic(seen)[0, :, 0]).detach()
        surplus = (surplus - surplus.mean()) / (surplus.std(correction=0) + 1e-5)
        for _ in range(6):
            new = torch.distributions.Normal(actor(seen)[0], actor.spreads[0, 0, 0])
            change = new.log_prob(actions) - old.log_prob(actions)  # type: ignore[no-untyped-call]
            ratio = change.exp() if kind.has_agent_per_model else change.sum(2, keepdim=True).exp()
            clipped += int(((ratio - 1).abs() > 0.1).sum())
            weighed = surplus[..., None]
            gain = torch.minimum(ratio * weighed, ratio.clamp(0.9, 1.1) * weighed).mean()
            missed = (reward - critic(seen)[0, :, 0]).square().mean()
            for step, loss in zip(steps, (-gain, missed), strict=True):
                step.zero_grad()
                loss.backward()
                step.step()
    assert clipped > 100
    assert_same(found, actor)


def test_states_are_the_question_and_the_entropies() -> None:
    data = topical(T=60)
    states = states_of(data, fit_directions(TFIDF, data.questions, 2))
    entropy = -(0.7 * np.log(0.7) + 0.3 * np.log(0.1))
    assert states[:, 2:] == pytest.approx(np.full((60, 3), entropy))
    told = replace(data, probs=np.where(np.arange(4) == 1, 1.0, np.zeros((60, 3, 1))))
    assert not states_of(told, fit_directions(TFIDF, data.questions, 2))[:, 2:].any()


@pytest.mark.parametrize("name", SLOWER)
def test_weights_follow_the_text_that_tells_the_right_model(name: str) -> None:
    data = topical(T=1200)
    assert accuracy("soft_vote", data) < 0.7
    assert accuracy(name, data, iterations=150) > knowers(data) - 0.02
    assert decided(name, data, iterations=1).pools.all()
