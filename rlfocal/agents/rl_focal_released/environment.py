"""The released agents' observations and rewards along the train stream, one environment per seed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from rlfocal.agents.rl_focal_released.config import ReleasedConfig
from rlfocal.agents.shared.slots import build_slots
from rlfocal.agents.shared.stream import Stream, beside_pool, slots_kept
from rlfocal.dataset import Dataset, Kind
from rlfocal.errors import InputError
from rlfocal.statistics.metrics import METRICS, focal_correlations
from rlfocal.statistics.windows import Window

Choose = Callable[[int, Tensor], Tensor]
"""Maps step t and the Decider's observation (S, N+K+1) to the pools that answer (S, N)."""
Fuse = Callable[[slice, Tensor], Tensor]
"""Maps some steps and Fusion's observations there (S, L, N·C+k) to the slots it answers (S, L)."""


class Steps(NamedTuple):
    """L steps of S seeds."""

    decider: Tensor
    """(S, L, N+K+1) what the Decider chose from"""
    pools: Tensor
    """(S, L, N) the models asked, 0 or 1: the Decider's actions"""
    fusion: Tensor
    """(S, L, N·C+k) what Fusion answered from"""
    answers: Tensor
    """(S, L) Fusion's slots; 0 where the plurality answered"""
    predictions: Tensor
    """(S, L) the same as slots of the dataset; -1 for none, and where the plurality answered"""
    rewards: Tensor
    """(S, L)"""
    right: Tensor
    """(S, L) 0 or 1"""


class Environment:
    """One environment per seed along the documents `first` .. `last` - 1, looking back on `window`."""

    def __init__(
        self, documents: Dataset, config: ReleasedConfig, n_seeds: int,
        *, window: int, first: int, last: int, n_slots: int,
    ) -> None:  # fmt: skip
        self.config, self.n_seeds, self.first, self.last = config, n_seeds, first, last
        self.stream = Stream(
            documents,
            partial(measure, config=config),
            n_slots=n_slots,
            window=window,
        )
        self.reset()

    @classmethod
    def of_train(cls, train: Dataset, config: ReleasedConfig, n_seeds: int) -> Environment:
        """The part of train that the released code uses. Raises InputError for too few documents."""
        artefacts, window = config.artefacts, config.window
        first = window + (2 if artefacts.first_rows_skipped else 0)
        last = len(train) - (window if artefacts.window_subtracted_twice else 0)
        if last <= first:
            raise InputError(
                f"benchmark {train.benchmark!r} has {len(train)} train documents, too few for the released "
                f"window of {window} twice; set a smaller window"
            )
        n_slots = slots_kept(train, config.answer_slots)
        return cls(train, config, n_seeds, window=window, first=first, last=last, n_slots=n_slots)

    def reset(self) -> None:
        """Back to the start, with all models in the pool and past rewards of 0."""
        probs = self.stream.probs
        self.at = self.first
        self.pools = probs.new_ones((self.n_seeds, self.stream.n_models))
        self.past = probs.new_zeros((self.n_seeds, self.config.past_rewards))

    @torch.no_grad()
    def rollout(self, length: int, choose: Choose, fuse: Fuse | None) -> Steps:
        """Answer `length` documents; without `fuse` the plurality of each pool answers."""
        seen, pools = self._choose(length, choose)
        rows = torch.arange(self.at, self.at + length)
        outputs, at = observed_outputs(
            self.stream.probs[rows], self.stream.n_choices[rows], pools, self.stream.kind, self.config
        )
        if fuse is None:
            right = self.stream.right(pools.transpose(0, 1), rows).T
            penalty = self.config.size_penalty * pools.mean(-1)
            paid = torch.where(right > 0, 0.0, penalty)
            rewards = (
                2 * right - 1 - (paid if self.config.artefacts.size_penalty_only_when_wrong else penalty)
            )
            answers = torch.zeros_like(right, dtype=torch.long)
            predictions = answers - 1
            past = torch.cat([self.past, rewards], 1)
        else:
            is_right = ((at == self.stream.labels[rows][:, None]) & (at >= 0)).to(outputs.dtype)
            answers, past = self._answer(outputs, is_right, fuse)
            rewards = past[:, self.past.shape[1] :]
            right = (rewards > 0).to(outputs.dtype)
            predictions = at.gather(-1, answers[..., None])[..., 0]
        k = self.past.shape[1]
        fusion = torch.cat([outputs, past.unfold(1, k, 1)[:, :length]], -1)
        self.at += length
        self.pools, self.past = pools[:, -1], past[:, past.shape[1] - k :]
        return Steps(seen, pools, fusion, answers, predictions, rewards, right)

    def _choose(self, length: int, choose: Choose) -> tuple[Tensor, Tensor]:
        lag = 1 if self.config.artefacts.lagged_window else 0
        seen, pools = [], [self.pools]
        for t in range(length):
            metrics = self.stream.metrics(pools[-1][None], max(self.at + t - lag, 0))[0]
            seen.append(decider_observation(pools[-1], metrics))
            pools.append(choose(t, seen[-1]))
        return torch.stack(seen, 1), torch.stack(pools[1:], 1)

    def _answer(self, outputs: Tensor, is_right: Tensor, fuse: Fuse) -> tuple[Tensor, Tensor]:
        """(S, L) Fusion's slots and (S, k+L) its rewards, the k past ones before them."""
        k, length = self.past.shape[1], outputs.shape[1]
        past = torch.cat([self.past, self.past.new_zeros((self.n_seeds, length))], 1)
        together = length if k == 0 else 1
        answers = []
        for start in range(0, length, together):
            steps = slice(start, start + together)
            seen = torch.cat(
                [outputs[:, steps], past[:, None, start : start + k].expand(-1, together, -1)], -1
            )
            answers.append(fuse(steps, seen))
            earned = is_right[:, steps].gather(-1, answers[-1][..., None])[..., 0]
            past[:, k + start : k + start + together] = 2 * earned - 1
        return torch.cat(answers, 1), past


def measure(window: Window, config: ReleasedConfig) -> Tensor:
    """(E, P, K) the pools' metrics as the Decider sees them; K is 1 for the weighted sum."""
    artefacts = config.artefacts
    columns = []
    for name in config.metrics:
        value = METRICS[name](window)
        if name == "focal_diversity" and artefacts.perfect_model_is_diverse:
            rho, fails = focal_correlations(window)
            value = (rho + window.members - fails).sum(-1) / window.size
        columns.append(value.nan_to_num(0, 0, 0))
    metrics = torch.stack(columns, -1)
    if artefacts.metrics_as_one_scalar:
        metrics = (metrics * metrics.new_tensor(config.weights)).sum(-1, keepdim=True)
    few = -99.0 if artefacts.minus_99_for_small_pools else 0.0
    return torch.where(window.size[..., None] < 2, few, metrics)


def decider_observation(pools: Tensor, metrics: Tensor) -> Tensor:
    """[pool; metrics; size], the size as a count."""
    return torch.cat([beside_pool(pools, metrics)[..., :-1], pools.sum(-1, keepdim=True)], -1)


def observed_outputs(
    probs: Tensor, n_choices: Tensor, pools: Tensor, kind: Kind, config: ReleasedConfig
) -> tuple[Tensor, Tensor]:
    """(S, L, N·C) what Fusion sees of the pools (S, L, N), and (S, L, C) its slots as slots of the dataset,
    -1 where none exists. `probs` is (L, N, C'), `n_choices` (L,)."""
    keep = config.answer_slots if kind == "answers" else probs.shape[2]
    if kind == "answers" and not config.artefacts.slots_of_all_models:
        seen, _, at = build_slots(probs, n_choices, pools, kind, keep)
    else:
        seen = pad(probs[..., :keep], (0, max(0, keep - probs.shape[2]))) * pools[..., None]
        slots = torch.arange(keep)
        at = torch.where(slots < n_choices[:, None], slots, -1).expand(*pools.shape[:2], -1)
    if config.artefacts.exp_of_probabilities:
        seen = seen.exp() * pools[..., None]
    return seen.flatten(2), at


def is_answerable(documents: Dataset, config: ReleasedConfig) -> Tensor:
    """(T,) whether the right answer is among the slots kept."""
    labels = torch.tensor(documents.labels)
    return (labels >= 0) & (labels < slots_kept(documents, config.answer_slots))
