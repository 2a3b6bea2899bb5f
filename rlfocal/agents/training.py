"""Warm start in two phases (paper, Algorithm 1): the Decider on interim pluralities, then Fusion."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from rlfocal.agents.config import RLFocalConfig
from rlfocal.agents.environment import (
    Environment,
    Memory,
    State,
    network_sizes,
    tail_environment,
    train_environment,
)
from rlfocal.agents.gae import advantages
from rlfocal.agents.losses import mappo
from rlfocal.agents.networks import Agents
from rlfocal.agents.policies import mask_closed, modal_answer, modal_pool, sample_pool, sample_slot
from rlfocal.agents.trained import TrainedAgents, remember
from rlfocal.dataset import Dataset
from rlfocal.methods.base import Episode

Phase = Literal["decider", "fusion"]
Progress = Callable[[float], None]
"""Called with the finished share of the training, 0 to 1."""


class Buffer(NamedTuple):
    """L joint actions of S seeds × B walks; states has one more, the last."""

    states: State
    """each (L+1, S, B, ...)"""
    pools: Tensor
    """(L, S, B, N) the Decider's actions, 0 or 1"""
    answers: Tensor
    """(L, S, B) Fusion's actions; empty in the first phase"""
    rewards: Tensor
    """(L, S, B)"""
    right: Tensor
    """(L, S, B) 0 or 1"""
    sizes: Tensor
    """(L, S, B)"""


def train(
    train_rows: Dataset,
    config: RLFocalConfig,
    seeds: Sequence[int],
    on_progress: Progress | None = None,
    device: torch.device | str = "cpu",
) -> list[TrainedAgents]:
    """One pair of agents per seed, trained side by side; a seed's result does not hang on the others.

    Raises InputError for a pool of one model or fewer than two train documents.
    """
    environment = train_environment(train_rows, config, len(seeds), device)
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    sizes = network_sizes(train_rows, config)
    agents = Agents(sizes, config, generators).to(device)
    history: list[list[Episode]] = [[] for _ in seeds]
    phases: tuple[tuple[Phase, int], ...] = (
        ("decider", config.decider_episodes),
        ("fusion", config.fusion_episodes),
    )
    done, total = 0, config.decider_episodes + config.fusion_episodes
    with _one_thread():
        for phase, episodes in phases:
            learner = Learner(agents, config, phase)
            for episode in range(episodes):
                buffers = walk(environment, learner, generators)
                for of_seed, row in zip(history, episode_means(phase, episode, buffers), strict=True):
                    of_seed.append(row)
                done += 1
                if on_progress is not None:
                    on_progress(done / total)
        memories = end_of_train(agents, train_rows, config, len(seeds), device)
    return remember(agents, memories, history, train_rows, sizes, config, seeds)


def walk(environment: Environment, learner: Learner, generators: Sequence[torch.Generator]) -> list[Buffer]:
    """One episode of every walk, with an update after each buffer."""
    state = environment.reset()
    buffers = []
    for length in _even_parts(environment.length, learner.config.update_period):
        buffer, state = collect(environment, learner, state, length, generators)
        learner.update(buffer)
        buffers.append(buffer)
    return buffers


@torch.no_grad()
def collect(
    environment: Environment,
    learner: Learner,
    state: State,
    length: int,
    generators: Sequence[torch.Generator],
) -> tuple[Buffer, State]:
    """`length` steps of sampled actions; the Decider samples in both phases, Fusion answers in the second."""
    agents, fusing = learner.agents, learner.phase == "fusion"
    walks, n_models = state.decider.shape[1], environment.probs.shape[1]
    draws = torch.stack([torch.rand(length, walks, n_models + 1, generator=g) for g in generators], 1)
    draws = draws.to(state.decider.device)
    states, pools, answers, steps = [state], [], [], []
    for t in range(length):
        pool = sample_pool(agents.decider(state.decider), draws[t, ..., :-1])
        answer = None
        if fusing:
            answer = sample_slot(fusion_logits(agents, state), draws[t, ..., -1])
            answers.append(answer)
        step = environment.step(pool, answer)
        state = step.state
        states.append(state)
        pools.append(pool)
        steps.append(step)
    buffer = Buffer(
        State(*(torch.stack(parts) for parts in zip(*states, strict=True))),
        torch.stack(pools),
        torch.stack(answers) if answers else draws.new_zeros(0),
        torch.stack([step.reward for step in steps]),
        torch.stack([step.right for step in steps]),
        torch.stack([step.size for step in steps]),
    )
    return buffer, state


class Learner:
    """The acting agent of one phase and the critic, with the optimiser of both."""

    def __init__(self, agents: Agents, config: RLFocalConfig, phase: Phase) -> None:
        self.agents, self.config, self.phase = agents, config, phase
        self.actor: nn.Module = agents.decider if phase == "decider" else agents.fusion
        self.gamma = config.decider_gamma if phase == "decider" else config.fusion_gamma
        learned = [*self.actor.parameters(), *agents.critic.parameters()]
        self.optimiser = torch.optim.Adam(learned, lr=config.learning_rate)

    def update(self, buffer: Buffer) -> None:
        """Several gradient steps of Eq (7) and of the critic's squared error on one buffer."""
        observed = torch.cat([buffer.states.decider, buffer.states.fusion], -1)
        states = _by_seed(observed)
        with torch.no_grad():
            values = self.agents.critic(states).view(states.shape[0], len(observed), -1).movedim(0, 1)
            # Only the return above the mean is learned: at γ = 0.99 the mean itself is worth 100 rewards.
            centred = buffer.rewards - buffer.rewards.mean((0, 2), keepdim=True)
            estimate = advantages(centred, values, self.gamma, self.config.gae_lambda)
            targets = _by_seed((estimate + values[:-1])[..., None])
            scaled = mappo.normalised(_by_seed(estimate[..., None])[..., 0], (1,))
            acted = State(*(_by_seed(part[:-1]) for part in buffer.states))
            actions = _by_seed(buffer.pools if self.phase == "decider" else buffer.answers[..., None])
            old = self.log_probs(acted, actions)[0]
        for _ in range(self.config.epochs):
            log_probs, entropy = self.log_probs(acted, actions)
            weights = scaled[..., None] if self.phase == "decider" else scaled
            gain = mappo.clipped_surrogate(log_probs, old, weights, self.config.clip)
            error = (self.agents.critic(states[:, : targets.shape[1]]) - targets).square()
            # Means per seed, summed over seeds: no seed's gradient knows of another seed.
            per_seed = (error.flatten(1).mean(1), gain.flatten(1).mean(1), entropy.flatten(1).mean(1))
            loss = (per_seed[0] - per_seed[1] - self.config.entropy * per_seed[2]).sum()
            self.optimiser.zero_grad(set_to_none=True)
            loss.backward()
            for network in (self.actor, self.agents.critic):
                clip_per_seed(network, self.config.max_grad_norm)
            self.optimiser.step()

    def log_probs(self, state: State, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probability and entropy of the acting agent: per branch (S, M, N), or per answer (S, M)."""
        if self.phase == "decider":
            logits = self.agents.decider(state.decider)
            return mappo.branch_log_probs(logits, actions), mappo.branch_entropy(logits)
        logits = fusion_logits(self.agents, state)
        return mappo.choice_log_probs(logits, actions[..., 0]), mappo.choice_entropy(logits)


def fusion_logits(agents: Agents, state: State) -> Tensor:
    """(S, B, C) Fusion's logits, -inf where no slot is."""
    return mask_closed(agents.fusion(state.fusion), state.open)


def clip_per_seed(network: nn.Module, max_norm: float) -> None:
    """Scale each seed's gradient down to `max_norm`, apart from the other seeds'."""
    gradients = [p.grad for p in network.parameters() if p.grad is not None]
    norms = torch.stack([g.flatten(1).square().sum(1) for g in gradients]).sum(0).sqrt()
    scale = (max_norm / (norms + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        gradient.mul_(scale[:, None, None])


def episode_means(phase: Phase, episode: int, buffers: Sequence[Buffer]) -> list[Episode]:
    """One history row per seed: means over all walks and steps."""
    rewards, right, sizes = (
        torch.cat(parts).mean((0, 2)).tolist()
        for parts in zip(*[(b.rewards, b.right, b.sizes) for b in buffers], strict=True)
    )
    return [Episode(phase, episode, *row) for row in zip(rewards, right, sizes, strict=True)]


@torch.no_grad()
def end_of_train(
    agents: Agents, train_rows: Dataset, config: RLFocalConfig, n_seeds: int, device: torch.device | str
) -> list[Memory]:
    """Where the agents stand after walking the last train documents as they will act at test."""
    environment = tail_environment(train_rows, config, n_seeds, device)
    state = environment.reset()
    for _ in range(environment.length):
        state = environment.step(
            modal_pool(agents.decider(state.decider)), modal_answer(fusion_logits(agents, state))
        ).state
    return environment.memories()


def _by_seed(steps: Tensor) -> Tensor:
    """(L, S, B, ...) -> (S, L·B, ...)."""
    return steps.movedim(1, 0).flatten(1, 2)


def _even_parts(total: int, most: int) -> list[int]:
    """`total` in the fewest parts of at most `most`, as even as can be."""
    parts = -(-total // most)
    return [total // parts + (i < total % parts) for i in range(parts)]


@contextmanager
def _one_thread() -> Iterator[None]:
    """Torch's thread pool loses more on these small products than it wins, and most on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
