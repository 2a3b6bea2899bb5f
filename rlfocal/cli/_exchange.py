"""The commands of `rlfocal import` and `rlfocal export`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from rlfocal.base import options
from rlfocal.base.options import Option
from rlfocal.base.wording import count_noun
from rlfocal.cli.groups import exports, imports
from rlfocal.cli.support.options import Json, Location, show_result
from rlfocal.cli.support.progress import progress_bars
from rlfocal.exchange.exports import Format, export
from rlfocal.exchange.imports import tables
from rlfocal.exchange.imports.lm_eval import import_lm_eval
from rlfocal.exchange.imports.predictions import Comparison, Scale, import_predictions
from rlfocal.exchange.imports.prices import SHIPPED_PRICES, import_prices
from rlfocal.exchange.imports.rows import CheckedRows
from rlfocal.exchange.imports.source import Split
from warehouse import open_warehouse

SplitBy = Annotated[
    Split,
    Option(
        "Which 80 % of each task's new documents train: drawn by a hash of their ids, or the first. A column "
        "`split` decides by itself."
    ),
]
AllowMissing = Annotated[bool, Option("Accept models that cover different documents; record the gaps.")]
ModelNames = Annotated[
    list[str] | None,
    Option(
        "A model's name in the warehouse, by its file or by the name it has there; may be repeated.",
        flags=("--name",),
        metavar="FILE|NAME=MODEL",
    ),
]


def _import(
    read: Callable[..., AbstractContextManager[CheckedRows]], warehouse: str | None, *, as_json: bool
) -> None:
    """Imports what `read` yields, and prints the report; a wrong file leaves no new warehouse behind."""
    with progress_bars() as on_progress:
        reading, writing = partial(on_progress, "read"), partial(on_progress, "write")
        reading(0.0)
        with read(on_progress=reading) as rows:
            reading(1.0)
            writing(0.0)
            with open_warehouse(warehouse) as opened:
                report = rows.write(opened)
            writing(1.0)
    show_result(report, as_json=as_json)


@imports.command("predictions")
def predictions(
    table: Annotated[
        str | None,
        typer.Argument(metavar="[FILE]", help="Documents and scores in one; beside --scores, documents."),
    ] = None,
    scores: Annotated[
        str | None,
        Option(
            "doc_id, model, and choice_logprobs or answer [, benchmark, task, pass, text].", metavar="FILE"
        ),
    ] = None,
    models: Annotated[
        str | None, Option("model [, family, price, price_input, price_output, ...].", metavar="FILE")
    ] = None,
    docs: Annotated[
        str | None,
        Option("doc_id, label or gold [, benchmark, task, question, choices, split].", metavar="FILE"),
    ] = None,
    benchmark: Annotated[
        str | None, Option("The name of the documents' benchmark.", default="its column")
    ] = None,
    columns: Annotated[
        Sequence[str] | None,
        Option(
            "Our names for columns whose own names are not understood.",
            default="theirs",
            metavar="THEIRS=OURS,...",
            is_listed=True,
        ),
    ] = None,
    names: ModelNames = None,
    comparison: Annotated[
        Comparison,
        Option(
            "How answers are compared: numbers as numbers and other texts without case and outer "
            "punctuation, character by character, as numbers alone, or as texts without case."
        ),
    ] = "default",
    scale: Annotated[
        Scale,
        Option(
            "What the numbers in choice_logprobs are.",
            default="log, and refused where they look like probabilities",
        ),
    ] = None,
    split: SplitBy = "hash",
    allow_missing: AllowMissing = False,
    warehouse: Location = None,
    as_json: Json = False,
) -> None:
    """Import per-choice scores or answers from CSV, Parquet, JSONL or Arrow, packed or not; all rows or none.

    Scores are a list per row, a column per choice, or a row per choice. Labels are indices, letters or texts
    of choices, and ids are numbers or texts. Importing the same file again changes nothing.
    """
    read = partial(
        import_predictions.read,
        table,
        scores,
        models,
        docs=docs,
        benchmark=benchmark,
        columns=columns,
        names=names,
        comparison=comparison,
        scale=scale,
        split=split,
    )
    _import(partial(read, allow_missing=allow_missing), warehouse, as_json=as_json)


@imports.command("tables")
def import_tables(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="What `rlfocal export tables DIR` wrote.")],
    warehouse: Location = None,
    as_json: Json = False,
) -> None:
    """Import another warehouse's tables, complete: answers, runs and corrections; all of them or none.

    The other warehouse may be on another host, and of another kind (SQLite or Postgres). Files that were
    changed are refused. Rows that the warehouse has stay as they are.
    """
    tables.check_tables(folder)
    with open_warehouse(warehouse) as opened:
        report = tables.import_tables(opened, folder)
    show_result(report, as_json=as_json)


@imports.command("lm-eval")
def lm_eval(
    paths: Annotated[
        list[str],
        typer.Argument(
            help="Folders (searched whole) or files of samples (JSONL, JSON, Parquet, packed or not), or hub "
            "ids of models of the Open LLM Leaderboard v2 or of their details data sets.",
            metavar="PATH|ID...",
        ),
    ],
    model: Annotated[str | None, Option("The model's name.", default="the results file's model_name")] = None,
    names: ModelNames = None,
    benchmark: Annotated[
        str | None, Option("The benchmark's name.", default="the one lm-eval's task belongs to")
    ] = None,
    split: SplitBy = "hash",
    allow_missing: AllowMissing = False,
    warehouse: Location = None,
    as_json: Json = False,
) -> None:
    """Import what lm-eval wrote with `--log_samples --output_path`; all of it or nothing.

    Choices come with their log-likelihoods, generated texts with their grade. Importing the same logs again
    changes nothing. Of several runs of one task, the latest counts.
    """
    read = partial(import_lm_eval.read, paths, model=model, names=names, benchmark=benchmark, split=split)
    _import(partial(read, allow_missing=allow_missing), warehouse, as_json=as_json)


@imports.command("prices")
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
    as_json: Json = False,
) -> None:
    """Set the prices of imported models, all or none. If repeated, it writes nothing.

    The shipped list has public list prices of many LLMs, with date and source. A price per million tokens
    also gives a flat price: the price of a query of 800 prompt tokens and 200 answered ones.
    """
    with open_warehouse(warehouse, create=False) as opened:
        report = import_prices(opened, file or SHIPPED_PRICES)
    show_result(report, as_json=as_json)


@exports.command("tables")
def export_tables(
    target: Annotated[str, typer.Argument(metavar="DIR", help="A new or empty folder.")],
    format: Annotated[
        Format,
        Option("Hive-partitioned Parquet, or docs, scores and models for `rlfocal import predictions`."),
    ] = "parquet",
    benchmarks: options.Benchmarks = None,
    models: options.Models = None,
    tables: Annotated[
        options.Names | None, Option("Only these tables.", default="all", metavar="T,...", is_listed=True)
    ] = None,
    questions: Annotated[
        bool, Option("Include the texts of confidential documents, such as GPQA's.")
    ] = False,
    snapshot: options.Snapshot = None,
    warehouse: Location = None,
    as_json: Json = False,
) -> None:
    """Write the warehouse's tables to a folder of plain files, all or none; this is the default export.

    Texts of confidential documents are left out without `--questions`.
    """
    with (
        open_warehouse(warehouse, read_only=True, snapshot=snapshot) as opened,
        progress_bars() as on_progress,
    ):
        report = export(
            opened,
            target,
            format=format,
            benchmarks=benchmarks,
            models=models,
            tables=tables,
            questions=questions,
            on_progress=on_progress,
        )
    lines = [f"{report.path}, from snapshot {report.snapshot}:"]
    for table in report.tables:
        sizes = [(table.rows, "row"), (table.files, "file"), (table.bytes, "byte")]
        lines.append(f"  {table.table}: {', '.join(count_noun(*size) for size in sizes)}")
    if report.withheld:
        withheld = count_noun(report.withheld, "confidential document")
        lines.append(f"without the texts of {withheld} (--questions adds them)")
    show_result(report, "\n".join(lines), as_json=as_json)
