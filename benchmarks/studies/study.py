"""A study: a question about RL-Focal, how it is answered, the arms that it runs, and what it finds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from pydantic import TypeAdapter, ValidationError

from rlfocal.base.atomic import write_file
from rlfocal.base.errors import InputError
from rlfocal.base.names import RL_FOCAL, Protocol
from rlfocal.base.wording import count_noun, mean_known
from rlfocal.data.dataset import Dataset
from rlfocal.evaluation import Candidate, Evaluation, Setup
from rlfocal.evaluation.candidates import run_method
from rlfocal.evaluation.storing import read_runs
from rlfocal.methods import Method, RLFocal, make_method
from rlfocal.methods.checking import read_value, write_value
from rlfocal.methods.trained import Settings, check_settings, configure, defaults
from rlfocal.statistics.intervals import mean_over_seeds

ALL_VALUES = "all"
"""The value that stands for all there are to try."""
RL_FOCAL_LABEL = "RL-Focal"
Beside = Literal["mean_pool_size", "seconds"]


@dataclass(frozen=True)
class Point:
    """One thing that a study tried. Accuracies are fractions, means over seeds."""

    series: str
    """Points of one series are joined by a line."""
    label: str
    x: float | None
    """Its position on the axis; None if the varied setting is not a number."""
    n: int
    """Documents; where every seed has its own, their mean."""
    seeds: int
    accuracy: float
    stderr_seeds: float | None
    """None if there are not two seeds."""
    stderr_docs: float
    """The standard error over documents, sqrt(p (1 - p) / n)."""
    mean_pool_size: float | None = None
    cost: float | None = None
    """Cents per 1,000 queries; None if a price is unknown."""
    seconds: float | None = None
    """The seconds per seed to train and decide; almost none for agents that were trained before."""
    runs: tuple[str, ...] = ()
    """Run ids in `evaluations`."""
    gain: tuple[float, float, float] | None = None
    """How much higher the accuracy is than another point's, as a fraction, with its 95 % interval."""
    p_value: float | None = None
    """The p-value of the gain, corrected for all of the study's comparisons."""


@dataclass(frozen=True)
class StudyFindings:
    """The findings of one run of a study."""

    study: str
    question: str
    axis: str
    """The setting or condition that is varied."""
    benchmark: str
    method: str
    """The method of RL-Focal's that was fitted; empty: none."""
    per: str
    models: tuple[str, ...]
    settings: str
    """The settings that differ from the method's defaults throughout; empty: none."""
    points: tuple[Point, ...]
    beside: Beside | None
    """The quantity that the figure shows besides accuracy."""
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of the findings' files, without a suffix."""
        return "-".join(filter(None, (self.study, self.benchmark, self.method))).replace("/", "_")

    @property
    def title(self) -> str:
        settings = f" [{self.settings}]" if self.settings else ""
        per = "" if self.per == "benchmark" else ", per task"
        models = count_noun(len(self.models), "model")
        method = f", {self.method}" if self.method else ""
        return f"{self.study} on {self.benchmark}{method}{settings}, {models}{per}"


def point(
    series: str, label: str, x: float | None, n: int, accuracies: Sequence[float], **more: Any
) -> Point:
    """The mean over seeds with both standard errors."""
    return Point(series, label, x, n, len(accuracies), *mean_over_seeds(accuracies, n), **more)


def save(findings: StudyFindings, folder: Path) -> Path:
    """Keep the newest findings of a study on one benchmark and method; returns the JSON file."""
    path = folder / f"{findings.name}.json"
    write_file(path, TypeAdapter(StudyFindings).dump_json(findings, indent=1))
    return path


def load(path: Path) -> StudyFindings:
    """The inverse of `save`. Raises InputError for a file that holds something else."""
    try:
        return TypeAdapter(StudyFindings).validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise InputError(
            f"{path} holds no findings of a study ({error}); delete it and run the study again"
        ) from error


class StudyResult(NamedTuple):
    """The points that a study computed, with notes."""

    points: list[Point]
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Study:
    """A question, and how it is answered."""

    name: str
    question: str
    axis: str
    """The setting or condition that is varied."""
    answer: Callable[[Conditions, Sequence[Any]], StudyResult]
    """The function of conditions and values to try that runs the study."""
    values: tuple[Any, ...] = ()
    """The values to try unless others are given; empty: there is nothing to choose."""
    beside: Beside | None = "mean_pool_size"
    method: str = RL_FOCAL[0]
    """The method of RL-Focal's, unless another is given."""
    fits: bool = True
    """Whether RL-Focal is fitted at all."""

    def run(self, conditions: Conditions, values: Sequence[Any] | None = None) -> StudyFindings:
        """Run what the warehouse does not have yet, and keep what was found beside it.

        Raises InputError for settings or values that cannot be.
        """
        if values and not self.values:
            raise InputError(f"study {self.name} takes no values")
        check_settings(conditions.method, conditions.settings)
        conditions = replace(conditions, study=self.name)
        answer = self.answer(conditions, self.values if values is None else values)
        findings = StudyFindings(
            study=self.name,
            question=self.question,
            axis=self.axis,
            benchmark=conditions.setup.dataset.benchmark,
            method=conditions.method if self.fits else "",
            per=conditions.setup.request.per,
            models=conditions.setup.dataset.models,
            settings=format_settings(conditions.settings),
            points=tuple(answer.points),
            beside=self.beside,
            notes=tuple(answer.notes),
        )
        save(findings, conditions.setup.warehouse.location.studies)
        return findings


def format_settings(settings: Settings) -> str:
    """`name=value,...` as `parse` reads it, in alphabetical order."""
    return ",".join(f"{name}={write_value(value)}" for name, value in sorted(settings.items()))


def parse(method: str, texts: Sequence[str]) -> dict[str, Any]:
    """`name=value` words as settings. Raises InputError for a word or a value that cannot be read."""
    config = defaults(method)
    settings: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"--set {text!r} is not NAME=VALUE")
        check_settings(method, [name])
        settings[name] = read_value(value, getattr(config, name), name)
    return settings


NO_SETTINGS: Settings = MappingProxyType({})


@dataclass(frozen=True)
class Conditions:
    """What all arms of one run of a study share."""

    setup: Setup
    method: str = RL_FOCAL[0]
    settings: Settings = field(default_factory=dict)
    """The settings that differ from the method's defaults in every arm."""
    chose_models: bool = False
    """Whether rows or models differ from the benchmark's; such runs are on no leaderboard."""
    study: str = ""
    beside: tuple[str, ...] = ()
    """Methods to run beside RL-Focal in studies that let you choose them; empty: the study's own."""

    def replace_rows(self, data: Dataset, protocol: Protocol = "frozen") -> Conditions:
        """The same conditions on these rows, off the leaderboard."""
        setup = replace(self.setup, dataset=data, request=replace(self.setup.request, protocol=protocol))
        return replace(self, setup=setup, chose_models=True)


class Arm(NamedTuple):
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
    settings: Settings = NO_SETTINGS,
    *,
    beside: Settings = NO_SETTINGS,
    keep: bool = True,
    adapt: Callable[[RLFocal], Method] = lambda own: own,
) -> Arm:
    """RL-Focal under the conditions, with more settings.

    `beside` names what else differs, such as what `adapt` does to the method. Unless `keep`, agents are
    trained anew and not stored.
    """
    setup, method = conditions.setup, conditions.method
    every = {**conditions.settings, **settings}
    title = " ".join(dict.fromkeys([setup.dataset.benchmark, RL_FOCAL_LABEL, label]))
    own = RLFocal(method, None, setup.store if keep else None, setup.progress(title), changes=every)
    told = {**find_changes(method, every, setup.train_sizes), **beside}
    return _make_arm(conditions, (RL_FOCAL_LABEL, label, x), method, adapt(own), told)


def reference_arm(
    conditions: Conditions,
    name: str,
    label: str | None = None,
    x: float | None = None,
    *,
    beside: Settings = NO_SETTINGS,
) -> Arm:
    """A method without settings."""
    return _make_arm(conditions, (name.partition(":")[0], label or name, x), name, make_method(name), beside)


def find_changes(method: str, settings: Settings, sizes: Sequence[int]) -> dict[str, Any]:
    """The settings that differ from the method's own for groups of `sizes` train rows."""
    configs = [configure(method, n) for n in sizes]
    return {k: v for k, v in settings.items() if any(getattr(config, k) != v for config in configs)}


def run_arms(arms: Sequence[Arm]) -> list[Point]:
    """Evaluate every arm that the warehouse does not have, and summarise its seeds."""
    return [_make_point(arm, run_arm(arm)) for arm in arms]


def run_arm(arm: Arm) -> list[Evaluation]:
    """The pooled row of each seed in `evaluations`."""
    runs, _ = run_method(arm.setup, arm.candidate)
    return [row for row in read_runs(arm.setup.warehouse, runs) if row.task == "*"]


def _make_arm(
    conditions: Conditions, place: tuple[str, str, float | None], name: str, method: Method, told: Settings
) -> Arm:
    """Without a study, its rows are those that `evaluate` makes."""
    study = conditions.study if told or conditions.chose_models else None
    return Arm(*place, conditions.setup, Candidate(name, method, study, told))


def _make_point(arm: Arm, rows: Sequence[Evaluation]) -> Point:
    more: dict[str, Any] = {
        "mean_pool_size": fmean(row.mean_pool_size for row in rows),
        "cost": mean_known(row.cost for row in rows),
        "seconds": fmean(row.seconds for row in rows),
        "runs": tuple(row.run_id for row in rows),
    }
    return point(arm.series, arm.label, arm.x, rows[0].n, [row.accuracy for row in rows], **more)
