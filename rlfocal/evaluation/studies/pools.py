"""Studies of how many models there are to choose from, and how many are asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rlfocal.base.errors import InputError
from rlfocal.base.names import Protocol
from rlfocal.data.calls import Answered, Calls
from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import Episode
from rlfocal.evaluation.studies.arms import Arm, Conditions, reference_arm, run_arms, tuned_arm
from rlfocal.evaluation.studies.study import Found
from rlfocal.methods import Learned, Policy, RLFocal
from rlfocal.methods.checking import read_value


def scale(conditions: Conditions, values: Sequence[Any]) -> Found:
    """Pools of the given sizes, made by repeating models; agents are trained anew."""
    arms: list[Arm] = []
    for size in (_count(value, 2) for value in values):
        on, text = conditions.on(repeat_models(conditions.setup.dataset, size)), f"{size} models"
        arms.append(tuned_arm(on, text, float(size), keep=False))
        arms.append(reference_arm(on, "soft_vote", text, float(size)))
    n = len(conditions.setup.dataset.models)
    note = f"Pools beyond {n} models repeat the same models; smaller ones hold the alphabetically first."
    return Found(run_arms(arms), [note])


def repeat_models(data: Dataset, size: int) -> Dataset:
    """The first `size` models, starting over after the last: `m`, then `m#2`, `m#3` and so on.

    Slots and labels do not change.
    """
    n = len(data.models)
    names = [data.models[i % n] + (f"#{i // n + 1}" if i >= n else "") for i in range(size)]
    order = sorted(range(size), key=names.__getitem__)
    at = np.array([i % n for i in order])
    return replace(
        data,
        models=tuple(names[i] for i in order),
        first_names=(),
        prices=data.prices[at],
        token_costs=data.token_costs[:, at] if data.token_costs.size else data.token_costs,
        probs=data.probs[:, at],
        logprobs=data.logprobs[:, at],
        predictions=data.predictions[:, at],
    )


def sizes(conditions: Conditions, values: Sequence[Any]) -> Found:
    """Teams of k models (`rl_focal_sequential`: at most k on average), next to two methods that pick one of
    k."""
    counts = [_count(value, 1, len(conditions.setup.dataset.models)) for value in values]
    arms = [_constrained(conditions, k) for k in counts]
    references: dict[str, Protocol] = {"random_select": "frozen", "latest_correct": "online"}
    for method, protocol in references.items():
        on = conditions.on(conditions.setup.dataset, protocol)
        arms += [reference_arm(on, f"{method}:{k}", f"{k} models", float(k)) for k in counts]
    how = (
        "asks at most k models on average over train"
        if conditions.method == "rl_focal_sequential"
        else "asks the k models whose branches are likeliest"
    )
    return Found(
        run_arms(arms),
        [
            f"RL-Focal {how}; random_select and latest_correct answer by one of the k models that are best "
            "on train, latest_correct by one that was right on the document before, for which it asks all k."
        ],
    )


def has_as_many(conditions: Conditions, k: int) -> bool:
    """Whether there are k models to ask."""
    return k <= len(conditions.setup.dataset.models)


def _constrained(conditions: Conditions, k: int) -> Arm:
    label = f"{k} models"
    if conditions.method == "rl_focal_sequential":
        return tuned_arm(conditions, label, float(k), {"mean_pool": float(k)})
    if conditions.method != "rl_focal":
        raise InputError(
            f"{conditions.method} has no Decider that can be held to a size; "
            "use rl_focal or rl_focal_sequential"
        )
    return tuned_arm(conditions, label, float(k), beside={"pool_size": k}, adapt=lambda own: OfSize(own, k))


@dataclass(frozen=True)
class OfSize:
    """`rl_focal` trained as usual, but held to a team size when it decides."""

    method: RLFocal
    size: int
    seeded: bool = True

    def recipe(self, n_train: int) -> str:
        return f"{self.method.recipe(n_train)} size {self.size}"

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[Policy]:
        return [_Held(policy, self.size) for policy in self.method.fit(train, seeds)]


@dataclass(frozen=True)
class _Held:
    agents: Any
    size: int

    @property
    def history(self) -> Sequence[Episode]:
        return self.agents.history if isinstance(self.agents, Learned) else ()

    def decide(self, calls: Calls) -> Answered:
        answered: Answered = self.agents.decide(calls, size=self.size)
        return answered


def _count(value: Any, least: int, most: int | None = None) -> int:
    count: int = read_value(str(value), 1, "size")
    if count < least or (most is not None and count > most):
        to = "or more" if most is None else f"to {most}"
        raise InputError(f"a pool of {count} models is not possible; use {least} {to}")
    return count
