"""Studies of RL-Focal's settings, of how many models are asked, and of when the fused answer is right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from rlfocal.base.arrays import Bools, Ints
from rlfocal.base.errors import InputError
from rlfocal.base.names import Protocol
from rlfocal.data.calls import Answered, Calls
from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import Episode
from rlfocal.evaluation.studies.findings import OURS, Point, point
from rlfocal.evaluation.studies.study import (
    Arm,
    Conditions,
    Found,
    reference_arm,
    run_arm,
    run_arms,
    tuned_arm,
)
from rlfocal.methods import Learned, Policy, RLFocal
from rlfocal.methods.checking import read_value
from rlfocal.methods.trained import check_settings, defaults
from rlfocal.statistics.votes import plurality, soft_vote
from warehouse import Warehouse


def sweep(setting: str, label: Callable[[Any], str]) -> Callable[[Conditions, Sequence[Any]], Found]:
    """Tries the values of one setting that is a number or a switch, beside best_single."""

    def answer(conditions: Conditions, values: Sequence[Any]) -> Found:
        check_settings(conditions.method, [setting])
        like = getattr(defaults(conditions.method), setting)
        arms = []
        for value in (read_value(str(value), like, setting) for value in values):
            x = None if isinstance(value, bool) else float(value)
            arms.append(tuned_arm(conditions, label(value), x, {setting: value}))
        return Found(run_arms([*arms, reference_arm(conditions, "best_single")]))

    return answer


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


class Decided(NamedTuple):
    """What one run did on T documents."""

    pools: Bools
    """(T, N)"""
    correct: Bools
    """(T,)"""


def success(conditions: Conditions, values: Sequence[Any]) -> Found:
    """RL-Focal's own answer, and what votes of the same teams would have answered."""
    test = conditions.setup.dataset.test
    rows = run_arm(tuned_arm(conditions, OURS))
    decided = [decisions(conditions.setup.warehouse, row.run_id, test) for row in rows]
    right = [(test.correct & of_seed.pools).sum(axis=1) for of_seed in decided]
    answers = {
        OURS: [of_seed.correct for of_seed in decided],
        "plurality of its team": [
            test.is_right(plurality(test.predictions, of_seed.pools, test.kind)) for of_seed in decided
        ],
        "soft vote of its team": [
            test.is_right(soft_vote(test.probs, of_seed.pools, test.kind)) for of_seed in decided
        ],
    }
    points = [p for name, correct in answers.items() for p in by_members(name, right, correct)]
    overall = ", ".join(f"{name} {100 * float(np.mean(correct)):.2f} %" for name, correct in answers.items())
    asked = float(np.mean([of_seed.pools.sum(axis=1).mean() for of_seed in decided]))
    return Found(points, [f"Over all documents: {overall}; {asked:.2f} models asked."])


def by_members(series: str, right: Sequence[Ints], correct: Sequence[Bools]) -> list[Point]:
    """A point for every number of right members that occurs, from (T,) counts and outcomes of each seed."""
    points = []
    for j in range(max(int(counts.max(initial=0)) for counts in right) + 1):
        rates = [
            float(hit[counts == j].mean())
            for counts, hit in zip(right, correct, strict=True)
            if (counts == j).any()
        ]
        if rates:
            documents = round(float(np.mean([(counts == j).sum() for counts in right])))
            points.append(point(series, f"{j} right", float(j), max(documents, 1), rates))
    return points


def decisions(warehouse: Warehouse, run_id: str, test: Dataset) -> Decided:
    """A run's decisions on the test rows, in their order."""
    table = warehouse.query(
        "SELECT task, doc_id, pool, correct FROM decisions WHERE run_id = ?", [run_id]
    ).to_pydict()
    keys = zip(test.tasks.tolist(), test.doc_ids.tolist(), strict=True)
    rows = {key: row for row, key in enumerate(keys)}
    place = {name: at for at, name in enumerate(test.models)}
    pools = np.zeros((len(test), len(test.models)), dtype=np.bool_)
    correct = np.zeros(len(test), dtype=np.bool_)
    for task, doc_id, pool, hit in zip(*table.values(), strict=True):
        row = rows[task, doc_id]
        pools[row, [place[name] for name in pool]] = True
        correct[row] = hit
    return Decided(pools, correct)
