"""Tables of the page and of files: all boards at a glance, models alone, the pools that RL-Focal chose."""

from __future__ import annotations

from collections.abc import Sequence

from rlfocal.base.tables import Table
from rlfocal.base.wording import DASH, cents, decimal, percent
from rlfocal.evaluation.comparable import SINGLE, about_models
from rlfocal.evaluation.leaderboard import Board
from rlfocal.evaluation.verdicts import title
from rlfocal.report.pools import Pool, pool_choice
from warehouse import Warehouse

MANY = 20
"""Models of a benchmark, beyond which a pool of all of them is not spelled out."""


def overview_table(boards: Sequence[Board]) -> Table:
    """Methods by boards, the methods by how close they come to the best on the boards that have them.

    By accuracy itself, a method evaluated only on easy boards would be on top.
    """
    table = Table(
        "method",
        *map(title, boards),
        title="At a glance",
        caption="Accuracy on test documents in %, the mean over seeds. The oracle is a ceiling, no method.",
    )
    found = [{s.method: s for s in board.standings if not s.method.startswith(SINGLE)} for board in boards]
    behind: dict[str, list[float]] = {}
    for board, of in zip(boards, found, strict=True):
        for name, s in of.items():
            behind.setdefault(name, []).append(board.best_accuracy - s.accuracy)
    for name in sorted(behind, key=lambda name: (sum(behind[name]) / len(behind[name]), name)):
        standings = [of.get(name) for of in found]
        ours = any(s is not None and s.is_ours for s in standings)
        cells = [DASH if s is None else percent(s.accuracy) for s in standings]
        table.add(name, *cells, style="bold" if ours else "")
    return table


def pool_in_words(pool: Sequence[str], models: Sequence[str]) -> str:
    """The names of a pool, unless it is all of many models.

    >>> pool_in_words(["a", "b"], ["b", "a"])
    'a, b'
    """
    is_all = len(models) >= MANY and set(pool) == set(models)
    return "all models" if is_all else ", ".join(pool)


def models_table(warehouse: Warehouse, board: Board) -> Table:
    """A row a model, alone on all test documents that it answered: the figures of `model_scores`."""
    table = Table(
        "model",
        *("accuracy %", "from", "to", "Brier", "log-loss", "documents", "¢ / 1,000"),
        title="Models alone",
        caption="On the test documents that the warehouse holds; from, to: Wilson's 95 % interval.",
    )
    prices = {single.model: single.cost for single in board.singles}
    for model, n, accuracy, low, high, brier, log_loss in about_models(
        warehouse, "model_scores", board.benchmark, board.models
    ):
        shares = (percent(accuracy), percent(low), percent(high))
        table.add(model, *shares, decimal(brier), decimal(log_loss), f"{n:,}", cents(prices.get(model)))
    return table


def pools_table(warehouse: Warehouse, board: Board) -> Table:
    """The pools that RL-Focal's methods chose most often, beside all models and the best in hindsight."""
    table = Table(
        "method",
        *("share %", "models", "focal diversity", "plurality %"),
        texts=("pool",),
        title="Pools that RL-Focal chose",
        caption="share: of its decisions. Focal diversity is 0 where the models of a pool always fail "
        "together and 1 where no two ever do.",
    )

    def add(name: str, pool: Pool, share: str) -> None:
        numbers = decimal(pool.focal_diversity), percent(pool.plurality_accuracy)
        table.add(name, share, str(len(pool.models)), *numbers, pool_in_words(pool.models, board.models))

    for s in board.ours:
        choice = pool_choice(warehouse, board.benchmark, [run.run_id for run in s.runs], board.models)
        if choice is None:
            continue
        for pool in choice.chosen:
            add(s.method, pool, percent(pool.share))
        if s is board.ours[-1]:
            add("all models", choice.full, DASH)
            add("best in hindsight", choice.best, DASH)
    return table
