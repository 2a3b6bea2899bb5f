"""`rlfocal open-ended`: which model should answer the next open-ended question?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from rlfocal.cli.support.commands import command
from rlfocal.cli.support.options import Json, Seeds, print_json
from rlfocal.cli.support.progress import progress_bars


@command("open-ended", "Learn and compare")
def open_ended(
    scores: Annotated[
        Path,
        typer.Option(metavar="FILE", help="Parquet, CSV or JSONL: task, doc_id, model, score, maybe split."),
    ],
    seeds: Seeds = 5,
    settings: Annotated[
        Literal["every-action", "paper"],
        typer.Option(help="paper: those of appendix D, which learn from the picked models alone."),
    ] = "every-action",
    as_json: Json = False,
) -> None:
    """Train a Decider that hands every document of a stream to one model, by the scores before it.

    FILE has a row per document and model, in the order of the stream; where a task has no `split`, its first
    80 % are train. The Decider learns there and then goes frozen along the test documents. Beside its mean
    score stand the best single model of train, a random model and the oracle.
    """
    from rlfocal.openended import PAPER, OpenEndedConfig, evaluate_scores, read_scores
    from rlfocal.openended.table import print_open_ended

    table = read_scores(scores)
    config = PAPER if settings == "paper" else OpenEndedConfig()
    with progress_bars() as on_progress:
        report = evaluate_scores(table, seeds, config, lambda share: on_progress("decider", share))
    if as_json:
        print_json(report)
    else:
        print_open_ended(report)
