"""Warm start: the two phases of Algorithm 1, then both agents together as in Algorithm 2."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import Episode
from rlfocal.methods.learning.agents import Progress
from rlfocal.methods.learning.stacked import one_thread, weights_of_seed
from rlfocal.methods.learning.store import EVERY, Unfinished, under
from rlfocal.methods.rl_focal.agents import PoolAgents, RLFocalAgents, chosen_pool
from rlfocal.methods.rl_focal.config import PoolConfig, RLFocalConfig
from rlfocal.methods.rl_focal.environment import (
    Environment,
    Memory,
    Stream,
    network_sizes,
    tail_environment,
    train_environment,
    train_stream,
)
from rlfocal.methods.rl_focal.mappo import Learner, run_episode
from rlfocal.methods.rl_focal.networks import Networks
from rlfocal.methods.rl_focal.policies import modal_answer, next_modal_pool
from rlfocal.methods.rl_focal.questions import Questions, fit_questions

Made = TypeVar("Made", bound=PoolAgents)
_RECENT, _HALVINGS = 500, 12
TOGETHER = 5
"""The most seeds whose networks are stacked; the groups train on at most one thread per core.

The same on every machine, because the number stacked decides the last bits of a product.
"""


def train(
    train_rows: Dataset,
    config: RLFocalConfig,
    seeds: Sequence[int],
    on_progress: Progress | None = None,
    kept: Path | None = None,
) -> list[RLFocalAgents]:
    """One pair of agents per seed, trained side by side; a seed's result does not depend on the others.

    Every few episodes the state of training is saved in the folder `kept`: called again with the same
    arguments after it was killed, training ends with the same agents as without the interruption.
    Raises InputError for a pool of one model or fewer than two train documents.
    """
    questions = fit_questions(train_rows, config)
    stream = train_stream(train_rows, config, questions)
    everyone = stream.outputs()

    def train_group(group: Sequence[int], report: Progress) -> list[RLFocalAgents]:
        file = None
        if kept is not None:
            file = Unfinished.beside(kept, config.revision, train_rows, group, config)
        generators = [torch.Generator().manual_seed(seed) for seed in group]
        sizes = network_sizes(train_rows, config, questions)
        networks = Networks(sizes, config, generators, train_rows.kind)
        networks.fusion.fit_scales(
            everyone.distributions[0], everyone.open[0], train_rows, config.log_linear_start
        )
        history, limited = _learn(networks, stream, config, questions, generators, file, report)
        memories = end_of_train(networks, stream, config, len(group)).memories()
        if file is not None:
            file.forget()
        return agents_of_seeds(
            RLFocalAgents, train_rows, networks, config, questions, memories, history, group, limited
        )

    return train_in_groups(seeds, train_group, on_progress)


def train_in_groups(
    seeds: Sequence[int],
    train_group: Callable[[Sequence[int], Progress], list[Made]],
    on_progress: Progress | None,
) -> list[Made]:
    """The agents of all seeds, in groups whose networks are stacked, on at most one thread per core: matrix
    products release Python's lock. When one group fails, the others stop at their next report."""
    if not seeds:
        return []
    parts = max(min(len(seeds), 2), -(-len(seeds) // TOGETHER))
    groups = [seeds[len(seeds) * i // parts : len(seeds) * (i + 1) // parts] for i in range(parts)]
    done, lock, is_over = [0.0] * parts, threading.Lock(), threading.Event()

    def run(at: int) -> list[Made]:
        torch.set_num_threads(1)  # holds for this thread only

        def report(share: float) -> None:
            with lock:
                if is_over.is_set():
                    raise InterruptedError("another group failed")
                done[at] = share
                if on_progress is not None:
                    whole = sum(d * len(group) for d, group in zip(done, groups, strict=True)) / len(seeds)
                    on_progress(1.0 if all(d >= 1 for d in done) else whole)

        return train_group(groups[at], report)

    with one_thread(), ThreadPoolExecutor(min(parts, os.cpu_count() or 1)) as pool:
        futures = [pool.submit(run, at) for at in range(parts)]
        try:
            return [agents for future in futures for agents in future.result()]
        finally:
            is_over.set()


def _learn(
    networks: Networks, stream: Stream, config: RLFocalConfig, questions: Questions | None,
    generators: Sequence[torch.Generator], kept: Unfinished | None, on_progress: Progress,
) -> tuple[list[list[Episode]], list[bool]]:  # fmt: skip
    """All phases of stacked seeds: the history of each, and whether `mean_pool` binds at the end."""
    n_seeds = len(generators)
    environment = train_environment(
        stream, config, n_seeds, 0 if questions is None else len(questions.budgets)
    )
    history: list[list[Episode]] = [[] for _ in generators] if kept is None else kept.history(n_seeds)
    phases = {
        "decider": config.decider_episodes, "fusion": config.fusion_episodes, "joint": config.joint_episodes
    }  # fmt: skip
    total = max(sum(phases.values()), 1)
    limited = [False] * n_seeds
    for phase, episodes in phases.items():
        learner = Learner(networks, config, phase, questions, stream.n_documents)
        if kept is not None and history[0] and history[0][-1].phase == phase:
            _restore(kept, learner, generators)
        for episode in range(sum(one.phase == phase for one in history[0]), episodes):
            learner.begin(episode / episodes)
            rows_of_seeds = run_episode(environment, learner, episode, generators)
            for of_seed, row in zip(history, rows_of_seeds, strict=True):
                of_seed.append(row)
            if kept is not None and len(history[0]) % EVERY == 0:
                _save(kept, history, learner, generators)
            on_progress(len(history[0]) / total)
        if episodes and phase != "fusion":
            limited = learner.multiplier.is_binding
    return history, limited


def _save(
    kept: Unfinished, history: list[list[Episode]], learner: Learner, generators: Sequence[torch.Generator]
) -> None:
    """Saves the networks, their optimiser, the multiplier and each seed's random state."""
    networks, optimiser = learner.networks.state_dict(), learner.optimiser.state()
    parts = {"agents": networks, "adam": optimiser, "rest": {"multiplier": learner.multiplier.values}}
    tensors = {f"{part}.{name}": value for part, some in parts.items() for name, value in some.items()}
    tensors |= {f"generator.{at}": one.get_state() for at, one in enumerate(generators)}
    kept.write(tensors, {"history": history})


def _restore(kept: Unfinished, learner: Learner, generators: Sequence[torch.Generator]) -> None:
    """The inverse of `_save`."""
    found = kept.read()
    assert found is not None
    tensors = found[1]
    learner.networks.load_state_dict(under("agents.", tensors))
    learner.optimiser.restore(under("adam.", tensors))
    learner.multiplier.values = tensors["rest.multiplier"]
    for at, generator in enumerate(generators):
        generator.set_state(tensors[f"generator.{at}"])


def agents_of_seeds(
    agents: type[Made], rows: Dataset, stacked: Networks, config: PoolConfig, questions: Questions | None,
    memories: Sequence[Memory], history: Sequence[Sequence[Episode]], seeds: Sequence[int],
    limited: Sequence[bool],
) -> list[Made]:  # fmt: skip
    """Each seed's agents, their pools within `mean_pool`."""
    made = []
    for at, seed in enumerate(seeds):
        networks = Networks(stacked.sizes, config, [torch.Generator()], rows.kind)
        networks.load_state_dict(weights_of_seed(stacked, at))
        one = agents(
            networks=networks, memory=memories[at], questions=questions, sizes=stacked.sizes, config=config,
            benchmark=rows.benchmark, kind=rows.kind, models=rows.models, seed=seed,
            snapshot=rows.snapshot, history=tuple(history[at]),
        )  # fmt: skip
        if questions is not None and config.mean_pool:
            keep_mean_pool(one, questions.numbers(rows), is_limited=limited[at])
        made.append(one)
    return made


@torch.no_grad()
def keep_mean_pool(agents: PoolAgents, questions: Tensor, *, is_limited: bool) -> None:
    """Lowers all branches alike until modal pools on the last train questions (T, G) ask at most `mean_pool`
    models on average; with `is_limited`, also raises them to that mean. The multiplier acts on sampled pools,
    and a short training can end before it has taken effect."""
    recent = questions[-_RECENT:]

    def mean_size(lowered: float) -> float:
        pools = agents.pools(recent, lambda logits, pool: chosen_pool(logits - lowered, pool))
        return float(pools.sum(axis=1).mean())

    if not is_limited and mean_size(0.0) <= agents.config.mean_pool:
        return
    branches = agents.networks.decider.question[:, 0]
    too_little, enough = float(branches.min()) - 10.0, float(branches.max()) + 10.0
    for _ in range(_HALVINGS):
        middle = (too_little + enough) / 2
        if mean_size(middle) > agents.config.mean_pool:
            too_little = middle
        else:
            enough = middle
    agents.networks.decider.question[:, 0] -= enough


@torch.no_grad()
def end_of_train(networks: Networks, stream: Stream, config: RLFocalConfig, n_seeds: int) -> Environment:
    """Where each seed stands after the last train documents, acting as it will at test."""
    environment = tail_environment(stream, config, n_seeds)

    def fuse(outputs: Tensor, is_open: Tensor, question: Tensor) -> Callable[[int, Tensor], Tensor]:
        logits = networks.fusion.by_step(outputs, is_open, question)
        return lambda t, past_rewards: modal_answer(logits(t, past_rewards))[..., None]

    def choose(t: int, observed: Tensor, pools: Tensor) -> Tensor:
        return next_modal_pool(networks.decider(observed), pools)

    environment.rollout(environment.length, choose, fuse)
    return environment
