"""`rlfocal report`: the HTML report."""

from __future__ import annotations

import webbrowser
from functools import partial
from typing import Annotated

import typer

from rlfocal.base.request import Snapshot
from rlfocal.cli.support.commands import command
from rlfocal.cli.support.options import REPORT, Location, Output
from rlfocal.cli.support.progress import progress_bars
from rlfocal.cli.support.requests import takes


@command("report", "Learn and compare")
@takes()
def report(
    output: Output = REPORT,
    show: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Rewrite it even if nothing has changed.")] = False,
    paper: Annotated[
        bool, typer.Option("--paper", help="Add the paper's accuracy tables, our figures beside theirs.")
    ] = False,
    snapshot: Snapshot = None,
    warehouse: Location = None,
) -> None:
    """Write one self-contained HTML file: accuracy, cost, learning curves, diversity of the chosen pools.

    A file already written from the same snapshot, studies and version of rlfocal is not written again.
    """
    from rlfocal.report import write_report
    from rlfocal.report.paper import paper_tables, print_paper
    from warehouse import open_warehouse

    with (
        open_warehouse(warehouse, read_only=True, create=False, snapshot=snapshot) as opened,
        progress_bars() as on_progress,
    ):
        path = write_report(
            opened, output, paper=paper, force=force, on_progress=partial(on_progress, "report")
        )
        tables = paper_tables(opened) if paper else ()
    print_paper(tables)
    typer.echo(str(path))
    if show:
        webbrowser.open(path.resolve().as_uri())
