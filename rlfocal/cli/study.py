"""`rlfocal study NAME`: what there are is read only where one is asked for, as it brings numpy along."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from rlfocal.cli.support.commands import group


class _Studies(TyperGroup):
    def make_context(self, *args: Any, **options: Any) -> Any:
        from rlfocal.cli._studies import studies

        for name, command in vars(typer.main.get_command(studies))["commands"].items():
            self.add_command(command, name)
        return super().make_context(*args, **options)


study = typer.Typer(
    cls=_Studies,
    help="Answer one question about RL-Focal: fill `evaluations`, print a table and draw a figure.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
group("study", "Learn and compare", study)


@study.callback()
def _group() -> None: ...
