"""The commands, gathered."""

from __future__ import annotations

from typing import Annotated

import typer

from rlfocal import __version__
from rlfocal.cli import (
    bench,
    datasets,
    imports,
    lab,
    learning,
    openended,
    plan,
    pools,
    report,
    sql,
    study,
)
from rlfocal.cli.warehouse import corrections, doctor, expiry, export, history

app = typer.Typer(
    name="rlfocal",
    help="A warehouse of what a pool of LLMs answers, and RL-Focal: learn which few models to ask and how "
    "to fuse their answers.",
    epilog="Start with `rlfocal regenerate --pool lab`. `--debug` after any command shows tracebacks.",
    no_args_is_help=True,
    rich_markup_mode="markdown",  # a docstring's lines flow together
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(show: bool) -> None:
    if show:
        typer.echo(f"rlfocal {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True)] = False,
) -> None: ...


app.command("regenerate")(pools.regenerate)
app.command("extract")(pools.extract)
app.command("plan")(plan.plan)
app.command("add-model")(pools.add_model)
app.add_typer(imports.imports, name="import")
app.command("train")(learning.train)
app.command("evaluate")(learning.evaluate)
app.command("merit")(learning.merit)
app.command("methods")(learning.methods)
app.command("open-ended")(openended.open_ended)
app.command("report")(report.report)
app.command("sql", cls=sql.SqlCommand)(sql.sql)
app.command("snapshots")(history.snapshots)
app.command("diff")(history.diff)
app.add_typer(export.exports, name="export")
app.command("doctor")(doctor.doctor)
app.command("expire")(expiry.expire)
app.command("compact")(expiry.compact)
app.command("correct-labels")(corrections.correct_labels)
app.command("remove-model")(corrections.remove_model)
app.command("rename-model")(corrections.rename_model)
app.add_typer(datasets.datasets, name="datasets")
app.add_typer(study.study, name="study")
app.add_typer(bench.bench, name="bench")
app.add_typer(lab.lab, name="lab")
