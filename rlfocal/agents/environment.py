"""The train stream as a two-agent environment (paper, sections 1.2-1.4 and 1.9), many walks at once."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from rlfocal.agents.config import RLFocalConfig
from rlfocal.agents.metrics import Window, observed_metrics
from rlfocal.agents.networks import Sizes
from rlfocal.agents.outcomes import Outcomes
from rlfocal.agents.slots import build_slots, slot_inputs
from rlfocal.dataset import Dataset
from rlfocal.errors import InputError


class State(NamedTuple):
    """The global state s_t = [o^Dec_{t+1}; o^Fus_t] of S seeds × B walks, and what Fusion may answer."""

    decider: Tensor
    """(S, B, N+K+1) what the Decider chooses the next document's pool from."""
    fusion: Tensor
    """(S, B, N·C+k) what Fusion answers this document from."""
    open: Tensor
    """(S, B, C) the slots that exist."""


class Step(NamedTuple):
    """What a joint action led to."""

    reward: Tensor
    """(S, B)"""
    right: Tensor
    """(S, B) 0 or 1"""
    size: Tensor
    """(S, B) models asked"""
    state: State


class Memory(NamedTuple):
    """Where one seed's walk along train ended: all that a frozen agent goes on knowing."""

    predictions: Tensor
    """(w, N) what the models answered to the last documents, int64"""
    labels: Tensor
    """(w,) int64"""
    past_rewards: Tensor
    """(k,)"""
    pool: Tensor
    """(N,) 0 or 1"""


class Environment:
    """B = copies × stretches walks for each of S seeds: the stream is cut into stretches, each walked by
    every copy.

    All walks move in step, so that stretch g stands at document `first + g * length + t`. A walk starts with
    the full pool answering its first document; from then on the Decider's action is the pool of the next
    document.
    """

    def __init__(
        self,
        train: Dataset,
        config: RLFocalConfig,
        n_seeds: int,
        *,
        stretches: int,
        copies: int,
        first: int,
        length: int,
        window: int,
        device: torch.device | str = "cpu",
    ) -> None:
        self.config, self.kind = config, train.kind
        self.stretches, self.copies, self.n_seeds = stretches, copies, n_seeds
        self.first, self.length = first, length
        self.window = window
        self.probs, self.n_choices = (
            part.to(device) for part in slot_inputs(train, slots_kept(train, config))
        )
        self.labels = torch.tensor(train.labels, device=device)
        self.predictions = torch.tensor(train.predictions, device=device)
        self.outcomes = Outcomes(self.predictions, self.labels, self.probs.shape[2], train.kind, self.window)
        self.n_slots = slots_kept(train, config)
        self.reset()

    def reset(self) -> State:
        """Every walk at its start: full pool, past rewards 0."""
        shape = (self.n_seeds * self.copies, self.stretches)
        self._at = self.first
        self._pools = self.probs.new_ones((*shape, self.probs.shape[1]))
        self._past = self.probs.new_zeros((*shape, self.config.past_rewards))
        return self._observe()

    def step(self, pool: Tensor, answer: Tensor | None) -> Step:
        """Answer this document, then let `pool` (S, B, N; 0 or 1) answer the next one.

        `answer` (S, B) is Fusion's slot, rewarded ±1; None lets the interim plurality answer, rewarded by
        Eq (6). An empty pool is wrong, and by Eq (6) costs nothing else: -1.
        """
        size = self._pools.sum(-1)
        if answer is None:
            grouped = self._pools.transpose(0, 1)
            right = self.outcomes.right(grouped, self._at, 1, self.length)[..., 0].T
            wrong_reward = -1 - self.config.size_penalty * size / self._pools.shape[-1]
        else:
            chosen = self._slot_at.gather(-1, answer.view(*size.shape, 1))[..., 0]
            labels = self.labels[self._at :: self.length][: self.stretches]
            right = ((chosen == labels) & (chosen >= 0)).to(size.dtype)
            wrong_reward = -torch.ones_like(size)
        reward = torch.where(right > 0, 1.0, wrong_reward)
        self._past = (
            torch.cat([self._past, reward[..., None]], -1)[..., 1:] if self._past.shape[-1] else self._past
        )
        self._pools = pool.view_as(self._pools)
        self._at += 1
        return Step(self._seeds(reward), self._seeds(right), self._seeds(size), self._observe())

    def outputs(self) -> Tensor:
        """(T, N, C) the slots' distributions were every model asked about every document."""
        everyone = self.probs.new_ones((1, *self.probs.shape[:2]))
        slots = build_slots(self.probs, self.n_choices, everyone, self.kind, self.n_slots)
        return slots.distributions[0]

    def memories(self) -> list[Memory]:
        """Per seed, where its last walk stands."""
        window = slice(-self.window, None)
        seen = self.predictions[window].cpu(), self.labels[window].cpu()
        at = range(self.copies - 1, self.n_seeds * self.copies, self.copies)
        return [Memory(*seen, self._past[p, -1].cpu(), self._pools[p, -1].cpu()) for p in at]

    def _observe(self) -> State:
        documents = slice(self._at, None, self.length)
        probs, n_choices = (
            self.probs[documents][: self.stretches],
            self.n_choices[documents][: self.stretches],
        )
        slots = build_slots(probs, n_choices, self._pools, self.kind, self.n_slots)
        self._slot_at = slots.at
        looked_back = self.outcomes.window(
            self._pools.transpose(0, 1), self._at + 1, self.window, self.length
        )
        fusion = torch.cat([slots.distributions.flatten(2), self._past], -1)
        return State(
            self._seeds(decider_observation(looked_back, self.config).transpose(0, 1)),
            self._seeds(fusion),
            self._seeds(slots.open),
        )

    def _seeds(self, walks: Tensor) -> Tensor:
        """(S·copies, stretches, ...) -> (S, B, ...)."""
        return walks.reshape(self.n_seeds, self.copies * self.stretches, *walks.shape[2:])


def decider_observation(window: Window, config: RLFocalConfig) -> Tensor:
    """(E, P, N+K+1) o^Dec = [pool; metrics; size], the size as m/N to be on the scale of the rest."""
    share = window.pools.mean(-1, keepdim=True)
    return torch.cat([window.pools, observed_metrics(window, config.metrics), share], -1)


def window_length(wanted: int, n_train: int) -> int:
    """The window, or all history where train is too short for it."""
    return min(wanted, n_train)


def slots_kept(documents: Dataset, config: RLFocalConfig) -> int:
    """C: the most choices of a document, or the answers kept."""
    return config.answer_slots if documents.kind == "answers" else int(documents.n_choices.max())


def network_sizes(train: Dataset, config: RLFocalConfig) -> Sizes:
    """The shapes the agents take on this data."""
    return Sizes(len(train.models), slots_kept(train, config), len(config.metrics), config.past_rewards)


def train_environment(
    train: Dataset, config: RLFocalConfig, n_seeds: int, device: torch.device | str
) -> Environment:
    """All of train, as many stretches as the configuration asks for and the stream has room for.

    Raises InputError for a pool of one model or a stream too short to walk.
    """
    if len(train.models) < 2:
        raise InputError(f"benchmark {train.benchmark!r} has one model; RL-Focal needs at least 2")
    first = start_of(train, config)
    room = len(train) - 1 - first
    if room < 1:
        raise InputError(
            f"benchmark {train.benchmark!r} has {len(train)} train documents; RL-Focal needs at least 2"
        )
    stretches = min(config.stretches, room)
    return Environment(
        train,
        config,
        n_seeds,
        stretches=stretches,
        copies=config.copies,
        first=first,
        length=room // stretches,
        window=window_length(config.window, len(train)),
        device=device,
    )


def tail_environment(
    train: Dataset, config: RLFocalConfig, n_seeds: int, device: torch.device | str
) -> Environment:
    """The last T_u train documents, walked once: where a stream stands when test begins."""
    first = max(start_of(train, config), len(train) - 1 - config.update_period)
    return Environment(
        train,
        config,
        n_seeds,
        stretches=1,
        copies=1,
        first=first,
        length=len(train) - 1 - first,
        window=window_length(config.window, len(train)),
        device=device,
    )


def start_of(train: Dataset, config: RLFocalConfig) -> int:
    """The first document that is walked: the first with a full window, or the very first."""
    window = window_length(config.window, len(train))
    return window - 1 if window < len(train) else 0
