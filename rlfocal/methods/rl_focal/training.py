"""Trains `rl_focal`: the two phases of Algorithm 1, then both agents together as in Algorithm 2."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from rlfocal.base.arrays import Floats, Ints
from rlfocal.data.dataset import Dataset
from rlfocal.data.folds import folds, split_folds
from rlfocal.data.policy import Budget, Episode, decide, least_enough
from rlfocal.methods.fallback import PolicyName, choose_base, choose_fallback, may_come_ahead, needed_margin
from rlfocal.methods.learning.agents import Progress, check_train
from rlfocal.methods.learning.networks import modal_answer, next_modal_pool, use_one_thread
from rlfocal.methods.learning.store import EPISODES_PER_SAVE, UnfinishedTraining, select_tensors
from rlfocal.methods.rl_focal.agents import PoolAgents, RLFocalAgents, chosen_pool
from rlfocal.methods.rl_focal.candidates import SelectedPools, SimpleCandidates, fit_simple
from rlfocal.methods.rl_focal.config import PoolConfig, RLFocalConfig
from rlfocal.methods.rl_focal.environment import (
    DocumentStream,
    Environment,
    Memory,
    Slots,
    network_sizes,
    tail_environment,
    train_environment,
    train_stream,
)
from rlfocal.methods.rl_focal.mappo import Learner, run_episode
from rlfocal.methods.rl_focal.networks import Networks, Sizes
from rlfocal.methods.rl_focal.questions import Questions, fit_questions

AgentsT = TypeVar("AgentsT", bound=PoolAgents)
START_POLICY: PolicyName = "start"
CONSTANT_POLICY: PolicyName = "constant pool"
LEARNED_POLICY: PolicyName = "learned"
N_TRIALS = 3
"""The number of folds of train on which agents are tried that were trained on the other folds."""
_RECENT_DOCUMENTS, _MAX_HALVINGS = 500, 12


def train(
    train_rows: Dataset,
    config: RLFocalConfig,
    seeds: Sequence[int],
    on_progress: Progress | None = None,
    folder: Path | None = None,
) -> list[RLFocalAgents]:
    """Trains the agents of each seed, which do not depend on the other seeds.

    Every few episodes the state of training is saved in `folder`. A killed training that is called again with
    the same arguments ends with the same agents as an uninterrupted one. Raises InputError for a pool of one
    model or fewer than two train documents.
    """
    prepared = prepare(train_rows, config)

    def train_seed(seed: int, report: Progress) -> RLFocalAgents:
        files: list[UnfinishedTraining] = []

        def fit(setup: TrainingSetup, report: Progress) -> RLFocalAgents:
            if folder is not None:
                files.append(UnfinishedTraining.locate(folder, config.revision, setup.rows, [seed], config))
            return _fit(setup, config, seed, files[-1] if files else None, report)

        agents = fit_and_choose(prepared, config, seed, fit, report)
        for file in files:
            file.forget()
        return agents

    return train_each(seeds, train_seed, on_progress)


def _fit(
    setup: TrainingSetup, config: RLFocalConfig, seed: int, file: UnfinishedTraining | None, report: Progress
) -> RLFocalAgents:
    """Trains one seed's agents, before any simpler policy is considered."""
    stream = train_stream(setup.rows, config, setup.questions)
    generator = torch.Generator().manual_seed(seed)
    networks = start_training(setup, config, generator, stream.outputs())
    history, is_limited = _learn(networks, stream, config, setup.questions, generator, file, report)
    memory = _end_of_train(networks, stream, config).memory()
    return finish_agents(RLFocalAgents, setup, networks, config, memory, history, seed, is_limited)


class TrainingSetup(NamedTuple):
    """The data and policies that the trainings of all seeds share."""

    dataset: Dataset
    """The train rows, with models in the order that the caller gave them."""
    rows: Dataset
    """The train rows, with models in the networks' order."""
    order: Ints
    """(N,) the position in `dataset` of each model in the networks' order"""
    questions: Questions | None
    sizes: Sizes
    simple_candidates: SimpleCandidates | None
    """The constant policies; None if the Decider has no branch per model, or Fusion no core."""


def prepare(
    train_rows: Dataset, config: PoolConfig, questions: Questions | None = None,
    selection: SelectedPools | None = None,
) -> TrainingSetup:  # fmt: skip
    """Checks train rows, orders their models independently of names, and fits the simple policies.

    If not given, `questions` is fitted to the rows, and `selection` is chosen on them. Raises InputError for
    a pool of one model or fewer than two train documents.
    """
    check_train(train_rows)
    order = train_rows.rank_models()
    rows = train_rows.reorder(order)
    questions = fit_questions(rows, config) if questions is None else questions
    sizes, shape = network_sizes(rows, config, questions), config.shape
    simple = None
    if questions is not None and shape.branching and shape.log_linear:
        simple = (
            _fit_simple_once(rows, config, questions, sizes)
            if selection is None
            else fit_simple(rows, config, questions, sizes, selection)
        )
    return TrainingSetup(train_rows, rows, order, questions, sizes, simple)


MAX_REMEMBERED_FITS = 64
_simple_fits: dict[tuple[object, ...], SimpleCandidates] = {}
"""The simple policies of the last fits in this process, by train rows and settings."""


def _fit_simple_once(
    rows: Dataset, config: PoolConfig, questions: Questions, sizes: Sizes
) -> SimpleCandidates:
    """The simple policies, fitted once for all methods with the same settings.

    Of a method's settings, only those of `PoolConfig` matter to them. On few documents, these fits are most
    of a training's work.
    """
    settings = (getattr(config, field.name) for field in fields(PoolConfig))
    key = (rows.fingerprint(), sizes.slots, *settings)
    if key not in _simple_fits:
        while len(_simple_fits) >= MAX_REMEMBERED_FITS:
            _simple_fits.pop(next(iter(_simple_fits)))
        _simple_fits[key] = fit_simple(rows, config, questions, sizes)
    return _simple_fits[key]


def start_training(
    setup: TrainingSetup, config: PoolConfig, generator: torch.Generator, everyone: Slots
) -> Networks:
    """The networks before they learn, with scales from the outputs of all models.

    If there are simple policies, the networks start from the constant pools and their Fusion.
    """
    networks = Networks(setup.sizes, config, generator, setup.rows.kind)
    networks.fusion.fit_scales(everyone.distributions, everyone.open, setup.rows, config.log_linear_start)
    if setup.simple_candidates is not None:
        networks.decider.start_from(setup.simple_candidates.policies.pools > 0, config)
        _start_fusion(networks, setup.simple_candidates)
    return networks


@torch.no_grad()
def _start_fusion(networks: Networks, simple: SimpleCandidates) -> None:
    """Sets Fusion's core to the trained Fusion of the constant pools, without a budget and within budgets.

    The core's ridge penalty then pulls to the weights of the start.
    """
    core, policies = networks.fusion.core, simple.policies
    assert core is not None
    assert policies.start is not None
    assert policies.weight is not None
    assert policies.slots is not None
    assert policies.bias is not None
    core.centre = torch.zeros_like(core.weight)
    core.centre[0] = policies.start[-1]
    core.strength = simple.strength
    core.weight.copy_(policies.weight[-1])
    core.slots.copy_(policies.slots[-1])
    core.bias.copy_(policies.bias[-1])
    n_budgets = len(policies.pools) - 1
    if n_budgets:
        core.weight[-n_budgets:] = policies.weight[:-1, 0] - policies.weight[-1, 0]
        core.bias[-n_budgets:] = (policies.bias[:-1] - policies.bias[-1])[:, :1].flatten(0, 1)


def fit_and_choose(
    setup: TrainingSetup,
    config: PoolConfig,
    seed: int,
    fit: Callable[[TrainingSetup, Progress], AgentsT],
    report: Progress,
) -> AgentsT:
    """Fits one seed's agents, and chooses which of their policies decides.

    Learned agents are tried out of fold only if they are ahead on their own train documents. Other agents
    would not be chosen.
    """
    is_judged = config.has_floor and setup.simple_candidates is not None
    agents = fit(setup, report if not is_judged else lambda done: report(done / 2))
    agents = replace(agents, models=setup.dataset.models, order=tuple(setup.order.tolist()))
    if not is_judged or setup.simple_candidates is None:
        return agents
    simple, names = setup.simple_candidates, (*setup.simple_candidates.names, LEARNED_POLICY)
    deciding: list[PolicyName] = [START_POLICY] * len(simple.rewards)
    if simple.rewards.shape[-1]:
        margin = needed_margin(setup.rows)
        chosen = _choose(
            names, np.vstack([simple.rewards[-1], _reward_decisions(agents, setup.dataset, -1)]), margin
        )
        earned = simple.rewards
        if chosen == LEARNED_POLICY:
            chosen = _choose(simple.names, earned[-1], margin)
            simpler = earned[-1, simple.names.index(chosen)]
            learned = _reward_out_of_fold(setup, simple, config, seed, fit, report, simpler, margin)
            if learned is not None:
                earned = np.concatenate([earned, learned], axis=1)
                chosen = _choose(names, earned[-1], margin)
        # Within a budget decides what decides without one, or a simpler policy that earned more.
        allowed = names[: names.index(chosen) + 1]
        worth = earned[:, [names.index(name) for name in allowed]].mean(axis=2)
        deciding = [*(allowed[at] for at in worth[:-1].argmax(axis=1)), chosen]
    report(1.0)
    return replace(agents, simple_policies=simple.policies._replace(deciding_policies=tuple(deciding)))


def _choose(names: Sequence[PolicyName], rewards: Floats, margin: float) -> PolicyName:
    """Chooses the policy that decides, by the rewards (J, T) of the policies `names`, from the simplest.

    The best single model and the start are compared by their means. Only comparisons of trained policies
    with the better of the two use up `CHOICE_LEVEL`.
    """
    base = choose_base(names[0], START_POLICY, rewards[:2])
    compared = [names.index(base), *range(2, len(names))]
    return choose_fallback([names[at] for at in compared], rewards[compared], margin)


def _reward_out_of_fold(
    setup: TrainingSetup,
    simple: SimpleCandidates,
    config: PoolConfig,
    seed: int,
    fit: Callable[[TrainingSetup, Progress], AgentsT],
    report: Progress,
    simpler: Floats,
    margin: float,
) -> Floats | None:
    """(K, 1, T) the agents' rewards at each place, on documents that they were not trained on.

    None if they cannot become clearly ahead of a policy with the rewards `simpler` (T,) without a budget.
    Pool sizes and priors were chosen on all documents, because choosing them is most of a trial's cost. What
    that adds to the trained pool's rewards is subtracted from the agents' rewards.
    """
    given, n_places = setup.dataset, len(simple.rewards)
    earned = np.zeros((n_places, 1, len(given)))
    fold = folds(given, N_TRIALS, seed=seed)
    favour = simple.selection_rewards - simple.rewards[:, simple.names.index(CONSTANT_POLICY)]
    for number, (others, out) in enumerate(split_folds(fold)):
        rest = prepare(given.take(others), config, setup.questions, simple.selection)
        agents = fit(rest, lambda done, number=number: report(0.5 + (number + done) / 2 / N_TRIALS))  # type: ignore[misc]
        agents = replace(agents, models=given.models, order=tuple(rest.order.tolist()))
        for place in range(n_places):
            earned[place, 0, out] = _reward_decisions(agents, given.take(out), place) - favour[place, out]
        tried = fold <= number
        if not may_come_ahead((earned[-1, 0] - simpler)[tried], len(given), margin):
            return None
    return earned


def _reward_decisions(agents: PoolAgents, documents: Dataset, place: int) -> Floats:
    """(T,) the rewards of the learned agents at a place, within a budget or without one.

    A right answer earns 1, less the penalty for each model asked.
    """
    agents = replace(agents, simple_policies=None)
    place = range(len(agents.budgets) + 1)[place]
    policy = agents if place == len(agents.budgets) else agents.hold_to_budget(Budget(agents.budgets[place]))
    assert policy is not None
    decided = decide(policy, documents)
    return np.asarray(
        documents.is_right(decided.predictions) - agents.config.call_penalty * decided.pools.sum(axis=1)
    )


def train_each(
    seeds: Sequence[int], train_seed: Callable[[int, Progress], AgentsT], on_progress: Progress | None
) -> list[AgentsT]:
    """Trains the agents of all seeds, with as many threads as cores.

    If the training of one seed fails, the others stop at their next report.
    """
    done, lock, is_over = dict.fromkeys(seeds, 0.0), threading.Lock(), threading.Event()

    def run(seed: int) -> AgentsT:
        torch.set_num_threads(1)  # holds for this thread only

        def report(share: float) -> None:
            with lock:
                if is_over.is_set():
                    raise InterruptedError("another seed failed")
                done[seed] = share
                if on_progress is not None:
                    on_progress(1.0 if all(d >= 1 for d in done.values()) else sum(done.values()) / len(done))

        return train_seed(seed, report)

    with use_one_thread(), ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        futures = [pool.submit(run, seed) for seed in seeds]
        try:
            return [future.result() for future in futures]
        finally:
            is_over.set()


def _learn(
    networks: Networks, stream: DocumentStream, config: RLFocalConfig, questions: Questions | None,
    generator: torch.Generator, file: UnfinishedTraining | None, on_progress: Progress,
) -> tuple[list[Episode], bool]:  # fmt: skip
    """Runs all phases of training; returns the history, and whether `mean_pool` limits pools at the end."""
    environment = train_environment(stream, config, 0 if questions is None else len(questions.budgets))
    history = [] if file is None else file.history()
    phases = {
        "decider": config.decider_episodes, "fusion": config.fusion_episodes, "joint": config.joint_episodes
    }  # fmt: skip
    total = max(sum(phases.values()), 1)
    is_limited = False
    for phase, episodes in phases.items():
        learner = Learner(networks, config, phase, questions, stream.n_documents)
        if file is not None and history and history[-1].phase == phase:
            _restore(file, learner, generator)
        for episode in range(sum(past.phase == phase for past in history), episodes):
            learner.begin(episode / episodes)
            history.append(run_episode(environment, learner, episode, generator))
            if file is not None and (len(history) % EPISODES_PER_SAVE == 0 or len(history) == total):
                _save(file, history, learner, generator)
            on_progress(len(history) / total)
        if episodes and phase != "fusion":
            is_limited = learner.multiplier.is_binding
    return history, is_limited


def _save(
    file: UnfinishedTraining, history: Sequence[Episode], learner: Learner, generator: torch.Generator
) -> None:
    """Saves the networks, their optimiser, the multiplier and the random state."""
    networks, optimiser = learner.networks.state_dict(), learner.optimiser.state()
    parts = {"agents": networks, "adam": optimiser, "rest": {"multiplier": learner.multiplier.values}}
    tensors = {f"{part}.{name}": value for part, some in parts.items() for name, value in some.items()}
    file.write(tensors | {"generator": generator.get_state()}, {"history": history})


def _restore(file: UnfinishedTraining, learner: Learner, generator: torch.Generator) -> None:
    """Restores what `_save` has saved."""
    stored = file.read()
    assert stored is not None
    tensors = stored[1]
    learner.networks.load_state_dict(select_tensors("agents.", tensors))
    learner.optimiser.restore(select_tensors("adam.", tensors))
    learner.multiplier.values = tensors["rest.multiplier"]
    generator.set_state(tensors["generator"])


def finish_agents(
    agents: type[AgentsT], setup: TrainingSetup, networks: Networks, config: PoolConfig, memory: Memory,
    history: Sequence[Episode], seed: int, is_limited: bool,
) -> AgentsT:  # fmt: skip
    """One seed's agents, whose pools keep to `mean_pool`, with models in the order of `setup.rows`."""
    for parameter in networks.parameters():  # the optimiser holds all of them in one vector
        parameter.data, parameter.grad = parameter.data.clone(), None
    rows, questions = setup.rows, setup.questions
    made = agents(
        networks=networks, memory=memory, questions=questions, sizes=networks.sizes,
        config=config, benchmark=rows.benchmark, kind=rows.kind, models=rows.models, seed=seed,
        snapshot=rows.snapshot, history=tuple(history),
    )  # fmt: skip
    if questions is not None and config.mean_pool:
        keep_mean_pool(made, questions.numbers(rows), is_limited=is_limited)
    return made


@torch.no_grad()
def keep_mean_pool(agents: PoolAgents, questions: Tensor, *, is_limited: bool) -> None:
    """Lowers all branches by one shift until pools have at most `mean_pool` models on average.

    The mean is over the last train `questions` (T, G). With `is_limited`, branches are also raised to that
    mean. The multiplier acts on sampled pools, and a short training can end before it takes effect.
    """
    recent = questions[-_RECENT_DOCUMENTS:]

    def mean_size(shift: float) -> float:
        pools = agents.pools(recent, lambda logits, pool: chosen_pool(logits - shift, pool))
        return float(pools.sum(axis=1).mean())

    if not is_limited and mean_size(0.0) <= agents.config.mean_pool:
        return
    branches = agents.networks.decider.question[0]
    too_little, enough = float(branches.min()) - 10.0, float(branches.max()) + 10.0
    lowered = least_enough(
        lambda by: mean_size(by) <= agents.config.mean_pool, too_little, enough, _MAX_HALVINGS
    )
    agents.networks.decider.question[0] -= lowered


@torch.no_grad()
def _end_of_train(networks: Networks, stream: DocumentStream, config: RLFocalConfig) -> Environment:
    """An environment after the last train documents, on which the agents took their likeliest actions."""
    environment = tail_environment(stream, config)

    def fuse(outputs: Tensor, is_open: Tensor, question: Tensor) -> Callable[[int, Tensor], Tensor]:
        logits = networks.fusion.make_step_function(outputs, is_open, question)
        return lambda t, past_rewards: modal_answer(logits(t, past_rewards))[..., None]

    def choose(t: int, observations: Tensor, pools: Tensor) -> Tensor:
        return next_modal_pool(networks.decider(observations), pools)

    environment.rollout(environment.length, choose, fuse)
    return environment
