"""Warm start: the two phases of Algorithm 1, then both agents together as in Algorithm 2."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import Episode, least_enough
from rlfocal.methods.learning.agents import Progress, check_train
from rlfocal.methods.learning.earning import held_out_parts, needed_margin
from rlfocal.methods.learning.networks import modal_answer, next_modal_pool, one_thread
from rlfocal.methods.learning.store import EVERY, Unfinished, under
from rlfocal.methods.rl_focal.agents import PoolAgents, RLFocalAgents, chosen_pool
from rlfocal.methods.rl_focal.config import PoolConfig, RLFocalConfig
from rlfocal.methods.rl_focal.environment import (
    Environment,
    Memory,
    Slots,
    Stream,
    network_sizes,
    tail_environment,
    train_environment,
    train_stream,
)
from rlfocal.methods.rl_focal.floor import Floor, build_floor, judge
from rlfocal.methods.rl_focal.mappo import Learner, run_episode
from rlfocal.methods.rl_focal.networks import Networks
from rlfocal.methods.rl_focal.questions import Questions, fit_questions

Made = TypeVar("Made", bound=PoolAgents)
_RECENT, _HALVINGS = 500, 12


def train(
    train_rows: Dataset,
    config: RLFocalConfig,
    seeds: Sequence[int],
    on_progress: Progress | None = None,
    kept: Path | None = None,
) -> list[RLFocalAgents]:
    """One pair of agents per seed, each trained alone: the other seeds do not matter to the last bit.

    Every few episodes the state of training is saved in the folder `kept`: called again with the same
    arguments after it was killed, training ends with the same agents as without the interruption.
    Raises InputError for a pool of one model or fewer than two train documents.
    """
    check_train(train_rows)

    def train_seed(seed: int, report: Progress) -> RLFocalAgents:
        files: list[Unfinished] = []

        def fit(rows: Dataset, report: Progress) -> RLFocalAgents:
            if kept is not None:
                files.append(Unfinished.beside(kept, config.revision, rows, [seed], config))
            return _fit(rows, config, seed, files[-1] if files else None, report)

        agents = fit_and_judge(train_rows, config, seed, fit, report)
        for file in files:
            file.forget()
        return agents

    return train_each(seeds, train_seed, on_progress)


def _fit(
    rows: Dataset, config: RLFocalConfig, seed: int, file: Unfinished | None, report: Progress
) -> RLFocalAgents:
    """One seed's agents, whatever they are worth."""
    questions = fit_questions(rows, config)
    stream = train_stream(rows, config, questions)
    generator = torch.Generator().manual_seed(seed)
    networks, floor = start(rows, config, questions, generator, stream.outputs())
    history, is_limited = _learn(networks, stream, config, questions, generator, file, report)
    memory = end_of_train(networks, stream, config).memory()
    return finish(RLFocalAgents, rows, networks, config, questions, memory, history, seed, is_limited, floor)


def start(
    rows: Dataset, config: PoolConfig, questions: Questions | None,
    generator: torch.Generator, everyone: Slots,
) -> tuple[Networks, Floor | None]:  # fmt: skip
    """Networks before they learn, from what all models say; where the Decider has a branch per model and sees
    questions, it starts from the floor's constant pools."""
    networks = Networks(network_sizes(rows, config, questions), config, generator, rows.kind)
    networks.fusion.fit_scales(everyone.distributions, everyone.open, rows, config.log_linear_start)
    if questions is None or not config.shape.branching:
        return networks, None
    floor = build_floor(rows, questions.tasks, config, questions.budgets)
    networks.decider.start_from(floor.pools > 0, config)
    return networks, floor


def fit_and_judge(
    train_rows: Dataset, config: PoolConfig, seed: int, fit: Callable[[Dataset, Progress], Made],
    report: Progress,
) -> Made:  # fmt: skip
    """Agents fitted to all of train. What of them decides is judged by others, each fitted without a part of
    train and tried on it."""
    is_judged = config.has_floor and config.shape.sees_questions and config.shape.branching
    parts = held_out_parts(len(train_rows), seed) if is_judged else []
    n = len(parts) + 1

    def share(number: int) -> Progress:
        return lambda done: report((number + done) / n)

    agents = fit(train_rows, share(0))
    if agents.floor is None or not is_judged:
        return replace(agents, floor=None)
    trials = []
    for number, out in enumerate(parts, 1):
        rest = np.setdiff1d(np.arange(len(train_rows)), out)
        trials.append((fit(train_rows.take(rest), share(number)), train_rows.take(out)))
    return replace(agents, floor=judge(agents.floor, trials, needed_margin(train_rows)))


def train_each(
    seeds: Sequence[int], train_seed: Callable[[int, Progress], Made], on_progress: Progress | None
) -> list[Made]:
    """The agents of all seeds, on one thread per core: matrix products release Python's lock. When one fails,
    the others stop at their next report."""
    done, lock, is_over = dict.fromkeys(seeds, 0.0), threading.Lock(), threading.Event()

    def run(seed: int) -> Made:
        torch.set_num_threads(1)  # holds for this thread only

        def report(share: float) -> None:
            with lock:
                if is_over.is_set():
                    raise InterruptedError("another seed failed")
                done[seed] = share
                if on_progress is not None:
                    on_progress(1.0 if all(d >= 1 for d in done.values()) else sum(done.values()) / len(done))

        return train_seed(seed, report)

    with one_thread(), ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        futures = [pool.submit(run, seed) for seed in seeds]
        try:
            return [future.result() for future in futures]
        finally:
            is_over.set()


def _learn(
    networks: Networks, stream: Stream, config: RLFocalConfig, questions: Questions | None,
    generator: torch.Generator, kept: Unfinished | None, on_progress: Progress,
) -> tuple[list[Episode], bool]:  # fmt: skip
    """All phases: the history, and whether `mean_pool` binds at the end."""
    environment = train_environment(stream, config, 0 if questions is None else len(questions.budgets))
    history = [] if kept is None else kept.history()
    phases = {
        "decider": config.decider_episodes, "fusion": config.fusion_episodes, "joint": config.joint_episodes
    }  # fmt: skip
    total = max(sum(phases.values()), 1)
    is_limited = False
    for phase, episodes in phases.items():
        learner = Learner(networks, config, phase, questions, stream.n_documents)
        if kept is not None and history and history[-1].phase == phase:
            _restore(kept, learner, generator)
        for episode in range(sum(past.phase == phase for past in history), episodes):
            learner.begin(episode / episodes)
            history.append(run_episode(environment, learner, episode, generator))
            if kept is not None and (len(history) % EVERY == 0 or len(history) == total):
                _save(kept, history, learner, generator)
            on_progress(len(history) / total)
        if episodes and phase != "fusion":
            is_limited = learner.multiplier.is_binding
    return history, is_limited


def _save(kept: Unfinished, history: Sequence[Episode], learner: Learner, generator: torch.Generator) -> None:
    """Saves the networks, their optimiser, the multiplier and the random state."""
    networks, optimiser = learner.networks.state_dict(), learner.optimiser.state()
    parts = {"agents": networks, "adam": optimiser, "rest": {"multiplier": learner.multiplier.values}}
    tensors = {f"{part}.{name}": value for part, some in parts.items() for name, value in some.items()}
    kept.write(tensors | {"generator": generator.get_state()}, {"history": history})


def _restore(kept: Unfinished, learner: Learner, generator: torch.Generator) -> None:
    """The inverse of `_save`."""
    stored = kept.read()
    assert stored is not None
    tensors = stored[1]
    learner.networks.load_state_dict(under("agents.", tensors))
    learner.optimiser.restore(under("adam.", tensors))
    learner.multiplier.values = tensors["rest.multiplier"]
    generator.set_state(tensors["generator"])


def finish(
    agents: type[Made], rows: Dataset, networks: Networks, config: PoolConfig, questions: Questions | None,
    memory: Memory, history: Sequence[Episode], seed: int, is_limited: bool, floor: Floor | None,
) -> Made:  # fmt: skip
    """One seed's agents, their pools within `mean_pool`."""
    for parameter in networks.parameters():  # the optimiser holds all of them in one vector
        parameter.data, parameter.grad = parameter.data.clone(), None
    made = agents(
        networks=networks, memory=memory, questions=questions, sizes=networks.sizes,
        config=config, benchmark=rows.benchmark, kind=rows.kind, models=rows.models, seed=seed,
        snapshot=rows.snapshot, history=tuple(history), floor=floor,
    )  # fmt: skip
    if questions is not None and config.mean_pool:
        keep_mean_pool(made, questions.numbers(rows), is_limited=is_limited)
    return made


@torch.no_grad()
def keep_mean_pool(agents: PoolAgents, questions: Tensor, *, is_limited: bool) -> None:
    """Lowers all branches alike until modal pools on the last train questions (T, G) ask at most `mean_pool`
    models on average; with `is_limited`, also raises them to that mean. The multiplier acts on sampled pools,
    and a short training can end before it has taken effect."""
    agents = replace(agents, floor=None)
    recent = questions[-_RECENT:]

    def mean_size(lowered: float) -> float:
        pools = agents.pools(recent, lambda logits, pool: chosen_pool(logits - lowered, pool))
        return float(pools.sum(axis=1).mean())

    if not is_limited and mean_size(0.0) <= agents.config.mean_pool:
        return
    branches = agents.networks.decider.question[0]
    too_little, enough = float(branches.min()) - 10.0, float(branches.max()) + 10.0
    lowered = least_enough(lambda by: mean_size(by) <= agents.config.mean_pool, too_little, enough, _HALVINGS)
    agents.networks.decider.question[0] -= lowered


@torch.no_grad()
def end_of_train(networks: Networks, stream: Stream, config: RLFocalConfig) -> Environment:
    """Where the agents stand after the last train documents, acting as they will at test."""
    environment = tail_environment(stream, config)

    def fuse(outputs: Tensor, is_open: Tensor, question: Tensor) -> Callable[[int, Tensor], Tensor]:
        logits = networks.fusion.by_step(outputs, is_open, question)
        return lambda t, past_rewards: modal_answer(logits(t, past_rewards))[..., None]

    def choose(t: int, observed: Tensor, pools: Tensor) -> Tensor:
        return next_modal_pool(networks.decider(observed), pools)

    environment.rollout(environment.length, choose, fuse)
    return environment
