"""Studies of `benchmarks.studies` as rows of a results file."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Any

from benchmarks.results.revisions import revision
from benchmarks.studies import STUDIES, Conditions
from benchmarks.studies.study import Point, parse
from rlfocal.evaluation import EvaluationRequest, Setup
from rlfocal.evaluation.planning import Per, read_dataset
from rlfocal.methods import entries
from warehouse import Warehouse


@dataclass(frozen=True)
class StudyTable:
    """A run of one study of `python -m benchmarks.studies`."""

    study: str
    benchmark: str
    method: str = "rl_focal"
    seeds: int = 3
    values: tuple[Any, ...] = ()
    settings: tuple[str, ...] = ()
    per: Per = "benchmark"
    models: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        said = [
            "python",
            "-m",
            "benchmarks.studies",
            self.study,
            "-b",
            self.benchmark,
            "--method",
            self.method,
        ]
        said += ["--seeds", str(self.seeds)]
        said += ["--values", ",".join(map(str, self.values))] if self.values else []
        said += ["--per", self.per] if self.per != "benchmark" else []
        said += ["--models", ",".join(self.models)] if self.models else []
        said += ["--beside", ",".join(self.beside)] if self.beside else []
        return shlex.join([*said, *(part for one in self.settings for part in ("--set", one))])

    @property
    def about(self) -> dict[str, Any]:
        return {
            "benchmark": self.benchmark,
            "per": self.per,
            "protocol": "online" if self.study == "switch" else "frozen",
            "study": self.study,
            "settings": [f"{self.method}.{one}" for one in self.settings],
        }

    def rows(self, warehouse: Warehouse, at_once: int = 1) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        dataset = read_dataset(warehouse, self.benchmark, self.models or None)
        setup = Setup(warehouse, dataset, EvaluationRequest(self.benchmark, seeds=self.seeds, per=self.per))
        found = STUDIES[self.study].run(
            Conditions(
                setup,
                self.method,
                parse(self.method, list(self.settings)),
                chose_models=bool(self.models),
                beside=self.beside,
            ),
            self.values or None,
        )
        data = {
            "models": len(dataset.models),
            "documents": len(dataset.test),
            "data": dataset.fingerprint()[:12],
        }
        seconds = sum((point.seconds or 0) * point.seeds for point in found.points)
        notes = {"notes": list(found.notes)} if found.notes else {}
        return data | {"seconds": round(seconds, 1)} | notes, [self._row(point) for point in found.points]

    def _row(self, point: Point) -> dict[str, Any]:
        is_rival = point.series in entries()
        method = point.series if is_rival else self.method
        settings = () if is_rival else self.about["settings"]
        return {
            "method": method,
            "series": point.series,
            "label": point.label,
            "x": point.x,
            "seeds": point.seeds,
            "accuracy": round(point.accuracy, 6),
            "stderr_seeds": _round(point.stderr_seeds, 6),
            "stderr_docs": round(point.stderr_docs, 6),
            "mean_pool_size": _round(point.mean_pool_size, 4),
            "cost": point.cost,
            "seconds": _round(point.seconds, 2),
            "revision": revision(method, settings, self.about["protocol"]),
        }


def _round(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
