"""`rlfocal sql`: read-only SQL over the warehouse."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rlfocal.base.request import Option
from rlfocal.cli.support.commands import Command, command
from rlfocal.cli.support.options import Json, Location, SnapshotOrTime, number_or_time


class SqlCommand(Command):
    """Its help lists what there is to read, from the warehouse's own SQL files."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        from warehouse.documentation import defined

        lines = [
            f"{title}: {', '.join(f'`{d.name}{d.parameters}`' for d in defined() if d.kind == kind)}."
            for title, kind in (
                ("Tables", "table"),
                ("Views", "view"),
                ("Macros", "macro"),
                ("Functions of values", "function"),
            )
        ]
        self.help = "\n\n".join([self.help or "", *lines])
        super().format_help(ctx, formatter)


@command("sql", "Data in and out", cls=SqlCommand)
def sql(
    statement: Annotated[str, typer.Argument(help='For example: "FROM accuracy ORDER BY accuracy DESC".')],
    format: Annotated[str, Option("table, csv or json.")] = "table",
    snapshot: SnapshotOrTime = None,
    warehouse: Location = None,
    as_json: Json = False,
) -> None:
    """Read-only SQL (DuckDB's) over the warehouse.

    For example `FROM pool_diversity('lab-mmlu', ['lab-llama', 'lab-phi'])`, `FROM all_pools('lab-mmlu', 3)`.
    Arguments with `:=` are optional. warehouse/README.md is the guide.
    """
    from rlfocal.exchange.sql import run_sql

    output = "json" if as_json else format
    typer.echo(run_sql(warehouse, statement, output, snapshot=number_or_time(snapshot)))
