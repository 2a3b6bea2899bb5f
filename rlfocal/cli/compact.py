"""`rlfocal compact`: frees space."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Any

from rlfocal.base.errors import InputError
from rlfocal.base.request import Option
from rlfocal.base.wording import counted
from rlfocal.cli.support.commands import command
from rlfocal.cli.support.options import Location, Result

_UNITS = {"h": "hours", "d": "days", "w": "weeks"}


@command("compact", "Keep a warehouse")
def compact(
    keep: Annotated[
        int | None, Option("Delete all snapshots but the newest N.", least=1, default="all", metavar="N")
    ] = None,
    older_than: Annotated[
        str | None,
        Option("Delete snapshots older than this: 12h, 30d, 8w.", default="none", metavar="AGE"),
    ] = None,
    evaluated: Annotated[
        bool,
        Option("Also delete those that evaluations or training runs read; these cannot be reproduced then."),
    ] = False,
    yes: Annotated[
        bool,
        Option("Delete the snapshots; otherwise what would be deleted is only said.", flags=("--yes", "-y")),
    ] = False,
    warehouse: Location = None,
) -> Result:
    """Merge the warehouse's many small files into few, after deleting old snapshots if asked to.

    Without `--keep` or `--older-than`, every snapshot shows what it showed before. With one, a dry run unless
    `--yes`: the newest snapshot is always kept, and so are those that evaluations or training runs read, so
    that `--snapshot N` can reproduce them. Files that only deleted snapshots need go with them.
    """
    from rlfocal.methods.learning.store import trained_on
    from warehouse import open_warehouse
    from warehouse.expiry import expire, merge

    age = None if older_than is None else _age(older_than)
    is_expiring = keep is not None or age is not None
    value: dict[str, Any] = {"done": yes or not is_expiring}
    lines = []
    with open_warehouse(warehouse, create=False) as opened:
        if is_expiring:
            trained = trained_on(opened.location.checkpoints)
            expiry = expire(
                opened, keep=keep, older_than=age, evaluated=evaluated, trained=trained, dry_run=not yes
            )
            value |= expiry._asdict()
            freed = f"{counted(expiry.files, 'file')}, {counted(expiry.bytes, 'byte')}"
            verb = "deleted" if yes else "would delete"
            lines.append(f"{verb} {counted(len(expiry.snapshots), 'snapshot')}: {freed}")
            if expiry.evaluated:
                lines.append(
                    f"kept for evaluations and trained agents: {', '.join(map(str, expiry.evaluated))}"
                )
        if value["done"]:
            merged = merge(opened)
            value |= merged._asdict()
            before, after = counted(merged.files_before, "file"), counted(merged.files_after, "file")
            lines.append(
                f"{before} merged into {after}" if before != after else f"nothing to merge in {after}"
            )
            if merged.rewritten:
                lines.append(f"{counted(merged.rewritten, 'file')} written anew without deleted rows")
        else:
            lines.append("a dry run: nothing is deleted or merged; --yes applies it")
    return Result(value, "\n".join(lines))


def _age(text: str) -> timedelta:
    parsed = re.fullmatch(r"(\d{1,5})([hdw])", text.strip())
    if parsed is None:
        raise InputError(f"--older-than {text!r}: give a number with h, d or w, as in 12h, 30d or 8w")
    return timedelta(**{_UNITS[parsed[2]]: int(parsed[1])})
