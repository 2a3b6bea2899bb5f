"""`rlfocal drift`: whether models still answer as they did."""

from __future__ import annotations

from typing import Annotated

from rlfocal.base.request import Option
from rlfocal.cli.support.commands import command
from rlfocal.cli.support.options import Location, Result


@command("drift", "Keep a warehouse")
def drift(
    before: Annotated[
        int | None,
        Option("The earlier snapshot.", default="before the last extraction", flags=("--from",), metavar="N"),
    ] = None,
    after: Annotated[
        int | None, Option("The later snapshot.", default="the newest", flags=("--to",), metavar="N")
    ] = None,
    logprob: Annotated[
        float | None,
        Option(
            "By how much the log-prob of a one-token choice may differ.",
            least=0,
            default="0.001; 0.1 in 16 bits",
            metavar="X",
        ),
    ] = None,
    flipped: Annotated[
        float | None,
        Option(
            "Share of predictions that may flip.",
            least=0,
            most=1,
            default="0.01; 0.05 in 16 bits",
            metavar="X",
        ),
    ] = None,
    accuracy: Annotated[
        float | None,
        Option("By how much an accuracy may change.", least=0, most=1, default="0.01", metavar="X"),
    ] = None,
    fail: Annotated[bool, Option("Exit with code 1 if anything is beyond the thresholds.")] = False,
    as_markdown: Annotated[bool, Option("Print a Markdown table.", flags=("--markdown",))] = False,
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
