"""What a study runs: arms, each a method on a dataset, evaluated like all other methods."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from types import MappingProxyType
from typing import Any

from rlfocal.base.names import RL_FOCAL, Protocol
from rlfocal.base.wording import known
from rlfocal.data.dataset import Dataset
from rlfocal.evaluation import Candidate, Evaluation, Setup
from rlfocal.evaluation.candidates import run_method
from rlfocal.evaluation.storing import stored
from rlfocal.evaluation.studies.findings import OURS, Point, point
from rlfocal.methods import Method, RLFocal, make_method
from rlfocal.methods.trained.settings import Settings, configure

NOTHING: Settings = MappingProxyType({})


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
    """One method on one dataset, and where its result is plotted."""

    series: str
    label: str
    x: float | None
    setup: Setup
    candidate: Candidate


def tuned_arm(
    conditions: Conditions,
    label: str,
    x: float | None = None,
    settings: Settings = NOTHING,
    *,
    data: Dataset | None = None,
    beside: Settings = NOTHING,
    protocol: Protocol = "frozen",
    keep: bool = True,
    adapt: Callable[[RLFocal], Method] = lambda own: own,
) -> Arm:
    """RL-Focal under the conditions, with more settings.

    `beside` names what else differs, such as what `adapt` does to the method. Unless `keep`, agents are
    trained anew and not stored.
    """
    every = {**conditions.settings, **settings}
    told = {**find_changes(conditions.method, every, conditions.setup.train_sizes), **beside}

    def make(setup: Setup, on_progress: Callable[[float], None] | None) -> Method:
        store = setup.store if keep else None
        return adapt(RLFocal(conditions.method, None, store, on_progress, changes=every))

    of_study = bool(told)
    return _arm(conditions, (OURS, label, x), conditions.method, make, told, data, protocol, of_study)


def reference_arm(
    conditions: Conditions,
    name: str,
    label: str | None = None,
    x: float | None = None,
    *,
    data: Dataset | None = None,
    beside: Settings = NOTHING,
    protocol: Protocol = "frozen",
    of_study: bool = False,
) -> Arm:
    """A method without settings; unless it is `of_study`, its rows are those that `evaluate` makes."""
    place, of_study = (name.partition(":")[0], label or name, x), of_study or bool(beside)
    return _arm(conditions, place, name, lambda *_: make_method(name), beside, data, protocol, of_study)


def find_changes(method: str, settings: Settings, sizes: Sequence[int]) -> dict[str, Any]:
    """The settings that differ from the method's own for groups of `sizes` train rows."""
    configs = [configure(method, n) for n in sizes]
    return {k: v for k, v in settings.items() if any(getattr(config, k) != v for config in configs)}


def run_arms(arms: Sequence[Arm]) -> list[Point]:
    """Evaluate every arm that the warehouse does not have, and summarise its seeds."""
    return [_to_point(arm, run_arm(arm)) for arm in arms]


def run_arm(arm: Arm) -> list[Evaluation]:
    """The pooled row of each seed in `evaluations`."""
    runs, _ = run_method(arm.setup, arm.candidate)
    return [row for row in stored(arm.setup.warehouse, runs) if row.task == "*"]


def _arm(
    conditions: Conditions,
    place: tuple[str, str, float | None],
    name: str,
    make: Callable[[Setup, Callable[[float], None] | None], Method],
    settings: Settings,
    data: Dataset | None,
    protocol: Protocol,
    of_study: bool,
) -> Arm:
    """`place`: its series, label and x. Without a study, `evaluate` would make the same rows."""
    of_study = of_study or data is not None or conditions.chose_models
    setup = replace(
        conditions.setup,
        dataset=data or conditions.setup.dataset,
        request=replace(conditions.setup.request, protocol=protocol),
    )
    title = " ".join(dict.fromkeys([setup.dataset.benchmark, *place[:2]]))
    method = make(setup, setup.progress(title))
    return Arm(*place, setup, Candidate(name, method, conditions.study if of_study else None, settings))


def _to_point(arm: Arm, rows: Sequence[Evaluation]) -> Point:
    costs = [known(row.cost) for row in rows]
    more: dict[str, Any] = {
        "mean_pool_size": fmean(row.mean_pool_size for row in rows),
        "cost": fmean(c for c in costs if c is not None) if None not in costs else None,
        "seconds": fmean(row.seconds for row in rows),
        "runs": tuple(row.run_id for row in rows),
    }
    return point(arm.series, arm.label, arm.x, rows[0].n, [row.accuracy for row in rows], **more)
