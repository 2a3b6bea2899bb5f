"""Fits policies on a data frame, in a temporary warehouse."""

from __future__ import annotations

import weakref
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

import pyarrow as pa

from rlfocal.base import options
from rlfocal.base.names import RL_FOCAL
from rlfocal.evaluation.fitting import train
from rlfocal.evaluation.leaderboard import LeaderboardRow, leaderboard
from rlfocal.evaluation.running import evaluate
from rlfocal.exchange.imports.predictions import import_predictions
from rlfocal.exchange.imports.reading.tables import Frame
from rlfocal.exchange.imports.rows import ImportReport
from rlfocal.serving import Router
from warehouse import Warehouse, open_warehouse

_RESULT_SCHEMA = pa.schema(
    [("method", pa.string()), ("accuracy", pa.float64()), ("stderr", pa.float64()), ("documents", pa.int64())]
    + [(name, pa.float64()) for name in ("above_best_single", "low", "high", "models_asked", "cost")]
)


class FrameData:
    """Models' answers to documents: policies are fitted on train rows, and evaluated on test rows.

    The warehouse is temporary, and is deleted with this object.
    """

    def __init__(self, warehouse: Warehouse, benchmark: str, imported: ImportReport) -> None:
        self.warehouse, self.benchmark = warehouse, benchmark
        self.imported = imported
        """How the columns of the frame were understood; prints in a few lines."""

    def fit(
        self, method: options.Trained = RL_FOCAL[0], *, seeds: options.Seeds = 1, **others: Any
    ) -> list[Router]:
        """Fits one of RL-Focal's methods on train rows; returns a Router for each seed.

        `others`: further parameters of `rlfocal.train`. `per="task"` gives a Router for each task and seed.
        """
        trained = train(self.warehouse, self.benchmark, method=method, seeds=seeds, **others)
        [(rule,)] = self.warehouse.rows("SELECT coalesce(comparison, 'default') FROM benchmarks")
        return [Router.load(checkpoint, comparison=rule) for checkpoint in trained.checkpoints]

    def evaluate(
        self, methods: options.Methods = None, *, seeds: options.Seeds = 3, **others: Any
    ) -> pa.Table:
        """A table with a row per method, by falling accuracy on test rows. Stored results are not made anew.

        stderr: the standard error over documents. above_best_single: the paired difference to the best single
        model, where that is evaluated; low to high is its 95 % interval. cost: cents per 1,000 queries.
        `others`: further parameters of `rlfocal.evaluate`.
        """
        report = evaluate(self.warehouse, self.benchmark, methods=methods, seeds=seeds, **others)
        boards = leaderboard(self.warehouse, runs={row.run_id for row in report.rows})
        rows = [_make_result(standing, board.n) for board in boards for standing in board.rows]
        return pa.Table.from_pylist(rows, schema=_RESULT_SCHEMA)


def from_frame(
    frame: Frame | str | Path,
    scores: Frame | str | Path | None = None,
    *,
    benchmark: str = "frame",
    **others: Any,
) -> FrameData:
    """Makes data to fit policies on from a table of models' log-probs or answers, of pandas, polars or
    pyarrow.

    The table may have any shape that `rlfocal.import_predictions` takes. `others`: further parameters of that
    function. Policies are fitted on documents whose `split` is train. Without such a column, they are fitted
    on 80 % of each task, drawn by a hash of the ids. Raises InputError with all faults of the table.
    """
    with import_predictions.read(frame, scores, benchmark=benchmark, **others) as checked:
        folder = mkdtemp(prefix="rlfocal-")
        warehouse = open_warehouse(folder)
        data = FrameData(warehouse, benchmark, checked.write(warehouse))
    weakref.finalize(data, _remove, warehouse, folder)
    return data


def _remove(warehouse: Warehouse, folder: str) -> None:
    warehouse.close()
    rmtree(folder, ignore_errors=True)


def _make_result(row: LeaderboardRow, n: int) -> dict[str, Any]:
    above = row.against_baseline
    return {
        "method": row.method,
        "accuracy": row.accuracy,
        "stderr": row.stderr_docs,
        "documents": n,
        "above_best_single": above and above.mean,
        "low": above and above.low,
        "high": above and above.high,
        "models_asked": row.mean_pool_size,
        "cost": row.cost,
    }
