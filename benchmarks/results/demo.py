"""The results of the demo's benchmark `lab-mmlu`, and the README's figure of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.results.evaluations import EvaluationTable
from rlfocal.base.atomic import write_file
from rlfocal.evaluation import leaderboard
from rlfocal.extraction.running.runner import extract
from rlfocal.pool.files import load_pool
from rlfocal.report.figures.cost import cost
from rlfocal.report.figures.style import PAPER, svg
from warehouse import Warehouse


@dataclass(frozen=True)
class DemoTable:
    """The evaluation of the default methods on `lab-mmlu`, after its pool is extracted."""

    figure: Path
    seeds: int = 3

    @property
    def command(self) -> str:
        return "rlfocal regenerate --pool lab"

    @property
    def about(self) -> dict[str, Any]:
        return self._evaluated.about

    def rows(self, warehouse: Warehouse, at_once: int = 1) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        pool = load_pool("lab")
        mmlu = tuple(one for one in pool.benchmarks if one.name == "lab-mmlu")
        extract(pool.model_copy(update={"benchmarks": mmlu}), warehouse.location.local)
        found = self._evaluated.rows(warehouse, at_once)
        [board] = leaderboard.leaderboard(warehouse, ["lab-mmlu"])
        drawn = cost(warehouse, board)
        assert drawn is not None
        write_file(self.figure, svg(drawn.spec, PAPER))
        return found

    @property
    def _evaluated(self) -> EvaluationTable:
        return EvaluationTable("lab-mmlu", seeds=self.seeds)
