"""`rlfocal open-ended`: which model should answer the next open-ended question?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from rlfocal.base.request import Option, Seeds
from rlfocal.cli.support.commands import command
from rlfocal.cli.support.options import Result
from rlfocal.cli.support.progress import progress_bars


@command("open-ended", "Learn and compare")
def open_ended(
    scores: Annotated[
        Path,
        Option("Parquet, CSV or JSONL: task, doc_id, model, score[, split].", metavar="FILE"),
    ],
    seeds: Seeds = 5,
    settings: Annotated[
        Literal["every-action", "paper"],
        Option("paper: those of appendix D, which learn only from the models picked."),
    ] = "every-action",
) -> Result:
    """Train a Decider that routes each document of a stream to one model, based on earlier scores.

    FILE has a row per document and model, in the order of the stream; if a task has no `split`, its first
    80 % are train. The Decider learns on these, then runs frozen on the test documents. Its mean score is
    shown beside those of the best single model on train, a random model and the oracle.
    """
    from rlfocal.evaluation.openended import (
        PAPER,
        OpenEndedConfig,
        evaluate_scores,
        print_open_ended,
        read_scores,
    )

    table = read_scores(scores)
    config = PAPER if settings == "paper" else OpenEndedConfig()
    with progress_bars() as on_progress:
        report = evaluate_scores(table, seeds, config, lambda share: on_progress("decider", share))
    return Result(report, lambda: print_open_ended(report))
