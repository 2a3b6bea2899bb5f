"""Algorithm 2: both agents and the critic learn on a stream, from the rewards of their answers."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import Decisions, Episode, least_enough
from rlfocal.methods.learning.networks import (
    gumbel_noise,
    logistic_noise,
    modal_answer,
    modal_pool,
    sample_pool,
    sample_slot,
)
from rlfocal.methods.rl_focal.config import RLFocalConfig
from rlfocal.methods.rl_focal.environment import DocumentStream, Environment, Memory, Rollout
from rlfocal.methods.rl_focal.mappo import Learner
from rlfocal.methods.rl_focal.networks import Fusion, Networks
from rlfocal.methods.rl_focal.questions import Questions
from rlfocal.statistics.windows import Outcomes, observed_metrics

if TYPE_CHECKING:
    from rlfocal.methods.rl_focal.agents import RLFocalAgents

Array = NDArray[Any]

LABEL_DISCOUNT = 0.8
"""The factor on earlier comparisons of the trained and the online Fusion, after every T_u labels."""
NEVER_ASKED_LOGIT = 10.0
"""The number below whose negative a branch's constant practically never lets its model be asked."""
MAX_EXPLORED_LOGIT = 1.0
"""The highest logit to which exploration raises a branch: a probability of 73 %."""
_BISECTION_STEPS = 30
LEAD_STANDARD_ERRORS = 1.0
"""The number of standard errors by which the online Fusion has to be ahead of the trained one."""


class AskedStream(DocumentStream):
    """A stream whose metrics are over documents about which all members of a pool were asked."""

    def __init__(self, *args: Any, lead: int, n_metrics: int, **named: Any) -> None:
        """Makes the stream. Its first `lead` documents are of train, where every model counts as asked."""
        super().__init__(*args, **named)
        self.n_metrics = n_metrics
        self.is_asked = torch.zeros(self.n_documents, self.n_models)
        self.is_asked[:lead] = 1

    def note(self, rows: Tensor, pools: Tensor) -> None:
        self.is_asked[rows] = pools

    def metrics(self, pools: Tensor, end: int, stride: int = 1) -> Tensor:
        """(1, 1, K) metrics of the pool (1, 1, N) over the window before `end`; 0 if no document counts."""
        rows = torch.arange(max(end - self.window, 0), end)
        rows = rows[(self.is_asked[rows] >= pools[0, 0]).all(1)]
        if not len(rows):
            return pools.new_zeros((1, 1, self.n_metrics))
        predictions, labels = self.predictions[rows], self.labels[rows]
        outcomes = Outcomes(predictions, labels, self.probs.shape[2], self.kind, 0)
        return self.measure(outcomes.window(pools, len(rows), len(rows), 1))


class OnlineJointLearner:
    """Lets both agents learn on a stream as in train's joint phase, on T_u documents at a time.

    Pools are sampled, and answers are Fusion's likeliest. After every update the Decider explores: unused
    calls of `mean_pool` go to models that it hardly asks. The online Fusion answers once it has been right
    clearly more often than the trained one, which is better where nothing changes. With one sampled answer
    per document, as in the paper's text, agents learn from the answer given and explore only by sampling.
    """

    def __init__(
        self, networks: Networks, config: RLFocalConfig, questions: Questions | None, seed: int
    ) -> None:
        self.networks, self.config = networks, config
        self.history: list[Episode] = []
        """The figures of each update of both agents and the critic."""
        self._trained = deepcopy(networks.fusion)
        self._gain = self._spread = 0.0
        self._generator = torch.Generator().manual_seed(seed)
        rates = replace(config, core_rate=config.core_rate * config.online_share)
        self.learner = Learner(networks, rates, "joint", questions)

    @property
    def fusion(self) -> Fusion:
        """The Fusion that gives the next answers: the trained one, or the online one, which learns on."""
        leads = self._gain > LEAD_STANDARD_ERRORS * self._spread**0.5
        return self.networks.fusion if leads or self.config.samples == 1 else self._trained

    def choose(self, t: int, observations: Tensor, last_pools: Tensor) -> Tensor:
        """(B, N) the next pools, sampled by the Decider; an empty pool is replaced by the likeliest model."""
        logits = self.networks.decider(observations)
        pools = sample_pool(logits, logistic_noise(torch.rand(logits.shape, generator=self._generator)))
        return torch.where(
            pools.any(-1, keepdim=True), pools, modal_pool(logits - logits.amax(-1, keepdim=True))
        )

    def fuse(self, outputs: Tensor, is_open: Tensor, question: Tensor) -> Callable[[int, Tensor], Tensor]:
        """A function of step and past rewards that returns several answers (B, 3 + samples) to each document.

        They are the answer given, the likeliest answers of the trained and the online Fusion, and the sampled
        answers from which Fusion learns.
        """
        trained, online = (
            fusion.make_step_function(outputs, is_open, question)
            for fusion in (self._trained, self.networks.fusion)
        )
        is_online = self.fusion is self.networks.fusion

        def answer(t: int, past: Tensor) -> Tensor:
            logits = online(t, past)
            likeliest = torch.stack([modal_answer(trained(t, past)), modal_answer(logits)], -1)
            given = likeliest[..., int(is_online), None]
            shape = (*logits.shape[:-1], self.config.samples, logits.shape[-1])
            noise = gumbel_noise(torch.rand(shape, generator=self._generator))
            sampled = given if self.config.samples == 1 else sample_slot(logits[..., None, :], noise)
            return torch.cat([given, likeliest, sampled], -1)

        return answer

    def learn(self, rollout: Rollout) -> None:
        """Updates both agents and the critic on one rollout."""
        sampled = [part[..., 3:] for part in (rollout.answers, rollout.rewards, rollout.right)]
        learned = rollout._replace(answers=sampled[0], rewards=sampled[1], right=sampled[2])
        learned_by = self.learner.update(learned)
        earned = rollout.rewards[..., 0].mean(), rollout.right[..., 0].mean(), rollout.sizes.mean()
        row = [float(part) for part in (*earned, *learned_by)]
        self.history.append(Episode("online", len(self.history), *row))
        if self.config.samples > 1:
            self._judge(rollout.right[..., 1:3].flatten(0, 1))
            self._explore(rollout)

    def _judge(self, right: Tensor) -> None:
        """Compares the trained and the online Fusion on documents that neither has learned from.

        `right` (L, 2): whether the answer of each was right.
        """
        trained, online = right.unbind(-1)
        self._gain = LABEL_DISCOUNT * self._gain + float((online - trained).sum())
        self._spread = LABEL_DISCOUNT * self._spread + float((online - trained).abs().sum())

    @torch.no_grad()
    def _explore(self, rollout: Rollout) -> None:
        """Moves branches' constants until pools for the last documents have `mean_pool` models on average.

        It raises the lowest constants to one level, or lowers all of them by the same amount.
        """
        decider = self.networks.decider
        if not len(decider.question):  # agents that do not look at questions have no constants
            return
        constants = decider.question[0]
        logits = decider(rollout.decider[:-1].flatten(0, 1))

        def move_constants(level: float) -> Tensor:
            """(N,) constants of branches, of at least `level`.

            All are lowered by as much as `level` is below -NEVER_ASKED_LOGIT.
            """
            return constants.clamp(min=level) + min(level + NEVER_ASKED_LOGIT, 0.0)

        def is_within(level: float) -> bool:
            size = float(torch.sigmoid(logits + move_constants(level) - constants).sum(1).mean())
            return not size > self.config.mean_pool > 0

        constants.copy_(
            move_constants(
                least_enough(is_within, MAX_EXPLORED_LOGIT, -2 * NEVER_ASKED_LOGIT, _BISECTION_STEPS)
            )
        )


def decide_and_learn(agents: RLFocalAgents, documents: Dataset) -> Decisions:
    """Decides on T documents in order, where a copy of the agents learns after every T_u labels."""
    config, n, lead = agents.config, len(documents), len(agents.memory.labels)
    about = agents.read_question_features(documents)
    stream = AskedStream(
        _prepend_memory(agents.memory, documents),
        partial(observed_metrics, names=config.metrics),
        n_slots=agents.sizes.slots,
        window=lead,
        questions=torch.cat([about.new_zeros((lead, about.shape[1])), about]),
        lead=lead,
        n_metrics=len(config.metrics),
    )
    environment = Environment(stream, config, stretches=1, copies=1, first=lead, length=n)
    environment.resume_from(agents.memory.pool, agents.memory.past_rewards)
    learner = OnlineJointLearner(deepcopy(agents.networks), config, agents.questions, agents.seed)
    pools, answers = [], []
    for start in range(0, n, config.update_period):
        with torch.no_grad():
            length = min(config.update_period, n - start)
            rollout = environment.rollout(length, learner.choose, learner.fuse)
        answers.append(_read_first_answers(stream, rollout))
        pools.append(rollout.pools[:, 0])
        learner.learn(rollout)
    predictions = torch.cat(answers).numpy().astype(np.int64)
    return Decisions(torch.cat(pools).numpy() > 0, predictions, updates=tuple(learner.history))


def _read_first_answers(stream: DocumentStream, rollout: Rollout) -> Tensor:
    """(L,) the first answer to each document of the only environment, as the dataset's slot."""
    slot_of = stream.slots(rollout.pools[:, 0], rollout.rows[:, 0]).numbers
    return slot_of.gather(1, rollout.answers[:, 0, :1])[:, 0]


def _prepend_memory(memory: Memory, documents: Dataset) -> Dataset:
    """The documents in memory from the end of train, followed by these documents."""
    blank = len(memory.labels)

    def append_values(memory_values: Array | Tensor, values: Array) -> Array:
        return np.concatenate([np.asarray(memory_values), values])

    n_models, n_slots = documents.probs.shape[1:]
    return replace(
        documents,
        probs=append_values(np.zeros((blank, n_models, n_slots)), documents.probs),
        n_choices=append_values(np.ones(blank, np.int64), documents.n_choices),
        predictions=append_values(memory.predictions, documents.predictions),
        labels=append_values(memory.labels, documents.labels),
    )
