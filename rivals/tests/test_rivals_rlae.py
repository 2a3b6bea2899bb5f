"""RLAE over a single span: its rewards and steps against independent ones, and where it must win."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from support.worded_data import accuracy, assert_same, decided, knowers, topical

from rlfocal.data.text import TFIDF
from rlfocal.methods.text import fit_directions
from rlfocal_rivals.networks import Weighers, learn_weights, mlp_of_each, rewards
from rlfocal_rivals.rlae import Rlae, RlaeMappo, RlaePpo, states_of

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


@pytest.mark.parametrize("kind", KINDS)
def test_policies_learn_by_clipped_steps_of_adam(kind: type[Rlae]) -> None:
    """Against torch's own optimiser and distributions, with the ratio of each agent's probabilities."""
    data = topical(T=60).train
    states = np.random.default_rng(0).normal(size=(len(data), 5))
    how = kind(hidden=8, iterations=2, batch=25, draws=4, epochs=6, clip=0.1, learning_rate=0.03, spread=1.0)
    [found] = learn_weights(states, data.probs, data.labels, [7], how)

    generator = torch.Generator().manual_seed(7)
    actor = Weighers(3, 5, how, [generator])
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
            ratio = change.exp() if kind.each_its_own else change.sum(2, keepdim=True).exp()
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
