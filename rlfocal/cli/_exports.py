"""The commands of `rlfocal export`: what an export's own function asks for is what its command does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import typer

from rlfocal.base.request import Snapshot
from rlfocal.base.wording import counted
from rlfocal.cli.subcommands import exports
from rlfocal.cli.support.options import Location, Result
from rlfocal.cli.support.progress import progress_bars, progress_line
from rlfocal.cli.support.requests import takes
from rlfocal.exchange.exports.decisions import ExportedDecisions, export_decisions
from rlfocal.exchange.exports.every_eval_ever import EvalExport, export_every_eval_ever
from rlfocal.exchange.exports.tables import ExportReport, export
from warehouse import open_warehouse

T = TypeVar("T")


def _export(write: Callable[..., T], asked: dict[str, Any], snapshot: int | None, warehouse: str | None) -> T:
    with (
        open_warehouse(warehouse, read_only=True, snapshot=snapshot) as opened,
        progress_bars() as on_progress,
    ):
        return write(opened, **asked, on_progress=on_progress)


@exports.command("tables")
@takes(export, arguments=["target"])
def export_tables(asked: dict[str, Any], snapshot: Snapshot = None, warehouse: Location = None) -> Result:
    """Write the warehouse's tables to a folder of plain files. All or nothing. (The default.)

    Texts of confidential documents are left out without `--questions`.
    """
    report: ExportReport = _export(export, asked, snapshot, warehouse)
    lines = [f"{report.path}, from snapshot {report.snapshot}:"]
    for table in report.tables:
        sizes = [(table.rows, "row"), (table.files, "file"), (table.bytes, "byte")]
        lines.append(f"  {table.table}: {', '.join(counted(*size) for size in sizes)}")
    return Result(report, "\n".join([*lines, *_withheld("texts", report.withheld)]))


@exports.command("every-eval-ever")
@takes(export_every_eval_ever)
def export_evaluations(
    asked: dict[str, Any], snapshot: Snapshot = None, warehouse: Location = None
) -> Result:
    """Write models' accuracies and answers in the schema of Every Eval Ever, version 0.3.0. All or nothing.

    DIR/data/BENCHMARK/DEVELOPER/MODEL/UUID.json holds the accuracies by task, UUID_samples.jsonl one line per
    document: question, answer, whether it is right. `rlfocal import every-eval-ever DIR` reads it back.
    """
    report: EvalExport = _export(export_every_eval_ever, asked, snapshot, warehouse)
    counts = [(len(report.models), "model"), (report.n_scores, "score"), (report.n_samples, "line")]
    line = f"{report.path}, from snapshot {report.snapshot}: " + ", ".join(counted(*n) for n in counts)
    return Result(report, "\n".join([line, *_withheld("lines", report.withheld)]))


@exports.command("decisions")
@takes(export_decisions)
def export_decided(asked: dict[str, Any], snapshot: Snapshot = None, warehouse: Location = None) -> Result:
    """Write what methods decided on test documents, without labels, and print the file's SHA-256.

    One JSON object per line: which models were asked, what was answered. Publish the hash before the labels
    are known: equal decisions give equal bytes, so anyone who gets the file later can check it with
    `sha256sum -c`.
    """
    report: ExportedDecisions = _export(export_decisions, asked, snapshot, warehouse)

    def show() -> None:
        lines, runs = counted(report.n_lines, "decision"), counted(report.n_runs, "run")
        progress_line(f"{lines} of {runs}, from snapshot {report.snapshot}")
        typer.echo(f"{report.sha256}  {report.path}")

    return Result(report, show)


def _withheld(what: str, n: int) -> list[str]:
    withheld = counted(n, "confidential document")
    return [f"without the {what} of {withheld} (--questions adds them)"] if n else []
