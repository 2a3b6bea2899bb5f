"""What a study found: plain values that a table, a figure and a file show."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

from rlfocal.base.atomic import write_file
from rlfocal.base.errors import InputError
from rlfocal.base.wording import counted
from rlfocal.statistics.intervals import mean_over_seeds

OURS = "RL-Focal"
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
    """sqrt(p (1 - p) / n)."""
    mean_pool_size: float | None = None
    cost: float | None = None
    """Cents per 1,000 queries; None if a price is unknown."""
    seconds: float | None = None
    """To train (almost none for agents that were trained before) and decide, per seed."""
    runs: tuple[str, ...] = ()
    """Run ids in `evaluations`."""


@dataclass(frozen=True)
class Findings:
    """All that one run of a study shows."""

    study: str
    question: str
    axis: str
    """What is varied."""
    benchmark: str
    method: str
    """Of RL-Focal's methods the one that was fitted."""
    per: str
    models: tuple[str, ...]
    settings: str
    """What differs from the method's defaults throughout; empty: nothing."""
    points: tuple[Point, ...]
    beside: Beside | None
    """What the figure shows besides accuracy."""
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Of its files."""
        return f"{self.study}-{self.benchmark}-{self.method}".replace("/", "_")

    @property
    def title(self) -> str:
        settings = f" [{self.settings}]" if self.settings else ""
        per = "" if self.per == "benchmark" else ", per task"
        models = counted(len(self.models), "model")
        return f"{self.study} on {self.benchmark}, {self.method}{settings}, {models}{per}"


def point(
    series: str, label: str, x: float | None, n: int, accuracies: Sequence[float], **more: Any
) -> Point:
    """The mean over seeds with both standard errors."""
    return Point(series, label, x, n, len(accuracies), *mean_over_seeds(accuracies, n), **more)


def save(findings: Findings, folder: Path) -> Path:
    """Keep the newest findings of a study on one benchmark and method; returns the JSON file."""
    path = folder / f"{findings.name}.json"
    write_file(path, json.dumps(asdict(findings), indent=1))
    return path


def load(path: Path) -> Findings:
    """The inverse of `save`. Raises InputError for a file that holds something else."""
    ours = {f.name for f in fields(Point)}  # points of studies that are gone have more
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        points = [{name: p[name] for name in ours & p.keys()} for p in values["points"]]
        values["points"] = tuple(Point(**p | {"runs": tuple(p["runs"])}) for p in points)
        lists = {f.name for f in fields(Findings)} & {"models", "notes"}
        return Findings(**values | {name: tuple(values[name]) for name in lists})
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise InputError(
            f"{path} holds no findings of a study ({error}); delete it and run the study again"
        ) from error
