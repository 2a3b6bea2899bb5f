"""The train stream as a two-agent environment (paper, sections 1.2-1.4 and 1.9), many in parallel."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from rlfocal.agents.rl_focal.config import RLFocalConfig
from rlfocal.agents.rl_focal.questions import Questions, to_decider
from rlfocal.agents.shared.networks import Sizes
from rlfocal.agents.shared.stream import Memory, Stream, beside_pool, slots_kept, window_length
from rlfocal.agents.shared.variant import check_train
from rlfocal.dataset import Dataset
from rlfocal.statistics.windows import Window, observed_metrics

EACH = 3
"""One stretch in this many has a budget (of 2, 3 and 4, the best on train rows)."""
Choose = Callable[[int, Tensor, Tensor], Tensor]
"""Maps step t, o^Dec (S, B, N+K+1+G) and the current pools (S, B, N) to the next pools."""
Fuse = Callable[[Tensor, Tensor, Tensor], Callable[[int, Tensor], Tensor]]
"""Maps the pools' outputs (S, L, B, N·C), the slots that exist (S, L, B, C) and the question features (S, L,
B, G) to a function from step t and the past rewards (S, B, k) to the slots answered (S, B)."""


class State(NamedTuple):
    """The global states s_t = [o^Dec_{t+1}; o^Fus_t] of S × B environments, and what Fusion may answer."""

    decider: Tensor
    """(S, L, B, N+K+1+G) what the Decider chooses the next document's pool from."""
    fusion: Tensor
    """(S, L, B, N·C+k+G) what Fusion answers this document from."""
    open: Tensor
    """(S, L, B, C) the slots that exist."""


class Rollout(NamedTuple):
    """L joint actions of S seeds × B parallel environments."""

    states: State
    """L+1 of them: the last is where the actions led"""
    pools: Tensor
    """(S, L+1, B, N) the models asked in each state, 0 or 1; from the second on, the Decider's actions"""
    answers: Tensor
    """(S, L, B) Fusion's actions; empty in the first phase"""
    rewards: Tensor
    """(S, L, B) Fusion's; in the first phase the Decider's, each for the document that its pool answers"""
    right: Tensor
    """(S, L, B) 0 or 1, for the documents that the rewards are for"""
    gold: Tensor
    """(S, L, B) the right slot, -1 where there is none; empty in the first phase"""
    rows: Tensor
    """(L+1, B) the documents"""

    @property
    def sizes(self) -> Tensor:
        """(S, L, B) models asked"""
        return self.pools[:, :-1].sum(-1)


class Environment:
    """B = copies × stretches parallel environments for each of S seeds: the stream is cut into stretches, and
    every copy goes through each of them.

    All move in step, so that stretch g stands at document `first + g * length + t`. Each starts with the full
    pool answering its first document; from then on the Decider's action is the pool of the next document.
    """

    def __init__(
        self, stream: Stream, config: RLFocalConfig, n_seeds: int,
        *, stretches: int, copies: int, first: int, length: int, n_budgets: int = 0,
    ) -> None:  # fmt: skip
        self.stream, self.config, self.n_seeds = stream, config, n_seeds
        self.stretches, self.copies, self.n_parallel = stretches, copies, stretches * copies
        self.first, self.length, self.n_budgets = first, length, n_budgets
        self._starts = first + length * torch.arange(stretches)
        self.reset()

    def reset(self, episode: int = 0) -> None:
        """Puts every environment at its start, with the full pool and past rewards of 0. One stretch in three
        has to be answered within a budget; which stretch and budget changes with every episode."""
        shape = (self.n_seeds, self.n_parallel)
        at = (torch.arange(self.stretches) + episode) % max(EACH * self.n_budgets, 1)
        is_free = at % EACH > 0 if self.n_budgets else at == 0
        self.is_free = is_free.repeat(self.copies) if is_free.any() else torch.ones(self.n_parallel) > 0
        """(B,) where no budget holds; everywhere, if each has a budget"""
        told = at[:, None] == EACH * torch.arange(self.n_budgets)
        self._told = told.to(self.stream.questions.dtype)
        self._t = 0
        self._pools = torch.ones((*shape, self.stream.n_models))
        self._past = torch.zeros((*shape, self.config.past_rewards))

    def go_on_from(self, pool: Tensor, past_rewards: Tensor) -> None:
        """Puts every environment at its start, but with this pool (N,) and these past rewards (k,)."""
        self.reset()
        self._pools = pool.expand_as(self._pools).clone()
        self._past = past_rewards.expand_as(self._past).clone()

    def rollout(self, length: int, choose: Choose, fuse: Fuse | None) -> Rollout:
        """Answer `length` documents. Fusion earns ±1. Without `fuse`, the plurality of the pools that the
        actions chose answers in its place and is rewarded by Eq (6); an empty pool counts as wrong and earns
        -1.

        Fusion's answers do not change what the Decider sees, so the pools of all steps are chosen first.
        """
        decider, pools = self._choose(length, choose)
        rows = self._starts + torch.arange(self._t, self._t + length + 1)[:, None]
        slots = self.stream.slots(self._by_document(pools), rows.flatten())
        outputs = self._by_seed(slots.distributions.flatten(2))
        is_open = self._by_seed(slots.open)
        question = self._about(rows).expand(self.n_seeds, -1, -1, -1)
        if fuse is None:
            asked = self._by_document(pools).transpose(0, 1)
            all_right = self._by_seed(self.stream.right(asked, rows.flatten()).T[..., None])[..., 0]
            wrong = -1 - self.config.size_penalty * pools.mean(-1)
            plurality_earned = torch.where(all_right > 0, 1.0, wrong)
            earned, right = plurality_earned[:, 1:], all_right[:, 1:]
            past = torch.cat([self._past, plurality_earned[:, :-1].transpose(1, 2)], -1)
            answers = gold = right.new_zeros(0)
        else:
            labels = self.stream.labels[rows].view(-1, 1)
            is_right = self._by_seed(((slots.at == labels) & (slots.at >= 0)).to(outputs.dtype))[:, :-1]
            gold = torch.where(is_right.any(-1), is_right.argmax(-1), -1)
            act = fuse(outputs[:, :-1], is_open[:, :-1], question[:, :-1])
            answers, past = self._answer(is_right, act)
            earned = past[..., past.shape[-1] - length :].transpose(1, 2)
            right = (earned > 0).to(earned.dtype)
        k = self._past.shape[-1]
        ends = torch.arange(length + 1)[:, None] + torch.arange(k)
        seen = past[..., ends].transpose(1, 2)
        self._t += length
        self._pools, self._past = pools[:, -1], seen[:, -1]
        states = State(decider, torch.cat([outputs, seen, question], -1), is_open)
        return Rollout(states, pools, answers, earned, right, gold, rows.repeat(1, self.copies))

    def memories(self) -> list[Memory]:
        """Per seed, the state of its last environment."""
        window = slice(-self.stream.window, None)
        seen = self.stream.predictions[window], self.stream.labels[window]
        return [Memory(*seen, self._past[s, -1], self._pools[s, -1]) for s in range(self.n_seeds)]

    def _choose(self, length: int, choose: Choose) -> tuple[Tensor, Tensor]:
        """(S, length+1, B, ...) the Decider's observations, and the pools, from this document on."""
        pools, observed = [self._pools], [self._observe(self._pools, self._t)]
        for t in range(length):
            pools.append(choose(t, observed[-1], pools[-1]))
            observed.append(self._observe(pools[-1], self._t + t + 1))
        return torch.stack(observed, 1), torch.stack(pools, 1)

    def _observe(self, pools: Tensor, t: int) -> Tensor:
        """(S, B, N+K+1+G) o^Dec after the t-th document of each stretch."""
        by_stretch = pools.reshape(-1, self.stretches, pools.shape[-1]).transpose(0, 1)
        looked_back = self.stream.metrics(by_stretch, self.first + t + 1, self.length)
        observed = beside_pool(by_stretch, looked_back).transpose(0, 1).reshape(*pools.shape[:2], -1)
        # No action depends on what follows the last document.
        following = (self._starts + t + 1).clamp(max=self.stream.n_documents - 1)
        question = to_decider(self._about(following[None])[0], self.n_budgets)
        return torch.cat([observed, question.expand(self.n_seeds, -1, -1)], -1)

    def _about(self, rows: Tensor) -> Tensor:
        """(L, B, G) question features of the documents `rows` (L, stretches), the same for every copy."""
        known = self.stream.questions[rows]
        if self.n_budgets:
            told = self._told.expand(len(rows), -1, -1)
            known = torch.cat([known[..., : -self.n_budgets], told], -1)
        return known.repeat(1, self.copies, 1)

    def _answer(self, is_right: Tensor, answer: Callable[[int, Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        """(S, L, B) Fusion's slots and (S, B, k+L) its rewards, preceded by the k past ones."""
        length, k = is_right.shape[1], self._past.shape[-1]
        rewards = torch.cat([self._past, self._past.new_empty((*self._past.shape[:2], length))], -1)
        worth = 2 * is_right - 1
        answers = []
        for t in range(length):
            slot = answer(t, rewards[..., t : t + k])
            rewards[..., t + k] = worth[:, t].gather(-1, slot[..., None])[..., 0]
            answers.append(slot)
        return torch.stack(answers, 1), rewards

    def _by_document(self, by_seed: Tensor) -> Tensor:
        """(S, L, B, ...) -> (S·copies, L·stretches, ...)."""
        shape = (*by_seed.shape[:2], self.copies, self.stretches, *by_seed.shape[3:])
        parted = by_seed.view(shape).transpose(1, 2)
        return parted.flatten(0, 1).flatten(1, 2)

    def _by_seed(self, documents: Tensor) -> Tensor:
        """(S·copies, L·stretches, ...) -> (S, L, B, ...)."""
        shape = (self.n_seeds, self.copies, -1, self.stretches)
        return documents.reshape(*shape, *documents.shape[2:]).transpose(1, 2).flatten(2, 3)


def decider_observation(window: Window, config: RLFocalConfig) -> Tensor:
    """(E, P, N+K+1) o^Dec = [pool; metrics; size], the size as m/N, on the scale of the rest."""
    return beside_pool(window.members, observed_metrics(window, config.metrics))


def network_sizes(train: Dataset, config: RLFocalConfig, questions: Questions | None) -> Sizes:
    """The dimensions of the agents' networks on this data."""
    n_slots = slots_kept(train, config.answer_slots)
    known = 0 if questions is None else questions.columns.size
    return Sizes(len(train.models), n_slots, config.n_observed, config.past_rewards, known)


def train_stream(train: Dataset, config: RLFocalConfig, questions: Questions | None = None) -> Stream:
    """The stream of all train documents. Raises InputError as `check_train` does."""
    check_train(train)
    return Stream(
        train,
        partial(observed_metrics, names=config.metrics),
        n_slots=slots_kept(train, config.answer_slots),
        window=window_length(config.window, len(train)),
        questions=None if questions is None else questions.numbers(train),
    )


def train_environment(stream: Stream, config: RLFocalConfig, n_seeds: int, n_budgets: int = 0) -> Environment:
    """As many stretches as the configuration asks for and the stream has room for."""
    first = start_of(stream)
    room = stream.n_documents - 1 - first
    stretches = min(config.stretches, room)
    length = room // stretches
    return Environment(
        stream, config, n_seeds,
        stretches=stretches, copies=config.copies, first=first, length=length, n_budgets=n_budgets,
    )  # fmt: skip


def tail_environment(stream: Stream, config: RLFocalConfig, n_seeds: int) -> Environment:
    """The last T_u train documents: where a stream stands when test begins."""
    first = max(start_of(stream), stream.n_documents - 1 - config.update_period)
    length = stream.n_documents - 1 - first
    return Environment(stream, config, n_seeds, stretches=1, copies=1, first=first, length=length)


def start_of(stream: Stream) -> int:
    """The first document to learn from: the first with a full window, or the very first."""
    return stream.window - 1 if stream.window < stream.n_documents else 0
