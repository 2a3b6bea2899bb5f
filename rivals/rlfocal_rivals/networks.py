"""Rivals' networks that are trained with the code of RL-Focal's agents, several seeds at once.

It imports torch, which takes seconds, so other modules import it only where they use it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from rlfocal.base.arrays import Floats, Ints
from rlfocal.methods.learning.networks import Adam, Linear, mlp, use_one_thread
from rlfocal.methods.rl_focal.mappo import clipped_surrogate

if TYPE_CHECKING:
    from rlfocal_rivals.rlae import Rlae
    from rlfocal_rivals.topla import Topla

__all__ = ["WeightPolicies", "fit_mlps", "learn_weights", "mlp_of_each", "rewards", "use_one_thread"]

_INITIAL_SCALE = 0.01
"""The scale of the last layer's initial weights, so small that all models begin with almost equal weight."""


class LinearLayers(nn.Module):
    """S linear layers, one per seed or agent, each initialised by its own generator."""

    def __init__(
        self, n_in: int, n_out: int, generators: Sequence[torch.Generator], gain: float = 1.0
    ) -> None:
        super().__init__()
        each = [Linear(n_in, n_out, generator, gain) for generator in generators]
        self.weight = nn.Parameter(torch.stack([layer.weight.detach() for layer in each]))
        self.bias = nn.Parameter(torch.stack([layer.bias.detach() for layer in each]))

    def forward(self, x: Tensor) -> Tensor:
        """(S, B, n_out) the layers' outputs, from (S, B, n_in)."""
        return torch.baddbmm(self.bias, x, self.weight)


def mlp_of_each(
    sizes: Sequence[int], generators: Sequence[torch.Generator], last_gain: float = 1.0
) -> nn.Sequential:
    """S multilayer perceptrons, one per seed or agent: (S, B, sizes[0]) -> (S, B, sizes[-1])."""
    pairs = list(pairwise(sizes))
    layers: list[nn.Module] = []
    for n_in, n_out in pairs[:-1]:
        layers += [LinearLayers(n_in, n_out, generators), nn.Sigmoid()]
    return nn.Sequential(*layers, LinearLayers(*pairs[-1], generators, last_gain))


# ---- TOPLA-Weighted


def fit_mlps(inputs: Floats, labels: Ints, n_slots: int, seeds: Sequence[int], how: Topla) -> list[nn.Module]:
    """A network for each seed, from inputs (n, F) to logits of `n_slots` slots, fitted to labels (n,).

    It has the weights of the epoch with the best held-out accuracy (ties: the first). With too few documents
    to hold any out, it has those of the last epoch. Held-out documents, initial weights and batches depend on
    the seed.
    """
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    sizes = [inputs.shape[1], how.hidden, how.hidden, n_slots]
    networks = mlp_of_each(sizes, generators)
    optimiser = Adam([networks], how.learning_rate)
    is_small = len(labels) < how.few
    batch = how.small_batch if is_small else how.batch
    epochs = min(how.epochs, how.small_epochs) if is_small else how.epochs
    x, y = torch.tensor(inputs, dtype=torch.float32), torch.tensor(labels)
    orders = torch.stack([torch.randperm(len(y), generator=generator) for generator in generators])
    # A single document leaves nothing to hold out.
    n_held = 0 if is_small else min(max(1, round(how.validation * len(y))), max(len(y) - 1, 0))
    held, taught = orders[:, :n_held], orders[:, n_held:]
    weights = [p.detach() for p in networks.parameters()]
    best = [p.clone() for p in weights]
    reached, since = torch.full((len(seeds),), -1.0), torch.zeros(len(seeds))
    with use_one_thread():
        for epoch in range(epochs if len(y) else 0):
            for rows in torch.split(_shuffle_rows(taught, generators), batch, 1):
                optimiser.descend(_loss(networks(x[rows]), y[rows]))
            if not n_held:
                best = weights
                continue
            with torch.no_grad():
                right = (networks(x[held]).argmax(2) == y[held]).float().mean(1)
            better = (right > reached) & (epoch - since <= how.patience)
            for kept, p in zip(best, weights, strict=True):
                kept[better] = p[better]
            reached[better], since[better] = right[better], float(epoch)
            if bool((epoch - since >= how.patience).all()):
                break
    return [_take_seed(best, number, sizes) for number in range(len(seeds))]


def _shuffle_rows(rows: Tensor, generators: Sequence[torch.Generator]) -> Tensor:
    """(S, n) the positions of each seed's documents, shuffled by its own generator."""
    draws = [torch.randperm(rows.shape[1], generator=generator) for generator in generators]
    return rows.gather(1, torch.stack(draws))


def _loss(logits: Tensor, labels: Tensor) -> Tensor:
    """The mean cross-entropy of each seed's batch, summed over seeds: logits (S, B, C), labels (S, B)."""
    return len(logits) * cross_entropy(logits.flatten(0, 1), labels.flatten())


def _take_seed(weights: Sequence[Tensor], number: int, sizes: Sequence[int]) -> nn.Module:
    network = mlp(sizes, torch.Generator())
    for p, of_seeds in zip(network.parameters(), weights, strict=True):
        p.data = of_seeds[number].clone()
    return network


# ---- RLAE: PPO by one agent, or MAPPO by an agent per model under a central critic


class WeightPolicies(nn.Module):
    """Gaussian policies over the logits of N models, for S seeds: A agents each, with N / A logits per agent.

    A is 1 or N. A single agent sees the whole state: the question and all models' entropies. Each of N agents
    sees the question and its own model's entropy.
    """

    def __init__(self, n_models: int, n_state: int, how: Rlae, generators: Sequence[torch.Generator]) -> None:
        super().__init__()
        self.n_models, self.n_agents = n_models, n_models if how.has_agent_per_model else 1
        seen = n_state - n_models + 1 if how.has_agent_per_model else n_state
        own = n_models // self.n_agents
        each = [generator for generator in generators for _ in range(self.n_agents)]
        self.networks = mlp_of_each([seen, how.hidden, own], each, _INITIAL_SCALE)
        self.log_spread = nn.Parameter(torch.full((len(each), 1, own), how.spread).log())

    def forward(self, states: Tensor) -> Tensor:
        """(S, B, N) mean logits, from states (S, B, K + N)."""
        S, B, _ = states.shape
        seen = states
        if self.n_agents > 1:
            question, entropies = states[..., : -self.n_models], states[..., -self.n_models :]
            shared = question[:, None].expand(S, self.n_models, B, question.shape[2])
            seen = torch.cat([shared, entropies.transpose(1, 2)[..., None]], -1).flatten(0, 1)
        means: Tensor = self.networks(seen)
        return means.view(S, self.n_agents, B, -1).transpose(1, 2).flatten(2)

    def log_probs(self, means: Tensor, actions: Tensor) -> Tensor:
        """(S, D, B, A) log-densities of the agents' actions, up to a constant, from `means` (S, B, N) and
        `actions` (S, D, B, N)."""
        log_spread = self.spreads.log()
        each = -((actions - means[:, None]) / log_spread.exp()).square() / 2 - log_spread
        return each.view(*each.shape[:3], self.n_agents, -1).sum(-1)

    @property
    def spreads(self) -> Tensor:
        """(S, 1, 1, N) the policies' standard deviations."""
        return self.log_spread.exp().view(-1, 1, 1, self.n_models)

    @torch.no_grad()
    def weights(self, states: Floats) -> Floats:
        """(T, N) the softmax of the mean logits, from the states (T, K + N); for a single seed."""
        logits = self(torch.tensor(states, dtype=torch.float32)[None])[0]
        weights: Floats = torch.softmax(logits.double(), 1).numpy()
        return weights


def learn_weights(
    states: Floats, probs: Floats, labels: Ints, seeds: Sequence[int], how: Rlae
) -> list[WeightPolicies]:
    """Each seed's policies, trained by PPO on states (T, K + N), probabilities (T, N, C) and labels (T,)."""
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    n_models, n_state = probs.shape[1], states.shape[1]
    weighers = WeightPolicies(n_models, n_state, how, generators)
    critic = mlp_of_each([n_state, how.hidden, 1], generators)
    learner, judge = Adam([weighers], how.learning_rate), Adam([critic], how.learning_rate)
    every_state, every_prob = (torch.tensor(part, dtype=torch.float32) for part in (states, probs))
    every_label = torch.tensor(labels)
    with use_one_thread():
        for _ in range(how.iterations):
            rows = _draw_rows(len(labels), how.batch, generators)
            seen, q, y = every_state[rows], every_prob[rows], every_label[rows]
            with torch.no_grad():
                means = weighers(seen)
                noise = _draw_noise((how.draws, *means.shape[1:]), generators)
                actions = means[:, None] + weighers.spreads * noise
                before = weighers.log_probs(means, actions)
                reward = rewards(actions, q, y)
                surplus = (reward - critic(seen)[..., 0][:, None]).flatten(1)
                middle, spread = surplus.mean(1, keepdim=True), surplus.std(1, correction=0, keepdim=True)
                advantages = ((surplus - middle) / (spread + 1e-5)).view(*reward.shape, 1)
            for _ in range(how.epochs):
                ratio = (weighers.log_probs(weighers(seen), actions) - before).exp()
                gain = clipped_surrogate(ratio, advantages, how.clip)
                learner.descend(-gain.flatten(1).mean(1).sum())
                missed = reward - critic(seen)[..., 0][:, None]
                judge.descend(missed.square().flatten(1).mean(1).sum())
    return [_take_weighers(weighers, number, n_state, how) for number in range(len(seeds))]


def rewards(actions: Tensor, probs: Tensor, labels: Tensor) -> Tensor:
    """(S, D, B) the reward: 1 where the weighted mean probability is highest at the label, else -1.

    `actions` (S, D, B, N) are logits of the models' weights, `probs` (S, B, N, C) their probabilities, and
    `labels` (S, B), which are -1 where no slot is right.
    """
    weights = torch.softmax(actions, 3).transpose(1, 2)
    answers = (weights @ probs).argmax(3).transpose(1, 2)
    return torch.where(answers == labels[:, None], 1.0, -1.0)


def _draw_rows(n: int, batch: int, generators: Sequence[torch.Generator]) -> Tensor:
    """(S, B) the positions of a batch of distinct documents, drawn for each seed."""
    return torch.stack([torch.randperm(n, generator=generator)[:batch] for generator in generators])


def _draw_noise(shape: tuple[int, ...], generators: Sequence[torch.Generator]) -> Tensor:
    return torch.stack([torch.randn(shape, generator=generator) for generator in generators])


def _take_weighers(weighers: WeightPolicies, number: int, n_state: int, how: Rlae) -> WeightPolicies:
    of_seed = WeightPolicies(weighers.n_models, n_state, how, [torch.Generator()])
    rows = slice(number * weighers.n_agents, (number + 1) * weighers.n_agents)
    of_seed.load_state_dict({name: value[rows].clone() for name, value in weighers.state_dict().items()})
    return of_seed
