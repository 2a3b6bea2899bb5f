"""`rlfocal report`: the page, and files for papers."""

from __future__ import annotations

import webbrowser
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from flows import Report, report_path
from rlfocal.base.request import Option, Snapshot
from rlfocal.cli.support.commands import command
from rlfocal.cli.support.options import Location
from rlfocal.cli.support.progress import progress_bars


@command("report", "Learn and compare")
def report(
    output: Report = None,
    show: Annotated[bool, Option("Open it in the browser.", flags=("--open",))] = False,
    force: Annotated[bool, Option("Rewrite it even if nothing has changed.")] = False,
    export: Annotated[
        Path | None,
        Option(
            "Also write every figure (SVG, PNG) and table (CSV, Markdown, LaTeX) into this folder.",
            metavar="DIR",
        ),
    ] = None,
    methods: Annotated[
        Sequence[str] | None, Option("Only these in exported tables.", default="all", metavar="M,...")
    ] = None,
    columns: Annotated[
        Sequence[str] | None,
        Option(
            "Only those beginning so, in exported tables: accuracy,asked.", default="all", metavar="C,..."
        ),
    ] = None,
    confidential: Annotated[
        bool, Option("Show questions that may not be published, such as GPQA's.")
    ] = False,
    snapshot: Snapshot = None,
    warehouse: Location = None,
) -> None:
    """Write one self-contained HTML page to explore: accuracy, cost, pools, reliability, learning, documents.

    A file already written from the same snapshot, studies and version of rlfocal is not written again.
    """
    from rlfocal.report import write_report
    from rlfocal.report.export import export_report
    from warehouse import open_warehouse

    files = []
    with (
        open_warehouse(warehouse, read_only=True, create=False, snapshot=snapshot) as opened,
        progress_bars() as on_progress,
    ):
        drawn = partial(on_progress, "report")
        path = write_report(
            opened,
            output or report_path(warehouse),
            confidential=confidential,
            force=force,
            on_progress=drawn,
        )
        if export is not None:
            written = partial(on_progress, "export")
            chosen = {"methods": methods, "columns": columns}
            files = export_report(opened, export, on_progress=written, **chosen)
    if files:
        typer.echo(f"{len(files)} files in {export}")
    typer.echo(str(path))
    if show:
        webbrowser.open(path.resolve().as_uri())
