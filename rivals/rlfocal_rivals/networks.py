"""What learns as RL-Focal's agents do; the only module that imports their code.

It imports torch, which takes seconds, and so is imported where it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from rlfocal.base.arrays import Floats, Ints
from rlfocal.methods.learning.networks import Adam, Linear, mlp, one_thread
from rlfocal.methods.rl_focal.mappo import clipped_surrogate, normalise

if TYPE_CHECKING:
    from rlfocal_rivals.rlae import Rlae
    from rlfocal_rivals.topla import Topla

__all__ = ["Weighers", "fit_mlp", "learn_weights", "rewards"]

_START = 0.01
"""Scale of the last layer's initial weights: at first, all models have almost equal weight."""


# ---- TOPLA-Weighted


def fit_mlp(given: Floats, labels: Ints, n_slots: int, seed: int, how: Topla) -> nn.Module:
    """A network from distributions (n, F) to one of `n_slots` slots, labels (n,).

    Keeps the weights of the epoch with the best held-out accuracy (ties: the first), or of the last epoch
    where documents are too few to hold any out. The seed draws held-out documents, initial weights and
    batches.
    """
    generator = torch.Generator().manual_seed(seed)
    network = mlp([given.shape[1], how.hidden, how.hidden, n_slots], generator)
    optimiser = Adam([network], how.learning_rate)
    is_small = len(labels) < how.few
    batch = how.small_batch if is_small else how.batch
    epochs = min(how.epochs, how.small_epochs) if is_small else how.epochs
    x, y = torch.tensor(given, dtype=torch.float32), torch.tensor(labels)
    order = torch.randperm(len(y), generator=generator)
    # A single document leaves nothing to hold out.
    n_held = 0 if is_small else min(max(1, round(how.validation * len(y))), max(len(y) - 1, 0))
    held, taught = order[:n_held], order[n_held:]
    best, reached, since = optimiser.values.clone(), -1.0, 0
    with one_thread():
        for epoch in range(epochs if len(y) else 0):
            shuffled = taught[torch.randperm(len(taught), generator=generator)]
            for rows in torch.split(shuffled, batch):
                logits = network(x[rows])
                scores = torch.softmax(torch.sigmoid(logits), 1) if how.as_coded else logits
                optimiser.descend(cross_entropy(scores, y[rows]))
            if not n_held:
                best.copy_(optimiser.values)
                continue
            with torch.no_grad():
                right = float((network(x[held]).argmax(1) == y[held]).float().mean())
            if right > reached:
                best.copy_(optimiser.values)
                reached, since = right, epoch
            if epoch - since >= how.patience:
                break
    with torch.no_grad():
        optimiser.values.copy_(best)
    return network


# ---- RLAE: PPO by one agent, or MAPPO by an agent per model under a central critic


class LinearOfEach(nn.Module):
    """A linear layer for each of A agents, side by side."""

    def __init__(
        self, n_agents: int, n_in: int, n_out: int, generator: torch.Generator, gain: float = 1.0
    ) -> None:
        super().__init__()
        each = [Linear(n_in, n_out, generator, gain) for _ in range(n_agents)]
        self.weight = nn.Parameter(torch.stack([one.weight.detach() for one in each]))
        self.bias = nn.Parameter(torch.stack([one.bias.detach() for one in each]))

    def forward(self, x: Tensor) -> Tensor:
        """(A, B, n_in) -> (A, B, n_out)."""
        return torch.baddbmm(self.bias, x, self.weight)


class Weighers(nn.Module):
    """Gaussian policies over the logits of N models: A agents, with N / A logits each.

    A is 1 or N. A single agent sees the whole state; each of N agents sees the question and its own model's
    entropy.
    """

    def __init__(self, n_models: int, n_state: int, how: Rlae, generator: torch.Generator) -> None:
        super().__init__()
        self.n_models, self.n_agents = n_models, n_models if how.each_its_own else 1
        seen = n_state - n_models + 1 if how.each_its_own else n_state
        own = n_models // self.n_agents
        self.networks = nn.Sequential(
            LinearOfEach(self.n_agents, seen, how.hidden, generator),
            nn.Sigmoid(),
            LinearOfEach(self.n_agents, how.hidden, own, generator, _START),
        )
        self.log_spread = nn.Parameter(torch.full((n_models,), how.spread).log())

    def forward(self, states: Tensor) -> Tensor:
        """(B, K + N) -> (B, N) mean logits."""
        seen = states[None]
        if self.n_agents > 1:
            question, entropies = states[:, : -self.n_models], states[:, -self.n_models :]
            seen = torch.cat([question.expand(self.n_models, -1, -1), entropies.T[..., None]], -1)
        means: Tensor = self.networks(seen)
        return means.transpose(0, 1).flatten(1)

    def log_probs(self, means: Tensor, actions: Tensor) -> Tensor:
        """(D, B, A) log-densities of the agents' actions, up to a constant, from `means` (B, N) and `actions`
        (D, B, N)."""
        log_spread = self.spreads.log()
        each = -((actions - means) / log_spread.exp()).square() / 2 - log_spread
        return each.view(*each.shape[:2], self.n_agents, -1).sum(-1)

    @property
    def spreads(self) -> Tensor:
        """(N,)"""
        return self.log_spread.exp()

    @torch.no_grad()
    def weights(self, states: Floats) -> Floats:
        """(T, N) the softmax of the mean logits, from the states (T, K + N)."""
        logits = self(torch.tensor(states, dtype=torch.float32))
        weights: Floats = torch.softmax(logits.double(), 1).numpy()
        return weights


def learn_weights(states: Floats, probs: Floats, labels: Ints, seed: int, how: Rlae) -> Weighers:
    """The policies, from states (T, K + N), probabilities (T, N, C) and labels (T,)."""
    generator = torch.Generator().manual_seed(seed)
    n_models, n_state = probs.shape[1], states.shape[1]
    weighers = Weighers(n_models, n_state, how, generator)
    critic = mlp([n_state, how.hidden, 1], generator)
    learner, judge = Adam([weighers], how.learning_rate), Adam([critic], how.learning_rate)
    every_state, every_prob = (torch.tensor(part, dtype=torch.float32) for part in (states, probs))
    every_label = torch.tensor(labels)
    with one_thread():
        for _ in range(how.iterations):
            rows = torch.randperm(len(labels), generator=generator)[: how.batch]
            seen, q, y = every_state[rows], every_prob[rows], every_label[rows]
            with torch.no_grad():
                means = weighers(seen)
                noise = torch.randn((how.draws, *means.shape), generator=generator)
                actions = means + weighers.spreads * noise
                before = weighers.log_probs(means, actions)
                reward = rewards(actions, q, y)
                advantages = normalise(reward - critic(seen)[:, 0])[..., None]
            for _ in range(how.epochs):
                ratio = (weighers.log_probs(weighers(seen), actions) - before).exp()
                gain = clipped_surrogate(ratio, advantages, how.clip)
                learner.descend(-gain.mean())
                judge.descend((reward - critic(seen)[:, 0]).square().mean())
    return weighers


def rewards(actions: Tensor, probs: Tensor, labels: Tensor) -> Tensor:
    """(D, B) 1 where the weighted mean probability is highest at the label, else -1.

    `actions` (D, B, N) are logits of the weights, `probs` (B, N, C), `labels` (B,), -1 where no slot is
    right.
    """
    weights = torch.softmax(actions, 2).transpose(0, 1)
    answers = (weights @ probs).argmax(2).T
    return torch.where(answers == labels, 1.0, -1.0)
