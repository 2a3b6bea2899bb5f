"""`rlfocal doctor`: checks the installation and the warehouse."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

import typer

from rlfocal.cli.support.commands import command
from rlfocal.cli.support.options import Json, Location, print_json
from rlfocal.cli.support.progress import progress_bars

_LISTED = 5  # findings of one kind that are listed one by one
_MARKS = {"ok": "✓", "note": "·", "fault": "✗"}


@command("doctor", "Keep a warehouse")
def doctor(
    fix: Annotated[
        bool,
        typer.Option(
            "--repair",
            help="Drop unreadable files and incomplete partitions, and delete leftovers.",
        ),
    ] = False,
    warehouse: Location = None,
    as_json: Json = False,
) -> None:
    """Check versions, GPU, Prefect server and every file of the warehouse, and say how to fix what is wrong.

    Exit code 0: nothing is broken; 1: something is. `--repair` commits a new snapshot, and the next
    extraction or import adds what it dropped.
    """
    from rlfocal.upkeep.doctor.checks import diagnose

    with progress_bars() as on_progress:
        found = diagnose(warehouse, fix=fix, on_progress=lambda share: on_progress("files read", share))
    if as_json:
        print_json(found)
    else:
        listed = Counter[tuple[str, str]]()
        for finding in found:
            listed[finding.check, finding.level] += 1
            if listed[finding.check, finding.level] > _LISTED:
                continue
            typer.echo(f"{_MARKS[finding.level]} {finding.check}: {finding.message}")
            if finding.fix:
                typer.echo(f"    → {finding.fix}")
        for (check, level), n in listed.items():
            if n > _LISTED:
                typer.echo(f"{_MARKS[level]} {check}: and {n - _LISTED:,} more, which --json lists")
    if any(finding.level == "fault" for finding in found):
        raise typer.Exit(1)
