"""What a new model brings to its pool: how often it is right, and how differently it fails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from rlfocal.evaluation.leaderboard import percent
from rlfocal.terminal import Listing
from warehouse import Warehouse
from warehouse.scripts import script


@dataclass(frozen=True)
class Newcomer:
    """One model on one benchmark, beside the others."""

    benchmark: str
    model: str
    n: int
    """Documents."""
    accuracy: float
    stderr: float | None
    rank: int
    """1: the most accurate model of the benchmark."""
    n_models: int
    focal_diversity: dict[str, float | None]
    """Of the pair with each other model; None where neither ever fails."""


def newcomer(warehouse: Warehouse, model: str) -> list[Newcomer]:
    """How `model` stands on every benchmark that it answered."""
    standings = warehouse.rows(
        script("queries/ranks"),
        [model],
    )
    return [
        Newcomer(benchmark, model, n, accuracy, stderr, rank, n_models, _pairs(warehouse, benchmark, model))
        for benchmark, n, accuracy, stderr, rank, n_models in standings
    ]


def _pairs(warehouse: Warehouse, benchmark: str, model: str) -> dict[str, float | None]:
    pairs = warehouse.rows(
        script("queries/pairs_of_model"),
        [model, benchmark, model],
    )
    return dict(pairs)


def print_newcomer(standings: Sequence[Newcomer], console: Console | None = None) -> None:
    """Its accuracy and rank per benchmark, then the focal diversity of each pair it forms."""
    if not standings:
        return
    console = console or Console()
    console.print(Text(f"{standings[0].model}: accuracy, and rank among the models"), style="bold")
    table = Listing("benchmark", "documents", "accuracy %", "± docs", "rank")
    for s in standings:
        spread = "–" if s.stderr is None else f"±{100 * s.stderr:.2f}"
        cells = (s.benchmark, f"{s.n:,}", percent(s.accuracy), spread, f"{s.rank} of {s.n_models}")
        table.add(*cells)
    console.print(table)
    console.print(
        "\nfocal diversity of the pair it forms with each model (1: never fail together)", style="bold"
    )
    pairs = Listing("model", *(s.benchmark for s in standings))
    for other in sorted({name for s in standings for name in s.focal_diversity}):
        values = [s.focal_diversity.get(other) for s in standings]
        shown = ("–" if value is None else f"{value:.3f}" for value in values)
        pairs.add(other, *shown)
    console.print(pairs)
