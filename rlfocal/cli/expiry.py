"""Commands that free space: expire, compact."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated

from rlfocal.base.errors import InputError
from rlfocal.base.request import Option
from rlfocal.base.wording import counted
from rlfocal.cli.support.commands import command
from rlfocal.cli.support.options import Location, Result

Yes = Annotated[
    bool,
    Option(
        "Apply the changes; otherwise a dry run.",
        flags=("--yes", "-y"),
    ),
]
_UNITS = {"h": "hours", "d": "days", "w": "weeks"}


@command("expire", "Keep a warehouse")
def expire(
    keep: Annotated[int | None, Option("Keep the newest N.", least=1, metavar="N")] = None,
    older_than: Annotated[
        str | None,
        Option("Delete those older than this: 12h, 30d, 8w.", metavar="AGE"),
    ] = None,
    evaluated: Annotated[
        bool,
        Option("Also delete those that evaluations or training runs read; these cannot be reproduced then."),
    ] = False,
    yes: Yes = False,
    warehouse: Location = None,
) -> Result:
    """Delete old snapshots and the files that only they need. A dry run unless `--yes`.

    The newest is always kept, and so are those that evaluations or training runs read, so that `--snapshot N`
    can reproduce them.
    """
    from rlfocal.methods.learning.store import trained_on
    from warehouse import open_warehouse
    from warehouse.expiry import expire as let_go

    age = None if older_than is None else _age(older_than)
    with open_warehouse(warehouse, create=False) as opened:
        trained = trained_on(opened.location.checkpoints)
        found = let_go(
            opened, keep=keep, older_than=age, evaluated=evaluated, trained=trained, dry_run=not yes
        )
    freed = f"{counted(found.files, 'file')}, {counted(found.bytes, 'byte')}"
    lines = [f"{'deleted' if yes else 'would delete'} {counted(len(found.snapshots), 'snapshot')}: {freed}"]
    if found.evaluated:
        lines.append(f"kept for evaluations and trained agents: {', '.join(map(str, found.evaluated))}")
    if found.snapshots and not yes:
        lines.append("a dry run: nothing is deleted; --yes applies it")
    return Result(found._asdict() | {"done": yes}, "\n".join(lines))


@command("compact", "Keep a warehouse")
def compact(warehouse: Location = None) -> Result:
    """Merge the warehouse's many small files into few; every snapshot shows what it showed before."""
    from warehouse import open_warehouse
    from warehouse.expiry import merge

    with open_warehouse(warehouse, create=False) as opened:
        found = merge(opened)
    before, after = counted(found.files_before, "file"), counted(found.files_after, "file")
    merged = f"{before} merged into {after}" if before != after else f"nothing to merge in {after}"
    anew = (
        f"; {counted(found.rewritten, 'file')} written anew without deleted rows" if found.rewritten else ""
    )
    return Result(found._asdict(), merged + anew)


def _age(text: str) -> timedelta:
    parsed = re.fullmatch(r"(\d{1,5})([hdw])", text.strip())
    if parsed is None:
        raise InputError(f"--older-than {text!r}: give a number with h, d or w, as in 12h, 30d or 8w")
    return timedelta(**{_UNITS[parsed[2]]: int(parsed[1])})
