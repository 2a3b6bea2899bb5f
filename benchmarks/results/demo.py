"""The demo's benchmark `lab-mmlu`: its rows, and the README's figure of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.results.evaluated import Evaluated
from rlfocal.base.atomic import write_file
from rlfocal.evaluation import leaderboard
from rlfocal.extraction.running.runner import extract_pool
from rlfocal.pool.files import load_pool
from rlfocal.report.figures.cost import cost_accuracy
from warehouse import Warehouse

_COLOURS = "--ink:#1d1c1a;--muted:#6b675f;--rule:#dfdbd1;--accent:#b23a12;--blue:#2b5c8a;--paper:#fcfbf8"


@dataclass(frozen=True)
class Demo:
    """The usual methods on the embedded pool, which is extracted first."""

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
        extract_pool(warehouse.location.local, pool.model_copy(update={"benchmarks": mmlu}))
        found = self._evaluated.rows(warehouse, at_once)
        [board] = leaderboard.leaderboard(warehouse, ["lab-mmlu"])
        box, drawn = cost_accuracy(board, "lab").split(">", 1)
        root = box.replace(
            "<svg", '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
        )
        colours = f"<style>svg{{{_COLOURS};--sans:sans-serif;background:#fcfbf8}}</style>"
        write_file(self.figure, f'{root} width="756" height="378">{colours}{drawn}\n')
        return found

    @property
    def _evaluated(self) -> Evaluated:
        return Evaluated("lab-mmlu", seeds=self.seeds)
