"""Options that several commands share, their completions in the shell, and functions that print a result."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, is_dataclass
from datetime import datetime
from math import isfinite
from typing import Annotated, Any, Literal

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
_Kind = Literal["benchmark", "model"]


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


def complete_pools(ctx: typer.Context, incomplete: str) -> list[str]:
    """Completes the names of pools in ./pools and ./.rlfocal/pools, and of those that ship with rlfocal.

    As in every completion, errors are hidden from the prompt.
    """
    try:
        from rlfocal.pool.files import pool_names

        return _match_prefix(incomplete, pool_names())
    except Exception:
        return []


def _make_completer(kind: _Kind, *, is_list: bool = False) -> Callable[[typer.Context, str], list[str]]:
    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        return (_match_last if is_list else _match_prefix)(incomplete, _names(ctx, kind))

    return complete


def _names(ctx: typer.Context, kind: _Kind) -> list[str]:
    """The names of models or benchmarks, of the command's pool if it takes one, else of its warehouse."""
    takes = {parameter.name for parameter in ctx.command.params}
    try:
        if "pool" in takes:
            return _list_pool_names(ctx.params.get("pool"), kind)
        return _list_stored_names(ctx.params.get("warehouse"), kind)
    except Exception:  # a misspelt pool, no warehouse yet: there is nothing to complete
        return []


def _list_pool_names(pool: str | None, kind: _Kind) -> list[str]:
    from rlfocal.pool.files import load_benchmarks, load_pool

    if pool is None:
        return list(load_benchmarks()) if kind == "benchmark" else []
    chosen = load_pool(pool)
    return [b.name for b in chosen.benchmarks] if kind == "benchmark" else [m.model for m in chosen.models]


def _list_stored_names(location: str | None, kind: _Kind) -> list[str]:
    from warehouse.connecting import attach, connect
    from warehouse.locations import locate, may_exist

    place = locate(location)
    if not may_exist(place):
        return []
    with connect(postgres=place.is_postgres) as connection:
        attach(connection, place, read_only=True, create=False, snapshot=None)
        return [name for (name,) in connection.execute(f"SELECT DISTINCT {kind} FROM extractions").fetchall()]


def _match_prefix(incomplete: str, names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if name.startswith(incomplete))


def _match_last(incomplete: str, names: Iterable[str]) -> list[str]:
    before, comma, last = incomplete.rpartition(",")
    given = before.split(",")
    return [f"{before}{comma}{name}" for name in _match_prefix(last, names) if name not in given]


complete_benchmark = _make_completer("benchmark")
complete_benchmarks = _make_completer("benchmark", is_list=True)
complete_model = _make_completer("model")
complete_models = _make_completer("model", is_list=True)
