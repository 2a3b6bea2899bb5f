"""The Typer app with all commands of `rlfocal`."""

from __future__ import annotations

from typing import Annotated

import typer

import rlfocal.cli
from rlfocal import __version__
from rlfocal.cli.support.commands import Commands, add_all

app = Commands(
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


add_all(app, rlfocal.cli.__name__, list(rlfocal.cli.__path__))
