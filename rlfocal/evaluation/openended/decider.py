"""The Decider of open-ended questions: each document goes to one model, by past rewards (appendix D)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from rlfocal.base.arrays import Floats, Ints
from rlfocal.methods.learning.stacked import StackedAdam, stacked_mlp
from rlfocal.methods.rl_focal.mappo import clipped_surrogate, gae, normalise
from rlfocal.methods.rl_focal.policies import choice_log_probs, gumbel_noise


@dataclass(frozen=True)
class OpenEndedConfig:
    """How a Decider learns. PAPER holds the appendix's settings, the defaults are what works better."""

    every_action: bool = True
    """Sum the policy gradient over all models, whose scores the train rows hold, not over sampled ones."""
    hidden: tuple[int, ...] = (100, 100)
    learning_rate: float = 1e-3
    episodes: int = 25
    update_every: int = 10
    """Documents between two updates; drawn without replacement where every action counts, else in order."""
    max_norm: float = 10.0
    """Of a step's gradient; the appendix says nothing of it, nor of `epochs`."""
    gamma: float = 0.99
    """Of the sampled rewards, as `clip` and `epochs` are."""
    clip: float = 0.2
    epochs: int = 4
    """Gradient steps per rollout."""


PAPER = OpenEndedConfig(every_action=False, learning_rate=1e-4)


@dataclass(frozen=True)
class OpenEndedDecider:
    """S trained Deciders side by side, one per seed."""

    network: nn.Sequential
    """(S, B, 2N) -> (S, B, N) logits"""
    n_seeds: int
    mean: float
    """Of the train scores."""
    deviation: float
    """Of the train scores, 1 where they are all equal."""

    @torch.no_grad()
    def choose(self, scores: Floats) -> Ints:
        """(S, T) the model each seed routes a document to, the likeliest one; parameters do not change.

        `scores` (T, N): a document's scores enter only the observations after it. At the start there is no
        current model, and all earlier scores are average.
        """
        rewards = _standard(scores, self.mean, self.deviation)
        seen = _observations(rewards, self.n_seeds)
        logits = self.network(seen.flatten(1, 2)).view(*seen.shape[:3], -1)
        chosen, _ = _follow(logits.argmax(-1), torch.full((self.n_seeds,), rewards.shape[1]))
        return chosen.numpy()


def train_decider(
    scores: Floats,
    seeds: Sequence[int],
    config: OpenEndedConfig | None = None,
    on_progress: Callable[[float], None] | None = None,
) -> OpenEndedDecider:
    """Trains one Decider per seed on a stream of scores (T, N), which it goes through once per episode.

    The observation is [one-hot of the current model; all models' scores of the document before], the action
    the model for this document, and the reward its score. Scores are standardised over train, so that their
    unit does not matter.
    """
    config = config or OpenEndedConfig()
    n_models, S = scores.shape[1], len(seeds)
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    network = stacked_mlp([2 * n_models, *config.hidden, n_models], generators)
    mean, deviation = float(scores.mean()), float(scores.std()) or 1.0
    rewards = _standard(scores, mean, deviation)
    learner = _Learner(
        network, StackedAdam([network], config.learning_rate, config.max_norm), generators, config
    )
    for episode in range(config.episodes):
        if config.every_action:
            learner.learn_from_every_action(rewards)
        else:
            learner.learn_from_samples(rewards)
        if on_progress is not None:
            on_progress((episode + 1) / config.episodes)
    return OpenEndedDecider(network, S, mean, deviation)


@dataclass(frozen=True)
class _Learner:
    """S Deciders in training; an episode goes through rewards (T, N) once."""

    network: nn.Sequential
    optimiser: StackedAdam
    generators: Sequence[torch.Generator]
    config: OpenEndedConfig

    def learn_from_samples(self, rewards: Tensor) -> None:
        """The clipped objective (Eq 7) rollout by rollout. Advantages are discounted rewards, normalised: the
        appendix has no critic."""
        observations = _observations(rewards, len(self.generators))
        current = torch.full((len(self.generators),), rewards.shape[1])
        for start in range(0, len(rewards), self.config.update_every):
            part = slice(start, start + self.config.update_every)
            seen, actions, old = self._act(observations[:, part], current)
            earned = rewards[part][torch.arange(actions.shape[1]), actions].T
            _, returns = gae(earned, torch.zeros(len(earned) + 1, len(actions)), self.config.gamma, 1.0)
            advantages = normalise(returns.T) if len(earned) > 1 else returns.T
            for _ in range(self.config.epochs):
                log_probs = choice_log_probs(self.network(seen), actions)
                surrogate = clipped_surrogate((log_probs - old).exp(), advantages, self.config.clip)
                self.optimiser.descend(-surrogate.mean(1).sum())
            current = actions[:, -1]

    def learn_from_every_action(self, rewards: Tensor) -> None:
        """The expected reward of documents in random order, at the states that this policy comes to."""
        n_seeds, T = len(self.generators), len(rewards)
        seen, _, _ = self._act(_observations(rewards, n_seeds), torch.full((n_seeds,), rewards.shape[1]))
        order = torch.stack([torch.randperm(T, generator=generator) for generator in self.generators])
        advantages = rewards - rewards.mean(1, keepdim=True)
        for rows in torch.split(order, self.config.update_every, 1):
            policy = torch.softmax(self.network(seen[torch.arange(n_seeds)[:, None], rows]), -1)
            self.optimiser.descend(-(policy * advantages[rows]).sum(-1).mean(1).sum())

    @torch.no_grad()
    def _act(self, observations: Tensor, current: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(S, L, 2N) what is seen, (S, L) the models drawn and (S, L) their log-probabilities."""
        S, L, n_states, _ = observations.shape
        logits = self.network(observations.flatten(1, 2)).view(S, L, n_states, -1)
        draws = [torch.rand(L, 1, n_states - 1, generator=generator) for generator in self.generators]
        actions, states = _follow((logits + gumbel_noise(torch.stack(draws))).argmax(-1), current)
        at = (torch.arange(S)[:, None], torch.arange(L), states)
        return observations[at], actions, choice_log_probs(logits[at], actions)


def _standard(scores: Floats, mean: float, deviation: float) -> Tensor:
    return torch.as_tensor((scores - mean) / deviation, dtype=torch.float32)


def _observations(rewards: Tensor, n_seeds: int) -> Tensor:
    """(S, T, N+1, 2N) o_t for each model that may be current at t; the last is for no model."""
    T, n_models = rewards.shape
    before = torch.cat([torch.zeros(1, n_models), rewards[:-1]])[:, None].expand(-1, n_models + 1, -1)
    current = one_hot(torch.arange(n_models + 1), n_models + 1)[:, :-1].float().expand(T, -1, -1)
    return torch.cat([current, before], -1).expand(n_seeds, -1, -1, -1)


def _follow(choices: Tensor, current: Tensor) -> tuple[Tensor, Tensor]:
    """(S, T) the models chosen and those that were current then, from what each current model leads to.

    `choices` is (S, T, N+1). Knowing every choice beforehand leaves a look-up a step, not a forward pass.
    """
    table, at = choices.numpy(), current.numpy()
    chosen, states = np.empty(table.shape[:2], dtype=np.int64), np.empty(table.shape[:2], dtype=np.int64)
    rows = np.arange(len(table))
    for t in range(table.shape[1]):
        states[:, t] = at
        at = table[rows, t, at]
        chosen[:, t] = at
    return torch.from_numpy(chosen), torch.from_numpy(states)
