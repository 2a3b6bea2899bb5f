"""Commands that show the warehouse's history: snapshots, diff."""

from __future__ import annotations

from collections.abc import Iterable
from shutil import get_terminal_size
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rlfocal.base.request import Option
from rlfocal.cli.support.commands import command
from rlfocal.cli.support.options import Location, Result

if TYPE_CHECKING:
    from warehouse.snapshots import Snapshot as Commit

_LISTED = 3  # partitions in a line


@command("snapshots", "Keep a warehouse")
def snapshots(
    last: Annotated[int | None, Option("Only the last N.", least=1, default="all", metavar="N")] = None,
    warehouse: Location = None,
) -> Result:
    """List the warehouse's snapshots: when and why each was made, and which rows and partitions it changed.

    Every commit is a snapshot. Other commands read the warehouse as it was then with `--snapshot N`.
    """
    from warehouse import open_warehouse
    from warehouse.snapshots import snapshots as listed

    with open_warehouse(warehouse, read_only=True) as opened:
        found = listed(opened, last)
    width = get_terminal_size().columns
    lines = (fill(_line(one), width, subsequent_indent=" " * 7, break_on_hyphens=False) for one in found)
    return Result([_plain_snapshot(snapshot) for snapshot in found], "\n".join(lines))


@command("diff", "Keep a warehouse")
def diff(
    before: Annotated[
        int | None,
        typer.Argument(
            metavar="A", help="A snapshot.", show_default="the one before the last extraction or import"
        ),
    ] = None,
    after: Annotated[
        int | None, typer.Argument(metavar="B", help="A later one.", show_default="the newest")
    ] = None,
    benchmark: Annotated[
        str | None,
        Option("Only this benchmark.", default="all", flags=("--benchmark", "-b"), complete="benchmark"),
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
    fail: Annotated[bool, Option("Exit with code 1 if any partition is beyond a limit.")] = False,
    warehouse: Location = None,
) -> Result:
    """Show what changed between two snapshots, and whether models still answer as before.

    For example, what an engine upgrade did: `rlfocal diff 120 164`. Log-probs computed in other batches
    differ a little; only larger differences are beyond a limit, per model and task. New models, new tasks and
    corrected labels never are.
    """
    from rich.console import Console

    from rlfocal.upkeep.drift import (
        Thresholds,
        as_json,
        before_last_extraction,
        drift_between,
        headline,
        table,
        upgrades,
    )
    from warehouse import open_warehouse

    thresholds = Thresholds().changed(logprob, flipped, accuracy)
    with open_warehouse(warehouse, read_only=True, snapshot=after) as opened:
        since = before_last_extraction(opened) if before is None else before
        place, shown = opened.location, opened.snapshot()
    drift = drift_between(place, since, shown, thresholds, benchmark)

    def show() -> None:
        typer.echo(fill(headline(drift), get_terminal_size().columns))
        if drift.difference.partitions:
            Console().print(table(drift))
        typer.echo("".join(f"{line}\n" for line in upgrades(drift)), nl=False)

    return Result(as_json(drift), show, is_failure=fail and bool(drift.beyond))


def _line(snapshot: Commit) -> str:
    """`12  2026-11-21 11:12:58  extract m on b/t  [choice_logprobs +408 −408]  replaced m on b/t`."""
    counts = [
        row.table + "".join(f" {sign}{n:,}" for sign, n in zip("+−~", row[1:], strict=True) if n)
        for row in snapshot.rows
    ]
    partitions = [
        f"{change} {_some(f'{p.model} on {p.benchmark}/{p.task}' for p in of)}"
        for change in ("added", "replaced", "removed")
        if (of := [p for p in snapshot.partitions if p.change == change])
    ]
    what = [snapshot.message or ", ".join(snapshot.kinds), *([f"[{', '.join(counts)}]"] if counts else [])]
    return "  ".join([f"{snapshot.id:>5}", f"{snapshot.time:%Y-%m-%d %H:%M:%S}", *what, *partitions])


def _some(listed: Iterable[str]) -> str:
    found = list(listed)
    more = f" and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
    return ", ".join(found[:_LISTED]) + more


def _plain_snapshot(snapshot: Commit) -> dict[str, Any]:
    """With named tuples as JSON's objects."""
    return vars(snapshot) | {
        "time": snapshot.time.isoformat(),
        "rows": [row._asdict() for row in snapshot.rows],
        "partitions": [partition._asdict() for partition in snapshot.partitions],
    }
