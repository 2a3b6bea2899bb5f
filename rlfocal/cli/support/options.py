"""Options that several commands share, and how lists and JSON look."""

from __future__ import annotations

import json
from dataclasses import asdict, is_dataclass
from datetime import datetime
from typing import Annotated, Any, NamedTuple

import typer

from rlfocal.base.errors import InputError
from rlfocal.base.request import Option

Location = Annotated[
    str | None,
    Option(
        "Warehouse directory, or a Postgres catalogue's URI.",
        default="./.rlfocal/warehouse",
        flags=("--warehouse", "-w"),
        metavar="PATH|URI",
        variable="RLFOCAL_WAREHOUSE",
    ),
]
SnapshotOrTime = Annotated[
    str | None, Option("Read the warehouse as of this snapshot or time.", metavar="N|TIME")
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def names(listed: str | None, option: str = "--models") -> list[str] | None:
    """`a,b` as a list; None if the option was not given. Raises InputError if it is empty."""
    if listed is None:
        return None
    named = [name for name in (part.strip() for part in listed.split(",")) if name]
    if not named:
        raise InputError(f"{option} is empty; leave it out for all, or give names as in `{option} a,b`")
    return named


def number_or_time(snapshot: str | None) -> int | datetime | None:
    """A snapshot's number, or a time, local unless it names its zone. Raises InputError for other text."""
    if snapshot is None:
        return None
    try:
        is_number = snapshot.removeprefix("-").isdecimal()
        return int(snapshot) if is_number else datetime.fromisoformat(snapshot).astimezone()
    except ValueError:
        raise InputError(
            f"--snapshot {snapshot!r} is neither a number nor a time such as 2026-11-24T12:00"
        ) from None


class Result(NamedTuple):
    """What a command found."""

    value: Any
    """What `--json` prints."""
    text: Any = None
    """What is printed otherwise, by default the value; a function prints by itself."""
    is_failure: bool = False
    """Whether the exit code is 1."""

    def show(self, *, as_json: bool) -> None:
        text = self.value if self.text is None else self.text
        if as_json:
            print_json(self.value)
        elif callable(text):
            text()
        else:
            typer.echo(str(text))
        if self.is_failure:
            raise typer.Exit(1)


def print_json(value: Any) -> None:
    """A result on stdout; dataclasses become objects, other types text."""

    def plain(other: Any) -> Any:
        return asdict(other) if is_dataclass(other) and not isinstance(other, type) else str(other)

    typer.echo(json.dumps(value, indent=2, default=plain))
