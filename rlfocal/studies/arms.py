"""What a study runs: arms, each a method on a dataset, evaluated by the door that all evaluations take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from rlfocal.dataset import Dataset
from rlfocal.evaluation import Evaluation, Per, Progress, group_rows, run_method, stored, titled
from rlfocal.methods import CheckpointStore, Method, make_method
from rlfocal.studies.findings import OURS, Point, known, point
from rlfocal.studies.tuned import Settings, Tuned, label, marked
from warehouse import Warehouse


@dataclass(frozen=True)
class Conditions:
    """What all arms of one run of a study share."""

    warehouse: Warehouse
    dataset: Dataset
    variant: str = "paper"
    seeds: int = 3
    per: Per = "benchmark"
    settings: Settings = field(default_factory=dict)
    """What differs from the variant's defaults in every arm."""
    mark: str = ""
    """What every run's variant says besides: rows of other data must not stand on the leaderboard."""
    force: bool = False
    on_progress: Progress | None = None

    @property
    def store(self) -> CheckpointStore:
        return CheckpointStore(self.warehouse.location.checkpoints, reuse=not self.force)

    @property
    def train_sizes(self) -> list[int]:
        """Train rows of each group that gets a policy of its own."""
        is_train = self.dataset.is_train
        return [int((mask & is_train).sum()) for mask in group_rows(self.dataset, self.per)]


@dataclass(frozen=True)
class Arm:
    """One method on one dataset, and where its result stands."""

    series: str
    label: str
    x: float | None
    data: Dataset
    build: Callable[[Callable[[float], None] | None], Method]
    """Given where progress is told."""
    name: str
    """What `evaluations.method` calls it."""
    variant: str | None = None
    protocol: str = "frozen"


def tuned_arm(
    conditions: Conditions,
    text: str,
    x: float | None,
    settings: Settings,
    *,
    data: Dataset | None = None,
    mark: str = "",
    keep: bool = True,
    series: str = OURS,
) -> Arm:
    """RL-Focal under the conditions, with more settings.

    `mark` says in the variant what else differs. Not to keep agents means to train them here and now.
    """
    every = {**conditions.settings, **settings}
    called = label(conditions.variant, every, conditions.train_sizes)
    store = conditions.store if keep else None

    def build(tell: Callable[[float], None] | None) -> Method:
        return Tuned(conditions.variant, every, store, tell)

    return Arm(
        series, text, x, data or conditions.dataset, build, "rl_focal", marked(called, conditions.mark, mark)
    )


def reference_arm(
    conditions: Conditions,
    name: str,
    text: str | None = None,
    x: float | None = None,
    *,
    data: Dataset | None = None,
    mark: str = "",
    protocol: str = "frozen",
) -> Arm:
    """A method without settings; where nothing is marked, its rows are those that `evaluate` makes."""
    variant = marked("", conditions.mark, mark) or None
    series = name.partition(":")[0]
    build: Callable[[Callable[[float], None] | None], Method] = lambda _: make_method(name)  # noqa: E731
    return Arm(series, text or name, x, data or conditions.dataset, build, name, variant, protocol)


def run_arms(conditions: Conditions, arms: Sequence[Arm]) -> list[Point]:
    """Evaluate every arm, unless the warehouse has it, and sum its seeds up."""
    return [to_point(arm, run_arm(conditions, arm)) for arm in arms]


def run_arm(conditions: Conditions, arm: Arm) -> list[Evaluation]:
    """The pooled row of each seed in `evaluations`."""
    groups = len(group_rows(arm.data, conditions.per))
    called = " ".join(dict.fromkeys([arm.data.benchmark, arm.series, arm.label]))
    method = arm.build(titled(conditions.on_progress, called, groups))
    runs, _ = run_method(
        conditions.warehouse,
        arm.data,
        method,
        arm.name,
        arm.variant,
        conditions.seeds,
        conditions.per,
        arm.protocol,
        conditions.force,
    )
    return [row for row in stored(conditions.warehouse, runs) if row.task == "*"]


def to_point(arm: Arm, rows: Sequence[Evaluation]) -> Point:
    costs = [known(row.cost) for row in rows]
    more: dict[str, Any] = {
        "mean_pool_size": fmean(row.mean_pool_size for row in rows),
        "cost": fmean(c for c in costs if c is not None) if None not in costs else None,
        "seconds": fmean(row.seconds for row in rows),
        "runs": tuple(row.run_id for row in rows),
    }
    return point(arm.series, arm.label, arm.x, rows[0].n, [row.accuracy for row in rows], **more)
