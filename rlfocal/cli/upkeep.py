"""Commands that keep the warehouse in order: doctor, expire, compact."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from rlfocal.cli.options import Json, Location, print_json
from rlfocal.errors import InputError

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it; without, only tell what would be done.")]
_MARKS = {"ok": "✓", "note": "·", "fault": "✗"}
_UNITS = {"h": "hours", "d": "days", "w": "weeks"}


def doctor(
    mend: Annotated[
        bool,
        typer.Option(
            "--repair",
            help="Give up unreadable files, drop partitions that are not whole, delete leftovers.",
        ),
    ] = False,
    warehouse: Location = None,
    as_json: Json = False,
) -> None:
    """Check versions, GPU, Prefect server and the warehouse, file by file, and say how to mend.

    Exit code 0: nothing is broken; 1: something is. What `--repair` drops is a new snapshot, and the next
    extraction or import fills it again.
    """
    from rlfocal.doctor import diagnose

    found = diagnose(warehouse, mend=mend)
    if as_json:
        print_json(found)
    else:
        for finding in found:
            typer.echo(f"{_MARKS[finding.level]} {finding.check}: {finding.message}")
            if finding.mend:
                typer.echo(f"    → {finding.mend}")
    if any(finding.level == "fault" for finding in found):
        raise typer.Exit(1)


def expire(
    keep: Annotated[int | None, typer.Option(min=1, metavar="N", help="Keep the newest N.")] = None,
    older_than: Annotated[
        str | None, typer.Option("--older-than", metavar="AGE", help="Let older ones go: 12h, 30d, 8w.")
    ] = None,
    evaluated: Annotated[
        bool,
        typer.Option(
            "--evaluated",
            help="Also those that evaluations or training runs read, which then cannot be repeated.",
        ),
    ] = False,
    yes: Yes = False,
    warehouse: Location = None,
    as_json: Json = False,
) -> None:
    """Let old snapshots go, and delete the files that only they need. A dry run unless `--yes`.

    The newest always stays, and so do those that evaluations or training runs read, because `--snapshot N`
    reproduces these.
    """
    from warehouse import open_warehouse
    from warehouse.expiry import expire as let_go

    age = None if older_than is None else _age(older_than)
    with open_warehouse(warehouse, create=False) as opened:
        trained = _trained_on(opened.location.checkpoints)
        found = let_go(
            opened, keep=keep, older_than=age, evaluated=evaluated, trained=trained, dry_run=not yes
        )
    if as_json:
        print_json(found._asdict() | {"done": yes})
        return
    verb = "let go" if yes else "would let go"
    typer.echo(f"{verb} {len(found.snapshots):,} snapshots: {found.files:,} files, {found.bytes:,} bytes")
    if found.evaluated:
        typer.echo(f"kept for evaluations and trained agents: {', '.join(map(str, found.evaluated))}")
    if found.snapshots and not yes:
        typer.echo("nothing is done yet; --yes does it")


def compact(warehouse: Location = None, as_json: Json = False) -> None:
    """Merge the warehouse's many small files into few; every snapshot shows what it showed before."""
    from warehouse import open_warehouse
    from warehouse.expiry import merge

    with open_warehouse(warehouse, create=False) as opened:
        found = merge(opened)
    if as_json:
        print_json(found._asdict())
    else:
        typer.echo(f"{found.files_before:,} files are {found.files_after:,} now")


def _trained_on(checkpoints: Path) -> set[int]:
    """The snapshots that this machine's checkpoints were trained on."""
    from safetensors import SafetensorError, safe_open

    found = set()
    for path in checkpoints.rglob("*.safetensors"):
        # A torn checkpoint pins nothing; training again replaces it.
        with suppress(OSError, SafetensorError, ValueError), safe_open(path, framework="numpy") as file:
            for about in (file.metadata() or {}).values():
                found.add(json.loads(about).get("snapshot"))
    return found - {None}


def _age(text: str) -> timedelta:
    parsed = re.fullmatch(r"(\d{1,5})([hdw])", text.strip())
    if parsed is None:
        raise InputError(f"--older-than {text!r}: give a number with h, d or w, as in 12h, 30d or 8w")
    return timedelta(**{_UNITS[parsed[2]]: int(parsed[1])})
