"""The study pool-scale: how time and accuracy change with the size of the pool, models repeated.

python -m benchmarks.results.scale --benchmark B [--warehouse PATH|URI] [--sizes 8,16,...] [--seeds K]
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rlfocal.base.errors import InputError
from rlfocal.data.dataset import Dataset
from rlfocal.evaluation import EvaluationRequest, Setup
from rlfocal.evaluation.planning import read_dataset
from rlfocal.evaluation.studies import Conditions, Study
from rlfocal.evaluation.studies.study import Arm, StudyResult, reference_arm, run_arms, tuned_arm
from rlfocal.methods.checking import read_value
from rlfocal.report.studies import print_findings
from warehouse import open_warehouse


def scale(conditions: Conditions, values: Sequence[Any]) -> StudyResult:
    """Pools of the given sizes, made by repeating models; agents are trained anew."""
    arms: list[Arm] = []
    for size in (read_value(str(value), 1, "size") for value in values):
        on, text = conditions.on(repeat_models(conditions.setup.dataset, size)), f"{size} models"
        arms.append(tuned_arm(on, text, float(size), keep=False))
        arms.append(reference_arm(on, "soft_vote", text, float(size)))
    n = len(conditions.setup.dataset.models)
    note = f"Pools beyond {n} models repeat the same models; smaller ones hold the alphabetically first."
    return StudyResult(run_arms(arms), [note])


POOL_SCALE = Study(
    "pool-scale",
    "How do time and accuracy change with the size of the pool, models repeated?",
    "models to choose from",
    scale,
    (8, 16, 24, 40, 80, 120),
    beside="seconds",
)


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


def main() -> None:
    parser = ArgumentParser(prog="python -m benchmarks.results.scale", description=__doc__)
    parser.add_argument("--benchmark", "-b", required=True)
    parser.add_argument("--warehouse", metavar="PATH|URI")
    parser.add_argument("--sizes", default="", metavar="N,...")
    parser.add_argument("--seeds", type=int, default=3, metavar="K")
    given = parser.parse_args()
    with open_warehouse(given.warehouse, create=False) as warehouse:
        request = EvaluationRequest(given.benchmark, seeds=given.seeds)
        setup = Setup(warehouse, read_dataset(warehouse, given.benchmark, None), request)
        sizes = [size for size in given.sizes.split(",") if size]
        print_findings(POOL_SCALE.run(Conditions(setup), sizes or None))


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
