"""A study: a question about RL-Focal, the arms that it runs to answer it, and its findings."""

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
from rlfocal.evaluation.candidates import run_methods
from rlfocal.evaluation.storing import read_runs
from rlfocal.methods import Method, RLFocal, make_method
from rlfocal.methods.checking import read_value, write_value
from rlfocal.methods.trained import Settings, check_settings, configure, defaults
from rlfocal.statistics.intervals import mean_over_seeds

ALL_VALUES = "all"
"""The word for every possible value of a study."""
RL_FOCAL_LABEL = "RL-Focal"
Beside = Literal["mean_pool_size", "seconds"]


@dataclass(frozen=True)
class Point:
    """The result of one method under one setting of a study. Accuracies are fractions, means over seeds."""

    series: str
    """The name of the line that joins the point with others."""
    label: str
    x: float | None
    """The point's position on the axis; None if the varied setting is not a number."""
    n: int
    """The number of documents; the mean over seeds if it differs between them."""
    seeds: int
    accuracy: float
    stderr_seeds: float | None
    """The standard error over seeds; None if there is only one seed."""
    stderr_docs: float
    """The standard error over documents, sqrt(p (1 - p) / n)."""
    mean_pool_size: float | None = None
    cost: float | None = None
    """Cents per 1,000 queries; None if a price is unknown."""
    seconds: float | None = None
    """The seconds per seed to train and decide; almost none for agents that are loaded from a checkpoint."""
    runs: tuple[str, ...] = ()
    """The ids of the runs in the warehouse's table `evaluations`."""
    gain: tuple[float, float, float] | None = None
    """The accuracy minus that of a reference point, as a fraction, and its 95 % interval's ends."""
    p_value: float | None = None
    """The p-value of the gain, which the study of diversity corrects for all its comparisons."""


@dataclass(frozen=True)
class StudyFindings:
    """The findings of one run of a study."""

    study: str
    question: str
    axis: str
    """The setting or condition that is varied."""
    benchmark: str
    method: str
    """The fitted method, one of RL-Focal's; empty: none."""
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
    """The point of `accuracies`, one per seed, on n documents: their mean, with both standard errors."""
    return Point(series, label, x, n, len(accuracies), *mean_over_seeds(accuracies, n), **more)


def save(findings: StudyFindings, folder: Path) -> Path:
    """Writes a study's findings into `folder`, replacing earlier ones; returns the path of the JSON file."""
    path = folder / f"{findings.name}.json"
    write_file(path, TypeAdapter(StudyFindings).dump_json(findings, indent=1))
    return path


def load(path: Path) -> StudyFindings:
    """The findings in a file that `save` wrote. Raises InputError for any other file."""
    try:
        return TypeAdapter(StudyFindings).validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise InputError(
            f"{path} holds no findings of a study ({error}); delete it and run the study again"
        ) from error


class StudyResult(NamedTuple):
    """The points and notes that a study's function returns."""

    points: list[Point]
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Study:
    """A question about RL-Focal, and the function that answers it."""

    name: str
    question: str
    axis: str
    """The setting or condition that is varied."""
    answer: Callable[[Conditions, Sequence[Any]], StudyResult]
    """The function that runs the study, from its conditions and the values to try."""
    values: tuple[Any, ...] = ()
    """The values to try unless others are given; empty: the study takes no values."""
    beside: Beside | None = "mean_pool_size"
    method: str = RL_FOCAL[0]
    """The method that is studied, one of RL-Focal's, unless another is given."""
    fits: bool = True
    """Whether the study fits a method of RL-Focal's."""

    def run(self, conditions: Conditions, values: Sequence[Any] | None = None) -> StudyFindings:
        """Runs the study, reusing runs that the warehouse has; writes the findings beside it and returns
        them. Raises InputError for impossible settings or values."""
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
    """The settings as `name=value,...`, in alphabetical order."""
    return ",".join(f"{name}={write_value(value)}" for name, value in sorted(settings.items()))


def parse(method: str, texts: Sequence[str]) -> dict[str, Any]:
    """A method's settings from words `name=value`. Raises InputError for a word that is not one."""
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
    """The conditions that all arms of one run of a study share."""

    setup: Setup
    method: str = RL_FOCAL[0]
    settings: Settings = field(default_factory=dict)
    """The settings that differ from the method's defaults in every arm."""
    chose_models: bool = False
    """Whether documents or models differ from the benchmark's; such runs are on no leaderboard."""
    study: str = ""
    beside: tuple[str, ...] = ()
    """The methods to run beside RL-Focal in studies that have a choice; empty: the study's own."""

    def replace_rows(self, data: Dataset, protocol: Protocol = "frozen") -> Conditions:
        """The same conditions with this dataset and protocol; their runs are on no leaderboard."""
        setup = replace(self.setup, dataset=data, request=replace(self.setup.request, protocol=protocol))
        return replace(self, setup=setup, chose_models=True)


class Arm(NamedTuple):
    """A method to evaluate on a dataset, and where the study's figure shows the result."""

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
    """The arm of RL-Focal under the conditions, with further `settings`.

    `beside` are values by which stored runs differ besides settings, such as what `adapt` changes in the
    method. Unless `keep`, agents are trained anew and not stored.
    """
    setup, method = conditions.setup, conditions.method
    every = {**conditions.settings, **settings}
    title = " ".join(dict.fromkeys([setup.dataset.benchmark, RL_FOCAL_LABEL, label]))
    own = RLFocal(method, None, setup.store if keep else None, setup.progress(title), changes=every)
    differences = {**find_changes(method, every, setup.train_sizes), **beside}
    return _make_arm(conditions, (RL_FOCAL_LABEL, label, x), method, adapt(own), differences)


def reference_arm(
    conditions: Conditions,
    name: str,
    label: str | None = None,
    x: float | None = None,
    *,
    beside: Settings = NO_SETTINGS,
) -> Arm:
    """The arm of a method with its default settings."""
    return _make_arm(conditions, (name.partition(":")[0], label or name, x), name, make_method(name), beside)


def find_changes(method: str, settings: Settings, sizes: Sequence[int]) -> dict[str, Any]:
    """The settings that differ from the method's defaults for some number of train documents in `sizes`."""
    configs = [configure(method, n) for n in sizes]
    return {k: v for k, v in settings.items() if any(getattr(config, k) != v for config in configs)}


def run_arms(arms: Sequence[Arm]) -> list[Point]:
    """The point of each arm, evaluated unless the warehouse has its runs."""
    return [_make_point(arm, run_arm(arm)) for arm in arms]


def run_arm(arm: Arm) -> list[Evaluation]:
    """The evaluations of an arm over all tasks, one per seed, run unless the warehouse has them."""
    runs, _ = run_methods(arm.setup, [arm.candidate])
    return [row for row in read_runs(arm.setup.warehouse, runs[arm.candidate.name]) if row.task == "*"]


def _make_arm(
    conditions: Conditions,
    place: tuple[str, str, float | None],
    name: str,
    method: Method,
    differences: Settings,
) -> Arm:
    # Without differences, the study shares its runs with `rlfocal evaluate`.
    study = conditions.study if differences or conditions.chose_models else None
    return Arm(*place, conditions.setup, Candidate(name, method, study, differences))


def _make_point(arm: Arm, rows: Sequence[Evaluation]) -> Point:
    more: dict[str, Any] = {
        "mean_pool_size": fmean(row.mean_pool_size for row in rows),
        "cost": mean_known(row.cost for row in rows),
        "seconds": fmean(row.seconds for row in rows),
        "runs": tuple(row.run_id for row in rows),
    }
    return point(arm.series, arm.label, arm.x, rows[0].n, [row.accuracy for row in rows], **more)
