"""A study: a question about RL-Focal, and how it is answered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from rlfocal.base.errors import InputError
from rlfocal.base.names import RL_FOCAL
from rlfocal.evaluation.studies.arms import Conditions
from rlfocal.evaluation.studies.findings import Beside, Findings, Point, save
from rlfocal.methods.checking import read_value, shown
from rlfocal.methods.trained import Settings, check_settings, defaults

ALL = "all"
"""The value that stands for all there are to try."""


class Found(NamedTuple):
    """What the study found."""

    points: list[Point]
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Study:
    """A question, and how it is answered."""

    name: str
    question: str
    axis: str
    """What is varied."""
    answer: Callable[[Conditions, Sequence[Any]], Found]
    """Given the values to try."""
    values: tuple[Any, ...] = ()
    """What is tried unless other values are given; empty: there is nothing to choose."""
    beside: Beside | None = "mean_pool_size"
    method: str = RL_FOCAL[0]
    """Which of RL-Focal's methods, unless another is given."""
    suits: Callable[[Conditions, Any], bool] = lambda conditions, value: True
    """Whether one of `values` can be tried on a pool."""

    def run(self, conditions: Conditions, values: Sequence[Any] | None = None) -> Findings:
        """Run what the warehouse does not have yet, and keep what was found beside it.

        Raises InputError for settings or values that cannot be.
        """
        if values and not self.values:
            raise InputError(f"study {self.name} takes no values")
        check_settings(conditions.method, conditions.settings)
        conditions = replace(conditions, study=self.name)
        if values is None:
            values = [value for value in self.values if self.suits(conditions, value)] or self.values[:1]
        found = self.answer(conditions, values)
        findings = Findings(
            study=self.name,
            question=self.question,
            axis=self.axis,
            benchmark=conditions.setup.dataset.benchmark,
            method=conditions.method,
            per=conditions.setup.request.per,
            models=conditions.setup.dataset.models,
            settings=written(conditions.settings),
            points=tuple(found.points),
            beside=self.beside,
            notes=tuple(found.notes),
        )
        save(findings, conditions.setup.warehouse.location.studies)
        return findings


def written(settings: Settings) -> str:
    """`name=value,...` as `parse` reads it, in alphabetical order."""
    return ",".join(f"{name}={shown(value)}" for name, value in sorted(settings.items()))


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
