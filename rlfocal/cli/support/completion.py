"""Completions for the shell: names of pools, benchmarks and models. Errors are hidden from the prompt."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

import typer

Kind = Literal["benchmark", "model"]


def pools(ctx: typer.Context, incomplete: str) -> list[str]:
    """Completes the names of pools in ./pools and ./.rlfocal/pools, and of those that ship with rlfocal."""
    try:
        from rlfocal.pool.files import pool_names

        return _match_prefix(incomplete, pool_names())
    except Exception:
        return []


def _make_completer(kind: Kind, *, is_list: bool = False) -> Callable[[typer.Context, str], list[str]]:
    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        return (_match_last if is_list else _match_prefix)(incomplete, _names(ctx, kind))

    return complete


def _names(ctx: typer.Context, kind: Kind) -> list[str]:
    """The names of models or benchmarks, of the command's pool if it takes one, else of its warehouse."""
    takes = {parameter.name for parameter in ctx.command.params}
    try:
        if "pool" in takes:
            return _list_pool_names(ctx.params.get("pool"), kind)
        return _list_stored_names(ctx.params.get("warehouse"), kind)
    except Exception:  # a misspelt pool, no warehouse yet: there is nothing to complete
        return []


def _list_pool_names(pool: str | None, kind: Kind) -> list[str]:
    from rlfocal.pool.files import load_benchmarks, load_pool

    if pool is None:
        return list(load_benchmarks()) if kind == "benchmark" else []
    chosen = load_pool(pool)
    return [b.name for b in chosen.benchmarks] if kind == "benchmark" else [m.model for m in chosen.models]


def _list_stored_names(location: str | None, kind: Kind) -> list[str]:
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


benchmark, benchmarks = _make_completer("benchmark"), _make_completer("benchmark", is_list=True)
model, models = _make_completer("model"), _make_completer("model", is_list=True)
