"""What a study runs: arms, each a method on a dataset, evaluated like all other methods."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from types import MappingProxyType
from typing import Any

from rlfocal.base.names import Protocol
from rlfocal.data.dataset import Dataset
from rlfocal.evaluation import Candidate, Evaluation, Setup
from rlfocal.evaluation.runs import run_method
from rlfocal.evaluation.storing import stored
from rlfocal.evaluation.studies.findings import OURS, Point, known, point
from rlfocal.evaluation.studies.tuned import changed
from rlfocal.methods import Method, RLFocal, make_method
from rlfocal.methods.trained import RL_FOCAL
from rlfocal.methods.trained.settings import Settings


@dataclass(frozen=True)
class Conditions:
    """What all arms of one run of a study share."""

    setup: Setup
    method: str = RL_FOCAL[0]
    settings: Settings = field(default_factory=dict)
    """What differs from the method's defaults in every arm."""
    chose_models: bool = False
    """Whether the pool is not the benchmark's: such rows must not be on the leaderboard."""
    study: str = ""
    beside: tuple[str, ...] = ()
    """Methods to run beside RL-Focal in studies that let you choose them; empty: the study's own."""


@dataclass(frozen=True)
class Arm:
    """One method on one dataset, and where its result is plotted and stored."""

    series: str
    label: str
    x: float | None
    data: Dataset
    build: Callable[[Callable[[float], None] | None], Method]
    """From a progress callback or None to the method."""
    name: str
    """Its name in `evaluations.method`."""
    settings: Settings
    study: str | None
    """None if `evaluate` would make the same rows."""
    protocol: Protocol = "frozen"


def tuned_arm(
    conditions: Conditions,
    text: str,
    x: float | None = None,
    settings: Settings = MappingProxyType({}),
    *,
    data: Dataset | None = None,
    beside: Settings = MappingProxyType({}),
    keep: bool = True,
) -> Arm:
    """RL-Focal under the conditions, with more settings.

    `beside` names what else differs. Unless `keep`, agents are trained anew and not stored.
    """
    setup, every = conditions.setup, {**conditions.settings, **settings}
    told = {**changed(conditions.method, every, setup.train_sizes), **beside}
    store = setup.store if keep else None

    def build(tell: Callable[[float], None] | None) -> Method:
        return RLFocal(conditions.method, None, store, tell, changes=every)

    of_study = bool(told) or data is not None or conditions.chose_models
    return Arm(
        OURS,
        text,
        x,
        data or setup.dataset,
        build,
        conditions.method,
        told,
        conditions.study if of_study else None,
    )


def reference_arm(
    conditions: Conditions,
    name: str,
    text: str | None = None,
    x: float | None = None,
    *,
    data: Dataset | None = None,
    beside: Settings = MappingProxyType({}),
    of_study: bool = False,
    protocol: Protocol = "frozen",
) -> Arm:
    """A method without settings; unless it is `of_study`, its rows are those that `evaluate` makes."""
    of_study = of_study or bool(beside) or data is not None or conditions.chose_models
    study = conditions.study if of_study else None

    def build(_: Callable[[float], None] | None) -> Method:
        return make_method(name)

    series, data = name.partition(":")[0], data or conditions.setup.dataset
    return Arm(series, text or name, x, data, build, name, beside, study, protocol)


def run_arms(conditions: Conditions, arms: Sequence[Arm]) -> list[Point]:
    """Evaluate every arm that the warehouse does not have, and summarise its seeds."""
    return [to_point(arm, run_arm(conditions, arm)) for arm in arms]


def run_arm(conditions: Conditions, arm: Arm) -> list[Evaluation]:
    """The pooled row of each seed in `evaluations`."""
    setup = replace(
        conditions.setup, dataset=arm.data, request=replace(conditions.setup.request, protocol=arm.protocol)
    )
    called = " ".join(dict.fromkeys([arm.data.benchmark, arm.series, arm.label]))
    candidate = Candidate(arm.name, arm.build(setup.progress(called)), arm.study, arm.settings)
    runs, _ = run_method(setup, candidate)
    return [row for row in stored(setup.warehouse, runs) if row.task == "*"]


def to_point(arm: Arm, rows: Sequence[Evaluation]) -> Point:
    costs = [known(row.cost) for row in rows]
    more: dict[str, Any] = {
        "mean_pool_size": fmean(row.mean_pool_size for row in rows),
        "cost": fmean(c for c in costs if c is not None) if None not in costs else None,
        "seconds": fmean(row.seconds for row in rows),
        "runs": tuple(row.run_id for row in rows),
    }
    return point(arm.series, arm.label, arm.x, rows[0].n, [row.accuracy for row in rows], **more)
