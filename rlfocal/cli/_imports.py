"""The commands of `rlfocal import`: what an import's own function asks for is what its command does."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from rlfocal.cli.subcommands import imports
from rlfocal.cli.support.options import Location, Result
from rlfocal.cli.support.progress import progress_bars
from rlfocal.cli.support.requests import takes
from rlfocal.exchange.imports import tables
from rlfocal.exchange.imports.lm_eval import import_lm_eval
from rlfocal.exchange.imports.predictions import import_predictions
from rlfocal.exchange.imports.prices import SHIPPED, import_prices
from rlfocal.exchange.imports.rows import Importer
from warehouse import open_warehouse


def _command(importer: Importer[..., Any]) -> Callable[..., None]:
    @takes(importer, arguments=["path", "paths", "table"])
    def command(asked: dict[str, Any], warehouse: Location = None) -> Result:
        # Reads and checks first: a wrong file leaves no new warehouse behind.
        with progress_bars() as on_progress:
            read, write = partial(on_progress, "read"), partial(on_progress, "write")
            read(0.0)
            with importer.read(**asked, on_progress=read) as rows:
                read(1.0)
                write(0.0)
                with open_warehouse(warehouse) as opened:
                    report = rows.write(opened)
                write(1.0)
        return Result(report)

    return command


imports.command("predictions")(_command(import_predictions))


@imports.command("tables")
@takes()
def import_tables(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="What `rlfocal export tables DIR` wrote.")],
    warehouse: Location = None,
) -> Result:
    """Import another warehouse's tables, complete: answers, runs, corrections. All or nothing.

    From SQLite to Postgres and back, or from another host. Files that were changed are refused. Rows that the
    warehouse has stay as they are.
    """
    tables.check_tables(folder)
    with open_warehouse(warehouse) as opened:
        return Result(tables.import_tables(opened, folder))


imports.command("lm-eval")(_command(import_lm_eval))


@imports.command("prices")
@takes()
def import_model_prices(
    file: Annotated[
        Path | None,
        typer.Argument(
            help="Parquet, CSV or JSONL: model, and price (cents per 1,000 queries) or price_input and "
            "price_output (cents per million tokens).",
            show_default="the shipped list",
        ),
    ] = None,
    warehouse: Location = None,
) -> Result:
    """Set the prices of imported models. All or none. Repeating it writes nothing.

    The shipped list has public list prices of many LLMs, with date and source. A price per million tokens
    also gives a flat price: that of a query of 800 prompt tokens and 200 answered ones.
    """
    with open_warehouse(warehouse, create=False) as opened:
        return Result(import_prices(opened, file or SHIPPED))
