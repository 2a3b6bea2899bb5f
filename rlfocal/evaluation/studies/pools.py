"""The study pool-size: how many models are asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rlfocal.base.errors import InputError
from rlfocal.base.names import Protocol
from rlfocal.data.calls import Answered, Calls
from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import Episode
from rlfocal.evaluation.studies.arms import Arm, Conditions, reference_arm, run_arms, tuned_arm
from rlfocal.evaluation.studies.study import Found
from rlfocal.methods import Learned, Policy, RLFocal
from rlfocal.methods.checking import read_value


def sizes(conditions: Conditions, values: Sequence[Any]) -> Found:
    """Teams of k models (`rl_focal_sequential`: at most k on average), next to two methods that pick one of
    k."""
    counts = [_count(value, len(conditions.setup.dataset.models)) for value in values]
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


def _count(value: Any, most: int) -> int:
    count: int = read_value(str(value), 1, "size")
    if not 1 <= count <= most:
        raise InputError(f"a pool of {count} models is not possible; use 1 to {most}")
    return count
