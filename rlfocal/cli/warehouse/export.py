"""`rlfocal export`: the warehouse's tables as plain files, records in others' formats, decisions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from rlfocal.base.request import Benchmark, Benchmarks, Models, Option, Snapshot
from rlfocal.base.wording import counted
from rlfocal.cli.support.commands import group
from rlfocal.cli.support.options import Json, Location, print_json
from rlfocal.cli.support.progress import progress_bars, progress_line
from rlfocal.cli.support.requests import takes

Tables = Annotated[Sequence[str] | None, Option("Only these tables.", default="all", metavar="T,...")]


class _ExportGroup(TyperGroup):
    """`rlfocal export DIR` is `rlfocal export tables DIR`: it was there before the others were."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        is_help = bool(args) and args[0] in ctx.help_option_names
        return super().parse_args(
            ctx, args if not args or is_help or args[0] in self.commands else ["tables", *args]
        )


exports = typer.Typer(
    cls=_ExportGroup,
    help="Take tables, records or decisions out of the warehouse. `rlfocal export DIR` is "
    "`rlfocal export tables DIR`.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
group("export", "Data in and out", exports)


@exports.command("tables")
@takes()
def export_tables(
    target: Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty folder.", show_default=False)],
    format: Annotated[
        Literal["parquet", "datasets", "predictions"],
        typer.Option(
            help="Hive-partitioned Parquet, a folder for Hugging Face's load_dataset, or docs, scores and "
            "models for `rlfocal import predictions`."
        ),
    ] = "parquet",
    benchmarks: Benchmarks = None,
    models: Models = None,
    tables: Tables = None,
    questions: Annotated[
        bool, typer.Option("--questions", help="Include the texts of confidential documents, such as GPQA's.")
    ] = False,
    snapshot: Snapshot = None,
    warehouse: Location = None,
    as_json: Json = False,
) -> None:
    """Write the warehouse's tables to a folder of plain files. All or nothing. (The default.)

    Texts of confidential documents are left out without `--questions`.
    """
    from rlfocal.exchange.exports import export as write
    from warehouse import open_warehouse

    with (
        open_warehouse(warehouse, read_only=True, snapshot=snapshot) as opened,
        progress_bars() as on_progress,
    ):
        report = write(
            opened,
            target,
            format=format,
            benchmarks=benchmarks,
            models=models,
            tables=tables,
            questions=questions,
            on_progress=on_progress,
        )
    if as_json:
        print_json(report)
        return
    typer.echo(f"{report.path}, from snapshot {report.snapshot}:")
    for table in report.tables:
        sizes = [(table.rows, "row"), (table.files, "file"), (table.bytes, "byte")]
        typer.echo(f"  {table.table}: {', '.join(counted(*size) for size in sizes)}")
    if report.withheld:
        withheld = counted(report.withheld, "confidential document")
        typer.echo(f"without the texts of {withheld} (--questions adds them)")


@exports.command("every-eval-ever")
@takes()
def export_every_eval_ever(
    benchmark: Benchmark,
    out: Annotated[Path, typer.Option(metavar="DIR", help="A new or empty folder.", show_default=False)],
    models: Models = None,
    organization: Annotated[
        str, typer.Option(help="Who ran the models: source_organization_name.")
    ] = "unknown",
    relationship: Annotated[
        Literal["first_party", "third_party", "collaborative", "other"],
        typer.Option(help="That organization's relationship to the models' makers."),
    ] = "other",
    questions: Annotated[
        bool, typer.Option("--questions", help="Include the lines of confidential documents, such as GPQA's.")
    ] = False,
    snapshot: Snapshot = None,
    warehouse: Location = None,
    as_json: Json = False,
) -> None:
    """Write models' accuracies and answers in the schema of Every Eval Ever, version 0.3.0. All or nothing.

    DIR/data/BENCHMARK/DEVELOPER/MODEL/UUID.json holds the accuracies by task, UUID_samples.jsonl one line per
    document: question, answer, whether it is right. `rlfocal import every-eval-ever DIR` reads it back.
    """
    from rlfocal.exchange.exports.every_eval_ever import export_every_eval_ever as write
    from warehouse import open_warehouse

    with (
        open_warehouse(warehouse, read_only=True, snapshot=snapshot) as opened,
        progress_bars() as on_progress,
    ):
        report = write(
            opened,
            out,
            benchmark,
            models=models,
            organization=organization,
            relationship=relationship,
            questions=questions,
            on_progress=on_progress,
        )
    if as_json:
        print_json(report)
        return
    counts = [(len(report.models), "model"), (report.n_scores, "score"), (report.n_samples, "line")]
    typer.echo(f"{report.path}, from snapshot {report.snapshot}: " + ", ".join(counted(*n) for n in counts))
    if report.withheld:
        withheld = counted(report.withheld, "confidential document")
        typer.echo(f"without the lines of {withheld} (--questions adds them)")


@exports.command("decisions")
@takes()
def export_decisions(
    benchmark: Benchmark,
    out: Annotated[Path, typer.Option(metavar="FILE.jsonl", help="A new file.", show_default=False)],
    method: Annotated[str | None, typer.Option(help="Only this method.", show_default="all")] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, metavar="K", help="Only this seed.", show_default="all")
    ] = None,
    models: Annotated[
        Sequence[str] | None,
        Option(
            "Only the runs that chose from exactly these models.",
            default="all runs",
            metavar="M,...",
            complete="models",
        ),
    ] = None,
    protocol: Annotated[
        Literal["frozen", "online"], typer.Option(help="Whether test labels were revealed one by one.")
    ] = "frozen",
    snapshot: Snapshot = None,
    warehouse: Location = None,
    as_json: Json = False,
) -> None:
    """Write what methods decided on test documents, without labels, and print the file's SHA-256.

    One JSON object per line: which models were asked, what was answered. Publish the hash before the labels
    are known: equal decisions give equal bytes, so anyone who gets the file later can check it with
    `sha256sum -c`.
    """
    from rlfocal.exchange.exports.decisions import export_decisions as write
    from warehouse import open_warehouse

    with (
        open_warehouse(warehouse, read_only=True, snapshot=snapshot) as opened,
        progress_bars() as on_progress,
    ):
        report = write(
            opened,
            out,
            benchmark,
            method=method,
            seed=seed,
            models=models,
            protocol=protocol,
            on_progress=partial(on_progress, "decisions"),
        )
    if as_json:
        print_json(report)
        return
    lines, runs = counted(report.n_lines, "decision"), counted(report.n_runs, "run")
    progress_line(f"{lines} of {runs}, from snapshot {report.snapshot}")
    typer.echo(f"{report.sha256}  {report.path}")
