"""What the shell completes: names of pools, benchmarks and models. No error reaches a prompt."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

import typer

Kind = Literal["benchmark", "model"]


def pools(ctx: typer.Context, incomplete: str) -> list[str]:
    """The pools in ./pools, and those that ship with rlfocal."""
    try:
        from rlfocal.pool.files import pool_names

        return _starting(incomplete, pool_names())
    except Exception:
        return []


def _completing(kind: Kind, *, is_list: bool = False) -> Callable[[typer.Context, str], list[str]]:
    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        return (_last_of_list if is_list else _starting)(incomplete, _names(ctx, kind))

    return complete


def _names(ctx: typer.Context, kind: Kind) -> list[str]:
    """The models of the command's pool if it has one, else those of its warehouse."""
    takes = {parameter.name for parameter in ctx.command.params}
    try:
        if "pool" in takes:
            return _of_pool(ctx.params.get("pool"), kind)
        return _of_warehouse(ctx.params.get("warehouse"), kind)
    except Exception:  # a misspelt pool, no warehouse yet: there is nothing to complete
        return []


def _of_pool(pool: str | None, kind: Kind) -> list[str]:
    from rlfocal.pool.files import load_benchmarks, load_pool

    if pool is None:
        return list(load_benchmarks()) if kind == "benchmark" else []
    chosen = load_pool(pool)
    return [b.name for b in chosen.benchmarks] if kind == "benchmark" else [m.model for m in chosen.models]


def _of_warehouse(location: str | None, kind: Kind) -> list[str]:
    from warehouse.connecting import attach, connect
    from warehouse.locations import exists, locate

    place = locate(location)
    if not exists(place):
        return []
    with connect(postgres=place.is_postgres) as connection:
        attach(connection, place, read_only=True, create=False, snapshot=None)
        return [name for (name,) in connection.execute(f"SELECT DISTINCT {kind} FROM extractions").fetchall()]


def _starting(incomplete: str, names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if name.startswith(incomplete))


def _last_of_list(incomplete: str, names: Iterable[str]) -> list[str]:
    before, comma, last = incomplete.rpartition(",")
    given = before.split(",")
    return [f"{before}{comma}{name}" for name in _starting(last, names) if name not in given]


benchmark, benchmarks = _completing("benchmark"), _completing("benchmark", is_list=True)
model, models = _completing("model"), _completing("model", is_list=True)
