"""Algorithm 2 of the paper: agents that go on learning along a stream that reveals its labels one by one."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlfocal.agents.environment import Buffer, Environment
from rlfocal.agents.learning import Learner, Scalars
from rlfocal.agents.metrics import observed_metrics
from rlfocal.agents.networks import Agents
from rlfocal.agents.policies import logistic_noise, modal_answer, sample_pool
from rlfocal.agents.stream import Stream
from rlfocal.agents.trained import TrainedAgents
from rlfocal.dataset import Dataset
from rlfocal.errors import InputError
from rlfocal.methods.base import Decisions

Array = NDArray[Any]


def decide_online(trained: TrainedAgents, documents: Dataset) -> Decisions:
    """Answer T documents in order; each label is revealed after its answer, and every T_u of them teach.

    The Decider samples, Fusion answers what is likeliest. Its reward is ±1, the Decider's Eq (6) with
    Fusion's answer. `trained` stays as it is. Raises InputError for agents of a single branch.
    """
    if not trained.config.branching:
        raise InputError("online learning needs a Decider with a branch per model; train with branching")
    config, n = trained.config, len(documents)
    agents = deepcopy(trained.agents)
    scalars = Scalars.of([config])
    lead = len(trained.memory.labels)
    stream = Stream(
        _after_memory(trained, documents),
        partial(observed_metrics, names=config.metrics),
        n_slots=trained.sizes.slots,
        window=lead,
    )
    environment = Environment(
        stream, scalars.size_penalty, config.past_rewards, stretches=1, copies=1, first=lead, length=n
    )
    environment.go_on_from(trained.pool_after(trained.memory.pool), trained.memory.past_rewards)
    learners = [Learner(agents, config, scalars, phase) for phase in ("decider", "fusion")]
    generator = torch.Generator().manual_seed(trained.seed)
    pools, answers = [], []
    for start in range(0, n, config.update_period):
        length = min(config.update_period, n - start)
        noise = logistic_noise(torch.rand((length, 1, 1, stream.n_models), generator=generator))
        with torch.no_grad():
            buffer = environment.walk(length, partial(_sampled, agents, noise), partial(_likeliest, agents))
        asked = buffer.pools[:, :-1, 0]
        rows = torch.arange(lead + start, lead + start + length)
        slots = stream.slots(asked, rows)
        answers.append(slots.at.gather(2, buffer.answers.transpose(0, 1).reshape(1, length, 1))[0, :, 0])
        pools.append(asked[0])
        if length > 1:
            for learner in learners:
                learner.update(buffer if learner.phase == "fusion" else _for_decider(buffer, scalars))
    predictions = torch.cat(answers).numpy().astype(np.int64)
    return Decisions(torch.cat(pools).numpy() > 0, predictions)


def _sampled(agents: Agents, noise: Tensor, t: int, observed: Tensor, before: Tensor) -> Tensor:
    return sample_pool(agents.pool_logits(observed), noise[t])


def _likeliest(agents: Agents, outputs: Tensor, is_open: Tensor) -> Callable[[int, Tensor], Tensor]:
    logits = agents.fuser(outputs, is_open)
    return lambda t, past: modal_answer(logits(t, past))


def _for_decider(buffer: Buffer, scalars: Scalars) -> Buffer:
    """Eq (6): what is wrong also costs the models asked."""
    share = buffer.pools[:, :-1].mean(-1)
    wrong = -1 - scalars.size_penalty.view(-1, 1, 1) * share
    return buffer._replace(rewards=torch.where(buffer.right > 0, 1.0, wrong))


def _after_memory(trained: TrainedAgents, documents: Dataset) -> Dataset:
    """The remembered end of train, the documents, and one empty row: the last pool is chosen for nothing."""
    memory = trained.memory
    blank = len(memory.labels)

    def around(values: Array, before: Array | Tensor, after: Array) -> Array:
        return np.concatenate([np.asarray(before), values, np.asarray(after)])

    n_models, n_slots = documents.probs.shape[1:]
    return replace(
        documents,
        probs=around(documents.probs, np.zeros((blank, n_models, n_slots)), np.zeros((1, n_models, n_slots))),
        n_choices=around(documents.n_choices, np.ones(blank, np.int64), np.ones(1, np.int64)),
        predictions=around(documents.predictions, memory.predictions, np.full((1, n_models), -1)),
        labels=around(documents.labels, memory.labels, np.array([-1])),
    )
