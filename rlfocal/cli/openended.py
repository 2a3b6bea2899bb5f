"""`rlfocal open-ended`: which model should answer the next open-ended question?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rlfocal.base.request import Option, Seeds
from rlfocal.base.tables import Table
from rlfocal.base.wording import DASH, decimal, percent
from rlfocal.cli.support.commands import command
from rlfocal.cli.support.options import Result
from rlfocal.cli.support.progress import progress_bars

if TYPE_CHECKING:
    from rlfocal.evaluation.openended import OpenEndedReport


@command("open-ended", "Learn and compare")
def open_ended(
    scores: Annotated[
        Path, Option("Parquet, CSV or JSONL: task, doc_id, model, score[, split].", metavar="FILE")
    ],
    seeds: Seeds = 5,
) -> Result:
    """Train a Decider that routes each document of a stream to one model, based on earlier scores.

    FILE has a row per document and model, in the order of the stream; if a task has no `split`, its first
    80 % are train. The Decider learns on these, then runs frozen on the test documents. Its mean score is
    shown beside those of the best single model on train, a random model and the oracle.
    """
    from rich.console import Console

    from rlfocal.evaluation.openended import evaluate_scores, read_scores

    table = read_scores(scores)
    with progress_bars() as on_progress:
        report = evaluate_scores(table, seeds, on_progress=lambda share: on_progress("decider", share))
    return Result(report, lambda: Console().print(_table(report)))


def _table(report: OpenEndedReport) -> Table:
    """Mean scores by falling score; the Decider's with its difference to the best single model."""
    title = f"{report.n_test:,} test documents after {report.n_train:,} train documents"
    table = Table("method", "mean score", "± seeds", "vs best_single", "picked %", title=title)
    above = report.above_best_single
    told = f"{above.mean:+.4f} [{above.low:+.4f}, {above.high:+.4f}]"
    rows = {"decider": (report.decider, decimal(report.stderr_seeds, 4), told, DASH)}
    rows |= {name: (getattr(report, name), DASH, DASH, DASH) for name in ("random", "oracle")}
    for model, score in report.singles.items():
        name = "best_single" if model == report.best_single else f"single:{model}"
        rows[name] = score, DASH, DASH, percent(report.picked[model], 1)
    for name, (score, *cells) in sorted(rows.items(), key=lambda row: -row[1][0]):
        table.add(name, decimal(score, 4), *cells, style="bold" if name == "decider" else "")
    return table
