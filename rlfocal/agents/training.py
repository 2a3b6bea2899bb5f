"""Warm start in two phases (paper, Algorithm 1): the Decider on interim pluralities, then Fusion."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

from rlfocal.agents.config import REVISION, RLFocalConfig
from rlfocal.agents.environment import (
    Buffer,
    Choose,
    Environment,
    Fuse,
    Memory,
    network_sizes,
    tail_environment,
    train_environment,
    train_stream,
)
from rlfocal.agents.learning import Learner, Phase, Scalars
from rlfocal.agents.networks import Agents
from rlfocal.agents.policies import (
    gumbel_noise,
    logistic_noise,
    modal_answer,
    move,
    next_modal_pool,
    sample_pool,
    sample_slot,
)
from rlfocal.agents.resuming import Kept, Position, Unfinished
from rlfocal.agents.stream import Stream
from rlfocal.agents.trained import TrainedAgents, remember
from rlfocal.dataset import Dataset
from rlfocal.methods.base import Episode

Progress = Callable[[float], None]
"""Called with the finished share of the training, 0 to 1."""
TOGETHER = 5
"""Most seeds whose networks are stacked on a CPU; such groups train on as many threads as there are cores.

The same on every machine, because how many are stacked decides the last bits of a product.
"""


def train(
    train_rows: Dataset,
    config: RLFocalConfig | Sequence[RLFocalConfig],
    seeds: Sequence[int],
    on_progress: Progress | None = None,
    device: torch.device | str = "cpu",
    kept: Path | None = None,
) -> list[TrainedAgents]:
    """One pair of agents per seed, trained side by side; a seed's result does not hang on the others.

    A sequence of configurations gives each seed its own; they may differ in `Scalars` only. Into the folder
    `kept` goes, every few episodes, all that training goes on from: called again with the same arguments
    after it was killed, it ends with the agents it would have ended with.
    Raises InputError for a pool of one model or fewer than two train documents.
    """
    configs = [config] * len(seeds) if isinstance(config, RLFocalConfig) else list(config)
    if not seeds:
        return []
    stream = train_stream(train_rows, configs[0], device)
    Scalars.of(configs)
    pairs = list(zip(seeds, configs, strict=True))
    parts = 1
    if torch.device(device).type == "cpu":
        parts = max(min(len(pairs), 2), -(-len(pairs) // TOGETHER))
    groups = [pairs[len(pairs) * i // parts : len(pairs) * (i + 1) // parts] for i in range(parts)]
    told = _Shares(on_progress, [len(group) / len(pairs) for group in groups])
    runs = [
        _Group(train_rows, stream, group, kept, partial(told.tell, at)) for at, group in enumerate(groups)
    ]
    with one_thread():
        return [agents for trained in _side_by_side([run.train for run in runs], told) for agents in trained]


class _Group:
    """Seeds that are stacked into one set of networks."""

    def __init__(
        self, rows: Dataset, stream: Stream, pairs: Sequence[tuple[int, RLFocalConfig]],
        kept: Path | None, tell: Progress,
    ) -> None:  # fmt: skip
        self.rows, self.stream, self.tell = rows, stream, tell
        self.seeds = [seed for seed, _ in pairs]
        self.configs = [config for _, config in pairs]
        self.config = self.configs[0]
        self.kept: Kept | None = None
        if kept is not None:
            file = Unfinished.beside(kept, REVISION, rows, self.seeds, self.configs)
            self.kept = Kept(file, len(self.seeds))

    def train(self) -> list[TrainedAgents]:
        torch.set_num_threads(1)  # a thread's own setting
        device = self.stream.probs.device
        generators = [torch.Generator().manual_seed(seed) for seed in self.seeds]
        sizes = network_sizes(self.rows, self.config)
        agents = Agents(sizes, self.config, generators).to(device)
        agents.standardiser.learn(self.stream.outputs())
        scalars = Scalars.of(self.configs, device)
        environment = train_environment(self.stream, self.config, scalars.size_penalty)
        position = Position.start(len(self.seeds)) if self.kept is None else self.kept.position()
        phases: tuple[tuple[Phase, int], ...] = (
            ("decider", self.config.decider_episodes),
            ("fusion", self.config.fusion_episodes),
        )
        total = max(sum(episodes for _, episodes in phases), 1)
        for phase, episodes in phases:
            learner = Learner(agents, self.config, scalars, phase)
            if self.kept is not None and position.phase == phase and position.episode:
                self.kept.restore(agents, learner.optimiser, generators)
            for episode in range(position.episodes_of(phase), episodes):
                buffers = walk(environment, learner, generators)
                position = position.after(phase, episode_means(phase, episode, buffers))
                if self.kept is not None and self.kept.is_due(position):
                    self.kept.save(position, agents, learner.optimiser, generators)
                self.tell(len(position.history[0]) / total)
        memories = end_of_train(agents, self.stream, self.config, scalars.size_penalty)
        if self.kept is not None:
            self.kept.file.forget()
        return remember(agents, memories, position.history, self.rows, sizes, self.configs, self.seeds)


def walk(environment: Environment, learner: Learner, generators: Sequence[torch.Generator]) -> list[Buffer]:
    """One episode of every walk, with an update after each buffer."""
    environment.reset()
    buffers = []
    for length in _even_parts(environment.length, learner.config.update_period):
        buffer = collect(environment, learner, length, generators)
        learner.update(buffer)
        buffers.append(buffer)
    return buffers


@torch.no_grad()
def collect(
    environment: Environment, learner: Learner, length: int, generators: Sequence[torch.Generator]
) -> Buffer:
    """`length` steps of sampled actions; the Decider samples in both phases, Fusion answers in the second."""
    agents = learner.agents
    walks, n_models = environment.copies * environment.stretches, environment.stream.n_models
    shape = (length, walks, n_models if learner.config.branching else n_models + 1)
    draws = _draws(shape, generators, environment)
    if learner.config.branching:
        noise = logistic_noise(draws)

        def choose(t: int, observed: Tensor, pools: Tensor) -> Tensor:
            return sample_pool(agents.pool_logits(observed), noise[:, t])
    else:
        noise = gumbel_noise(draws)

        def choose(t: int, observed: Tensor, pools: Tensor) -> Tensor:
            return move(pools, sample_slot(agents.pool_logits(observed), noise[:, t]))

    fuse: Fuse | None = None
    if learner.phase == "fusion":
        shape = (length, walks, environment.stream.n_slots)
        slot_noise = gumbel_noise(_draws(shape, generators, environment))

        def fuse(outputs: Tensor, open_slots: Tensor) -> Callable[[int, Tensor], Tensor]:
            logits = agents.fuser(outputs, open_slots)
            return lambda t, past: sample_slot(logits(t, past), slot_noise[:, t])

    return environment.walk(length, choose, fuse)


def episode_means(phase: Phase, episode: int, buffers: Sequence[Buffer]) -> list[Episode]:
    """One history row per seed: means over all walks and steps."""
    rewards, right, sizes = (
        torch.cat(parts, 1).mean((1, 2)).tolist()
        for parts in zip(*[(b.rewards, b.right, b.sizes) for b in buffers], strict=True)
    )
    return [Episode(phase, episode, *row) for row in zip(rewards, right, sizes, strict=True)]


@torch.no_grad()
def end_of_train(agents: Agents, stream: Stream, config: RLFocalConfig, size_penalty: Tensor) -> list[Memory]:
    """Where the agents stand after walking the last train documents as they will act at test."""
    environment = tail_environment(stream, config, size_penalty)

    def fuse(outputs: Tensor, open_slots: Tensor) -> Callable[[int, Tensor], Tensor]:
        logits = agents.fuser(outputs, open_slots)
        return lambda t, past: modal_answer(logits(t, past))

    choose: Choose = lambda t, observed, pools: next_modal_pool(agents.pool_logits(observed), pools)  # noqa: E731
    environment.walk(environment.length, choose, fuse)
    return environment.memories()


def _draws(shape: tuple[int, ...], generators: Sequence[torch.Generator], environment: Environment) -> Tensor:
    """(S, ...) uniform draws, each seed's from its own generator."""
    draws = torch.stack([torch.rand(shape, generator=g) for g in generators])
    return draws.to(environment.stream.probs.device)


def _even_parts(total: int, most: int) -> list[int]:
    """`total` in the fewest parts of at most `most`, as even as can be."""
    parts = -(-total // most)
    return [total // parts + (i < total % parts) for i in range(parts)]


class _Shares:
    """Adds up what groups on several threads have done, and stops them all."""

    def __init__(self, on_progress: Progress | None, weights: Sequence[float]) -> None:
        self._tell, self._weights = on_progress, weights
        self._done = [0.0] * len(weights)
        self._lock = threading.Lock()
        self.stopped = False

    def tell(self, at: int, share: float) -> None:
        with self._lock:
            if self.stopped:
                raise InterruptedError("another group failed")
            self._done[at] = share
            if self._tell is not None:
                done = sum(d * w for d, w in zip(self._done, self._weights, strict=True))
                self._tell(1.0 if all(d >= 1 for d in self._done) else done)


def _side_by_side(
    runs: Sequence[Callable[[], list[TrainedAgents]]], told: _Shares
) -> list[list[TrainedAgents]]:
    """Runs all on as many threads as there are cores; the products release Python's lock."""
    import os

    if len(runs) == 1:
        return [runs[0]()]
    with ThreadPoolExecutor(min(len(runs), os.cpu_count() or 1)) as pool:
        futures = [pool.submit(run) for run in runs]
        try:
            return [future.result() for future in futures]
        finally:
            told.stopped = True  # after all is done, or when one failed


@contextmanager
def one_thread() -> Iterator[None]:
    """For products this small threads lose more than they win; and how many there are would change sums.

    Holds for torch and for numpy's and scipy's linear algebra.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(before)
