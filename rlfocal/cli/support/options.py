"""Options that several commands share, and functions that print a result."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from datetime import datetime
from math import isfinite
from typing import Annotated, Any

import typer

from rlfocal.base.errors import InputError
from rlfocal.base.options import Option

Location = Annotated[
    str | None,
    Option(
        "Warehouse directory, or a Postgres catalogue's URI.",
        default="./.rlfocal/warehouse",
        flags=("--warehouse", "-w"),
        metavar="PATH|URI",
        envvar="RLFOCAL_WAREHOUSE",
    ),
]
SnapshotOrTime = Annotated[
    str | None, Option("Read the warehouse as of this snapshot or time.", metavar="N|TIME")
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def number_or_time(snapshot: str | None) -> int | datetime | None:
    """The number or time that `--snapshot` names; times are local unless they name a zone.

    Raises InputError for any other text.
    """
    if snapshot is None:
        return None
    try:
        is_number = snapshot.removeprefix("-").isdecimal()
        return int(snapshot) if is_number else datetime.fromisoformat(snapshot).astimezone()
    except ValueError:
        raise InputError(
            f"--snapshot {snapshot!r} is neither a number nor a time such as 2026-11-24T12:00"
        ) from None


def show_result(value: Any, text: Any = None, *, as_json: bool, is_failure: bool = False) -> None:
    """Prints a command's result and exits: `value` as JSON, else `text`, which is the value by default.

    A function as `text` prints by itself. With `is_failure`, the exit code is 1.
    """
    shown = value if text is None else text
    if as_json:
        print_json(value)
    elif callable(shown):
        shown()
    else:
        typer.echo(str(shown))
    if is_failure:
        raise typer.Exit(1)


def print_json(value: Any) -> None:
    """Prints a result as JSON on stdout.

    Dataclasses become objects, numbers that JSON does not know, such as NaN, become null, and values of other
    types become text.
    """

    def to_plain_value(other: Any) -> Any:
        if isinstance(other, float) and not isfinite(other):
            return None
        if is_dataclass(other) and not isinstance(other, type):
            return to_plain_value(asdict(other))
        if isinstance(other, Mapping):
            return {key: to_plain_value(part) for key, part in other.items()}
        return [*map(to_plain_value, other)] if isinstance(other, list | tuple) else other

    typer.echo(json.dumps(to_plain_value(value), indent=2, default=str))
