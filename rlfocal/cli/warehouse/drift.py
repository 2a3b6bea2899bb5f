"""`rlfocal drift`: whether models still answer as they did."""

from __future__ import annotations

from typing import Annotated

import typer

from rlfocal.cli.support.commands import command
from rlfocal.cli.support.options import Location, Result


@command("drift", "Keep a warehouse")
def drift(
    before: Annotated[
        int | None,
        typer.Option(
            "--from", metavar="N", help="The earlier snapshot.", show_default="before the last extraction"
        ),
    ] = None,
    after: Annotated[
        int | None, typer.Option("--to", metavar="N", help="The later snapshot.", show_default="the newest")
    ] = None,
    logprob: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="X",
            help="By how much the log-prob of a one-token choice may differ.",
            show_default="0.001; 0.1 in 16 bits",
        ),
    ] = None,
    flipped: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            metavar="X",
            help="Share of predictions that may flip.",
            show_default="0.01; 0.05 in 16 bits",
        ),
    ] = None,
    accuracy: Annotated[
        float | None,
        typer.Option(
            min=0, max=1, metavar="X", help="By how much an accuracy may change.", show_default="0.01"
        ),
    ] = None,
    fail: Annotated[
        bool, typer.Option("--fail", help="Exit with code 1 if anything is beyond the thresholds.")
    ] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print a Markdown table.")] = False,
    warehouse: Location = None,
) -> Result:
    """Check whether models still answer as before: log-probs, flipped predictions, accuracies.

    New models, new tasks and corrected labels are not drift. Log-probs computed in other batches differ a
    little; only larger differences count, per model and task. `rlfocal diff` shows all of them.
    """
    from rlfocal.upkeep.drift import (
        Thresholds,
        as_json,
        before_last_extraction,
        drift_between,
        markdown,
        sentence,
        sentences,
    )
    from warehouse import open_warehouse

    thresholds = Thresholds().changed(logprob, flipped, accuracy)
    with open_warehouse(warehouse, read_only=True, snapshot=after) as opened:
        since = before_last_extraction(opened) if before is None else before
        place, shown = opened.location, opened.snapshot()
    found = drift_between(place, since, shown, thresholds)
    text = markdown(found) if as_markdown else "\n".join([*sentences(found), *map(sentence, found.beyond)])
    return Result(as_json(found), text, is_failure=fail and bool(found.beyond))
