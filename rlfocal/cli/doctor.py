"""`rlfocal doctor`: checks the installation and the warehouse."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

from rlfocal.base.request import Option
from rlfocal.cli.support.commands import command
from rlfocal.cli.support.options import Location, Result
from rlfocal.cli.support.progress import progress_bars

_LISTED = 5  # findings of one kind that are listed one by one
_MARKS = {"ok": "✓", "note": "·", "fault": "✗"}


@command("doctor", "Keep a warehouse")
def doctor(
    fix: Annotated[
        bool,
        Option("Drop unreadable files and incomplete partitions, and delete leftovers.", flags=("--repair",)),
    ] = False,
    warehouse: Location = None,
) -> Result:
    """Check versions, GPU, Prefect server and every file of the warehouse, and say how to fix what is wrong.

    Exit code 0: nothing is broken; 1: something is. `--repair` commits a new snapshot, and the next
    extraction or import adds what it dropped.
    """
    from rlfocal.upkeep.doctor.checks import diagnose

    with progress_bars() as on_progress:
        found = diagnose(warehouse, fix=fix, on_progress=lambda share: on_progress("files read", share))
    lines: list[str] = []
    listed = Counter[tuple[str, str]]()
    for finding in found:
        listed[finding.check, finding.level] += 1
        if listed[finding.check, finding.level] <= _LISTED:
            lines.append(f"{_MARKS[finding.level]} {finding.check}: {finding.message}")
            lines += [f"    → {finding.fix}"] if finding.fix else []
    for (check, level), n in listed.items():
        if n > _LISTED:
            lines.append(f"{_MARKS[level]} {check}: and {n - _LISTED:,} more, which --json lists")
    return Result(found, "\n".join(lines), is_failure=any(finding.level == "fault" for finding in found))
