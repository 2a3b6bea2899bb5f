"""Warm start in two phases (paper, Algorithm 1): the Decider on interim pluralities, then Fusion."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch

from rlfocal.agents.config import RLFocalConfig
from rlfocal.agents.environment import (
    Environment,
    Memory,
    State,
    network_sizes,
    tail_environment,
    train_environment,
)
from rlfocal.agents.learning import Buffer, Learner, Phase
from rlfocal.agents.networks import Agents
from rlfocal.agents.policies import modal_answer, modal_pool, sample_pool, sample_slot
from rlfocal.agents.trained import TrainedAgents, remember
from rlfocal.dataset import Dataset
from rlfocal.methods.base import Episode

Progress = Callable[[float], None]
"""Called with the finished share of the training, 0 to 1."""


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
    agents.standardiser.learn(environment.outputs())
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
        pool = sample_pool(agents.pool_logits(state.decider), draws[t, ..., :-1])
        answer = None
        if fusing:
            answer = sample_slot(agents.slot_logits(state.fusion, state.open), draws[t, ..., -1])
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
            modal_pool(agents.pool_logits(state.decider)),
            modal_answer(agents.slot_logits(state.fusion, state.open)),
        ).state
    return environment.memories()


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
