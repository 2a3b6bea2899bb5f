"""How often the fused answer is right when exactly k members of the team are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from rlfocal.base.arrays import Bools, Ints
from rlfocal.data.dataset import Dataset
from rlfocal.evaluation.studies.arms import Conditions, run_arm, tuned_arm
from rlfocal.evaluation.studies.findings import OURS, Point, point
from rlfocal.evaluation.studies.study import Found
from rlfocal.statistics.votes import plurality, soft_vote
from warehouse import Warehouse


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
