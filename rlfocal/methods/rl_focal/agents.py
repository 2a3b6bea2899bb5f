"""The trained agents of the paper's RL-Focal: frozen decisions, a driver for a Router, and checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from rlfocal.base.arrays import Bools, Floats, Ints, Singles
from rlfocal.base.errors import InputError
from rlfocal.data.calls import Answers, Calls
from rlfocal.data.dataset import Dataset
from rlfocal.data.outputs import NO_ANSWER, FusedAnswer, QueryOutputs
from rlfocal.data.policy import Decisions
from rlfocal.methods.fallback import PolicyName
from rlfocal.methods.learning.agents import FusionAttribution, Tracker, TrainedAgents
from rlfocal.methods.learning.networks import SMALLEST_FLOAT, mask_closed, modal_answer, modal_move
from rlfocal.methods.rl_focal.candidates import SimplePolicies
from rlfocal.methods.rl_focal.config import PoolConfig, RLFocalConfig
from rlfocal.methods.rl_focal.environment import (
    Memory,
    Slots,
    build_slots,
    decider_observation,
    slot_inputs,
)
from rlfocal.methods.rl_focal.networks import LogLinearCore, Networks, Sizes
from rlfocal.methods.rl_focal.online import decide_and_learn
from rlfocal.methods.rl_focal.questions import Questions, to_decider
from rlfocal.statistics.windows import Outcomes, observed_metrics


class FusionOutput(NamedTuple):
    """Fusion's answers to T documents."""

    answers: Answers
    answer: Tensor
    """(T,) the answered slots, numbered among the slots that Fusion sees"""
    chances: Tensor
    """(T, C) Fusion's probability that each slot is right"""


@dataclass(frozen=True, kw_only=True)
class PoolAgents(TrainedAgents):
    """Networks of one seed that choose one pool per document, and the stream's state at the end of train."""

    method: str = "rl_focal"
    networks: Networks
    memory: Memory
    questions: Questions | None
    sizes: Sizes
    config: PoolConfig
    simple_policies: SimplePolicies | None = None
    """The constant policies that may decide instead; None: the trained networks always decide."""
    order: tuple[int, ...] = ()
    """(N,) the position among `models` of each model in the networks' order; empty if both orders are equal.

    Memory and simple policies have the networks' order too, so that models' names do not matter.
    """

    @property
    def most_choices(self) -> float:
        # Only a network's weights have slots of their own; without one, the core reads further choices, too.
        return np.inf if self.networks.fusion.network is None else self.sizes.slots

    @property
    def places(self) -> Ints:
        """(N,) the position among `models` of each model in the networks' order."""
        return np.array(self.order or range(len(self.models)))

    def reorder(self, documents: Dataset) -> Dataset:
        """The documents with their models in the networks' order."""
        return documents.reorder(self.places) if self.order else documents

    def read_slots(self, documents: Dataset, pools: Singles) -> Slots:
        """The slots that Fusion sees if the models of the pools (T, N), one per document, are asked."""
        n_slots = self.sizes.slots
        if self.kind == "choices":
            n_slots = int(min(max(documents.n_choices.max(initial=0), n_slots), self.most_choices))
        probs, n_choices = slot_inputs(self.reorder(documents), n_slots)
        asked = torch.from_numpy(pools[:, self.places])
        return build_slots(probs, n_choices, asked, self.kind, n_slots)

    @torch.no_grad()
    def fuse(self, slots: Slots, features: Tensor) -> FusionOutput:
        """Fusion's answers to T documents, from the slots that it sees and question features (T, G).

        Where one model alone decides, the answer is that model's.
        """
        if self._is_alone(features):
            voted = slots.distributions.sum(1)
            logits = mask_closed(voted.clamp_min(SMALLEST_FLOAT).log(), slots.open)
        else:
            core = self.core(features, slots.open.shape[-1])
            if core is None or core is self.networks.fusion.core:
                past = self.memory.past_rewards.expand(len(features), -1)
                given = torch.cat([slots.distributions.flatten(1), past, features], -1)
                logits = self.networks.fusion(given, slots.open)
            else:
                logits = mask_closed(
                    core(core.evidence(slots.distributions, slots.open), features), slots.open
                )
        answer = modal_answer(logits)
        answered = slots.numbers.gather(1, answer[:, None])[:, 0]
        chances = torch.softmax(logits, -1)
        chance = torch.where(answered >= 0, chances.gather(1, answer[:, None])[:, 0], 0)
        answers = Answers(answered.numpy().astype(np.int64), chance.numpy().astype(np.float64))
        return FusionOutput(answers, answer, chances)

    def core(self, features: Tensor, n_slots: int) -> LogLinearCore | None:
        """The log-linear core that fuses `n_slots` slots within the budget in `features` (T, G); None without
        a core."""
        own = self.networks.fusion.core
        chosen = (
            None
            if self.simple_policies is None
            else self.simple_policies.fusion(self.find_fallback(features), self._place(features))
        )
        core = own
        if own is not None and chosen is not None:
            core = LogLinearCore(self.sizes, self.kind)
            core.load_state_dict(own.state_dict() | chosen)
        return core if core is None or n_slots == self.sizes.slots else core.widen(n_slots)

    @property
    def deciding_policies(self) -> tuple[PolicyName, ...]:
        """The policy that decides within each budget, and last without one; empty if there is no choice."""
        return () if self.simple_policies is None else self.simple_policies.deciding_policies

    @property
    def team(self) -> Bools:
        """(N,) the models of the best constant pool without a budget. Raises ValueError if there is none."""
        if self.simple_policies is None:
            raise ValueError("these agents hold no constant pool")
        return np.asarray(self.simple_policies.pools[-1].numpy()[np.argsort(self.places)] > 0)

    def restore_start(self) -> Self:
        """The agents before training, whose start decides. Raises ValueError without a constant pool."""
        if self.simple_policies is None:
            raise ValueError("these agents hold no constant pool")
        start: list[PolicyName] = ["start"] * len(self.simple_policies.deciding_policies)
        return replace(
            self, simple_policies=self.simple_policies._replace(deciding_policies=tuple(start)), history=()
        )

    @property
    def recent_accuracy(self) -> Floats:
        """(N,) each model's accuracy over the last train documents, which `memory` holds."""
        right = self.memory.predictions == self.memory.labels[:, None]
        return np.asarray(right.double().mean(0).numpy()[np.argsort(self.places)])

    @property
    def tasks(self) -> tuple[str, ...]:
        """The train tasks that have a question feature."""
        return () if self.questions is None else self.questions.tasks

    @property
    def budgets(self) -> tuple[int, ...]:
        """The budgets, in models, that question features can hold."""
        return () if self.questions is None else self.questions.budgets

    def find_fallback(self, features: Tensor) -> PolicyName:
        """The policy that decides within the budget in question features (T, G), the same in all rows."""
        return (
            "learned"
            if self.simple_policies is None
            else self.simple_policies.deciding_policies[self._place(features)]
        )

    def _is_alone(self, features: Tensor) -> bool:
        """Whether one model alone decides within the budget in `features` (T, G)."""
        return self.find_fallback(features) in ("best single", "best single per task")

    def _place(self, features: Tensor) -> int:
        """The position in `budgets` of the budget in features (T, G); without one, the number of budgets."""
        told = features[:1, features.shape[1] - len(self.budgets) :]
        return int(told.argmax()) if told.any() else len(self.budgets)

    def read_question_features(self, documents: Dataset | Calls, budget: int | None = None) -> Tensor:
        """(T, G) question features, for answers within `budget`, one of `budgets`, or without one."""
        if self.questions is None:
            return torch.zeros(len(documents), 0)
        return self.questions.numbers(documents, budget)

    @torch.no_grad()
    def branch_logits(self, pool: Tensor) -> Tensor:
        """(N,) the trunk's part of the frozen Decider's logits after `pool` (N,).

        Metrics are over the window at the end of train.
        """
        predictions, labels = self.memory.predictions, self.memory.labels
        outcomes = Outcomes(predictions, labels, int(predictions.max()) + 1, self.kind, 0)
        looked_back = outcomes.window(pool[None, None], len(labels), len(labels), 1)
        observed = decider_observation(
            looked_back.members, observed_metrics(looked_back, self.config.shape.metrics)
        )
        return self.networks.decider.pool_logits(observed[0])[0]

    @torch.no_grad()
    def question_logits(self, features: Tensor) -> Tensor:
        """(..., N) what question features (..., G) add to the Decider's logits."""
        return to_decider(features, len(self.budgets)) @ self.networks.decider.question

    def pools(
        self, features: Tensor, choose: Callable[[Singles, Singles], Singles],
        pool: Singles | None = None, cache: dict[bytes, Singles] | None = None,
    ) -> Singles:  # fmt: skip
        """(T, N) the Decider's pools of 0 and 1, each from the previous pool and question features (T, G).

        The first follows `pool` (N,), or the last pool of train. `cache` keeps the branch logits after each
        pool. `choose` sees models in the networks' order.
        """
        deciding, back = self.find_fallback(features), np.argsort(self.places)
        if self.simple_policies is not None and deciding != "learned":
            constant = self.simple_policies.logits(
                deciding, self._place(features), features[:, 1 : 1 + len(self.tasks)]
            )
            rows = [choose(logits, logits) for logits in constant.numpy()]
            return np.array(rows, dtype=np.float32).reshape(len(features), len(self.models))[:, back]
        cache = {} if cache is None else cache
        pool = self.memory.pool.numpy() if pool is None else pool[self.places]
        pools = np.zeros((len(features), len(self.models)), dtype=np.float32)
        # In numpy, which takes a tenth of torch's time per document.
        for row, of_question in enumerate(self.question_logits(features).numpy()):
            key = pool.tobytes()
            if key not in cache:
                cache[key] = self.branch_logits(torch.from_numpy(pool)).numpy()
            pools[row] = pool = choose(cache[key] + of_question, pool)
        return pools[:, back]

    def least_cost(self, costs: Floats | None) -> float:
        if not self.config.shape.branching:
            return np.inf
        return 1.0 if costs is None else float(costs.min())

    @torch.no_grad()
    def decide(
        self, calls: Calls, most: float = np.inf, costs: Floats | None = None, size: int | None = None
    ) -> Answers:
        """Decides from the state at the end of train; both agents take their likeliest actions.

        With `size`, the `size` models with the likeliest branches are asked. Else the `most` likeliest are,
        if `most` is a budget that the agents know, or less than the Decider would ask. Otherwise the
        Decider's likeliest pool is. With `costs`, the likeliest models are asked as long as `most` pays for
        them, within the budget in models that it allows.
        """
        # Pools of a size are the Decider's, whether it is what decides or not.
        if size is not None and self.simple_policies is not None:
            return replace(self, simple_policies=None).decide(calls, most, costs, size)
        self.check(calls)
        costs = None if costs is None else costs[self.places]
        told = self._read_budget(most if size is None else size, costs)
        about = self.read_question_features(calls, told)
        if size is None and not self._is_alone(about):
            size = told
        choose = partial(chosen_pool, most=most, size=size, costs=costs)
        pools = self._replace_failed(self.pools(about, choose), calls.down)
        return self.fuse(self.read_slots(calls.call(pools > 0), pools), about).answers

    @torch.no_grad()
    def account(self, calls: Calls) -> FusionAttribution:
        self.check(calls)
        about = self.read_question_features(calls)
        pools = self._replace_failed(self.pools(about, chosen_pool), calls.down)
        heard = self.read_slots(calls.call(pools > 0), pools)
        answered, answer, chances = self.fuse(heard, about)
        slot_of = heard.numbers.numpy()
        rows, slots = np.nonzero(slot_of >= 0)
        distribution = np.zeros((len(calls), max(int(slot_of.max(initial=0)) + 1, self.sizes.slots)))
        distribution[rows, slot_of[rows, slots]] = chances.numpy()[rows, slots]
        core = self.core(about, heard.open.shape[-1])
        if core is None:
            return FusionAttribution(answered.slots, distribution, None)
        with torch.no_grad():
            added = core.contributions(core.evidence(heard.distributions, heard.open), about)
        added = added[:, np.argsort(self.places)]
        return FusionAttribution(answered.slots, distribution, pulls(added, answer, heard.open))

    def _replace_failed(self, pools: Singles, down: Bools) -> Singles:
        """The pools (T, N), in which the most accurate other models replace those that are down."""
        if not down.any():
            return pools
        places, back = self.places, np.argsort(self.places)
        accuracy = self.recent_accuracy[places]
        return stand_ins(pools[:, places] > 0, down[places], accuracy).astype(np.float32)[:, back]

    def _read_budget(self, most: float, costs: Floats | None) -> int | None:
        """The budget in models within which the agents act; None without a budget.

        With `costs`: None if `most` pays for the pool without a budget. Else it is the largest budget for
        which `most` pays in full, likeliest models first; the smallest if `most` pays for none.
        """
        budgets = self.budgets
        if costs is None:
            return int(most) if most in budgets else None
        if not budgets:
            return None
        of_question = self.networks.decider.question.detach().numpy()
        logits = self.branch_logits(self.memory.pool).numpy() + of_question[[0, *range(-len(budgets), 0)]]
        if costs[logits[0] > 0].sum() <= most:
            return None
        pools = [
            chosen_pool(of_budget, of_budget, most, b, costs)
            for b, of_budget in zip(budgets, logits[1:], strict=True)
        ]
        return max([b for b, pool in zip(budgets, pools, strict=True) if pool.sum() == b] or budgets[:1])


@dataclass(frozen=True, kw_only=True)
class RLFocalAgents(PoolAgents):
    """The Decider, Fusion and critic of one seed."""

    config: RLFocalConfig

    def decide_online(self, documents: Dataset) -> Decisions:
        """Decides by Algorithm 2: both agents learn after every T_u labels (`OnlineJointLearner`).

        Raises InputError for documents of another pool, and for agents without a branch per model.
        """
        self.check(documents)
        if not self.config.branching:
            raise InputError("online learning needs a Decider with a branch per model; train with branching")
        decided = decide_and_learn(self, self.reorder(documents))
        return replace(decided, pools=decided.pools[:, np.argsort(self.places)])


@dataclass(frozen=True, kw_only=True)
class GatedAgents(PoolAgents):
    """The mask of models and the log-linear ensemble of one seed of `gated_log_linear`."""

    method: str = "gated_log_linear"

    def decide_online(self, documents: Dataset) -> Decisions:
        raise InputError("gated_log_linear does not learn online; leave out --protocol online")


def chosen_pool(
    logits: Singles, pool: Singles, most: float = np.inf, size: int | None = None, costs: Floats | None = None
) -> Singles:
    """(N,) the likeliest pool of 0 and 1, from the logits of N branches, or of N+1 moves from `pool` (N,).

    With branches, the pool has at most `most` models, or `size` of them. With `costs` (N,), it has at most
    `size` models, which cost at most `most` in all.
    """
    if len(logits) > len(pool):
        moved: Singles = modal_move(torch.from_numpy(logits), torch.from_numpy(pool)).numpy()
        return moved
    if size is None:
        chosen = logits > 0
        n_chosen = int(np.count_nonzero(chosen))
        if n_chosen and (n_chosen if costs is None else costs[chosen].sum()) <= most:
            return chosen.astype(np.float32)
        size = max(n_chosen, 1)  # at least one has to answer
    likeliest = np.argsort(-logits, kind="stable")
    asked = np.zeros(len(logits), dtype=np.float32)
    if costs is None:
        asked[likeliest[: int(min(size, most))]] = 1
        return asked
    for model in likeliest:
        if asked.sum() < size and costs[model] <= most:
            asked[model], most = 1, most - costs[model]
    return asked


def stand_ins(pools: Bools, down: Bools, accuracy: Floats) -> Bools:
    """(T, N) the pools, in which other models replace those that are `down` (N,).

    They are the most accurate models that are neither down nor in the pool.
    """
    best = np.argsort(-accuracy, kind="stable")
    free = (~pools & ~down)[:, best]
    comes = free & (free.cumsum(axis=1) <= (pools & down).sum(axis=1, keepdims=True))
    return np.asarray((pools & ~down) | comes[:, np.argsort(best)])


def pulls(contributions: Tensor, answer: Tensor, is_open: Tensor) -> Floats:
    """(T, N) how much each model raises the logit of the answer (T,) over the mean of other open slots.

    `contributions` (T, N, C) is what each model adds to each logit, and `is_open` (T, C) tells open slots.
    Pulls are 0 where no other slot is open.
    """
    others = is_open & (torch.arange(is_open.shape[1]) != answer[:, None])
    usual = (contributions * others[:, None]).sum(2) / others.sum(1, keepdim=True).clamp(min=1)
    own = contributions.gather(2, answer[:, None, None].expand(-1, contributions.shape[1], 1))[..., 0]
    return np.asarray(torch.where(others.any(1, keepdim=True), own - usual, 0).double().numpy())


class PoolDriver:
    """A driver whose Decider picks one pool per query, from the question and the previous pool."""

    def __init__(self, agents: PoolAgents) -> None:
        self._agents, self._accuracy = agents, agents.recent_accuracy
        self._pool: Singles = agents.memory.pool.numpy()
        self._pool_cache: dict[bytes, Singles] = {}
        self._query = ("", "")
        self._features = torch.zeros(0)

    def tracker(self) -> Tracker:
        promised = max((episode.accuracy for episode in self._agents.history), default=0.0)
        return Tracker(self._accuracy, promised, min(3, len(self._accuracy)), self._agents.seed)

    def begin(self, question: str, task: str) -> None:
        self._query = (question, task)
        self._features = self._agents.read_question_features(self._agents.document(question, task))
        self._pool = self._agents.pools(self._features, chosen_pool, self._pool, self._pool_cache)[0]

    def forget(self) -> None:
        pass

    def choose_models(self, outputs: QueryOutputs) -> Bools:
        """(N,) the models of the pool, and a stand-in for each of them that is down."""
        pool = self._pool > 0
        return np.asarray(pool | (self._agents._replace_failed(self._pool[None], outputs.is_down)[0] > 0))

    def fuse(self, outputs: QueryOutputs) -> FusedAnswer:
        if not outputs.probs.any():
            return NO_ANSWER
        answered = outputs.is_asked & ~outputs.is_down
        asked = self.choose_models(outputs) & answered
        pool = (asked if asked.any() else answered).astype(np.float32)
        heard = self._agents.read_slots(self._agents.document(*self._query, outputs), pool[None])
        slots, probability = self._agents.fuse(heard, self._features).answers
        assert probability is not None
        return FusedAnswer(int(slots[0]), float(probability[0])) if slots[0] >= 0 else NO_ANSWER
