"""What frozen agents do on test documents, with all models and without each one in turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from rlfocal.base.arrays import Bools, Floats, Ints
from rlfocal.data.calls import Calls
from rlfocal.data.dataset import Dataset
from rlfocal.methods.learning.agents import Account, TrainedAgents


@dataclass(frozen=True)
class Observed:
    """The agents on T test documents of N models."""

    test: Dataset
    """With labels."""
    train_accuracy: Floats
    """(N,)"""
    rounds: Ints
    """(T, N) the round of calls, from 1, in which a model was asked; 0 where it was not"""
    slots: Ints
    """(T,) their answer as a slot of the dataset; -1 for none"""
    probability: Floats
    """(T,) their probability that their answer is right"""
    chance: Floats
    """(T,) their probability of the right answer; 0 where no model asked gave it"""
    pulls: Floats | None
    """(T, N) as `Account.pulls`"""
    slots_without: Ints
    """(N, T) their answers without each model"""
    chance_without: Floats
    """(N, T)"""

    @property
    def right(self) -> Bools:
        """(T,) whether they are right."""
        return self.test.is_right(self.slots)

    @property
    def pools(self) -> Bools:
        """(T, N) which models they ask."""
        return self.rounds > 0


def observe(
    dataset: Dataset,
    groups: Sequence[Bools],
    agents: Sequence[TrainedAgents],
    on_progress: Callable[[float], None] | None = None,
) -> Observed:
    """Each group's agents on the group's test rows. `groups` are masks (T,) of the dataset's rows.

    No label is used before everything is decided. `on_progress` is given the finished share.
    """
    test, n_models = dataset.test, len(dataset.models)
    rounds, pulls = np.zeros((len(test), n_models), dtype=np.int64), np.zeros((len(test), n_models))
    probability, is_sum = np.zeros(len(test)), True
    # The first row is with all models, each other one without one of them.
    slots = np.full((1 + n_models, len(test)), -1, dtype=np.int64)
    chance = np.zeros((1 + n_models, len(test)))
    for number, (mask, one) in enumerate(zip(groups, agents, strict=True)):
        rows = np.flatnonzero(mask[~dataset.is_train])
        documents = test.take(rows)
        calls = Calls(documents)
        account = one.account(calls)
        rounds[rows], probability[rows] = calls.rounds, account.distribution.max(axis=1, initial=0.0)
        slots[:, rows], chance[:, rows] = (
            calls.stored_slots(account.slots),
            _chance(account, calls, documents),
        )
        is_sum &= account.pulls is not None
        pulls[rows] = 0.0 if account.pulls is None else account.pulls
        for model in range(n_models):
            if calls.called[:, model].any():
                without = Calls(documents)
                left = one.account(without, np.arange(n_models) == model)
                slots[1 + model, rows] = without.stored_slots(left.slots)
                chance[1 + model, rows] = _chance(left, without, documents)
            if on_progress is not None:
                on_progress((number + (model + 1) / n_models) / len(groups))
    return Observed(
        test,
        dataset.train.correct.mean(axis=0),
        rounds,
        slots[0],
        probability,
        chance[0],
        pulls if is_sum else None,
        slots[1:],
        chance[1:],
    )


def _chance(account: Account, calls: Calls, documents: Dataset) -> Floats:
    """(T,) probability of the right slots, by the account's distribution over those that `calls` has."""
    distribution, at = account.distribution, calls.own_slots(documents.labels)
    is_there = (at >= 0) & (at < distribution.shape[1])
    held = np.take_along_axis(distribution, np.where(is_there, at, 0)[:, None], axis=1)[:, 0]
    return np.where(is_there, held, 0.0)
