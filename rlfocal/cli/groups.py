"""Commands that have commands of their own: `rlfocal import`, `export`, `study`, `lab`.

Those in modules of their own are read only where one is asked for.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from rlfocal.base import options
from rlfocal.base.options import Option
from rlfocal.base.request import LARGEST
from rlfocal.cli.support.commands import group
from rlfocal.cli.support.progress import progress_bars

imports = group(
    "import",
    "Data in and out",
    "Bring logits and answers made elsewhere into the warehouse.",
    module="rlfocal.cli._imports",
)


class _ExportGroup(TyperGroup):
    """`rlfocal export DIR` is `rlfocal export tables DIR`: it was there before the others were."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        is_help = bool(args) and args[0] in ctx.help_option_names
        return super().parse_args(
            ctx, args if not args or is_help or args[0] in self.commands else ["tables", *args]
        )


exports = group(
    "export",
    "Data in and out",
    "Take tables out of the warehouse. `rlfocal export DIR` is `rlfocal export tables DIR`.",
    module="rlfocal.cli._exports",
    cls=_ExportGroup,
)

studies = group(
    "study",
    "Learn and compare",
    "Answer one question about RL-Focal: fill `evaluations`, print a table and draw a figure.",
    module="rlfocal.cli._studies",
)

lab = group(
    "lab", "Run a pool of LLMs", "The embedded pool: twelve tiny language models that ship with rlfocal."
)


@lab.command("build")
def lab_build(
    output: Annotated[Path, Option("Where the models go.", flags=("--output", "-o"))] = Path(".rlfocal/lab"),
    seed: Annotated[int, Option("The shipped models have seed 0.", most=LARGEST)] = 0,
    models: options.Models = None,
    jobs: Annotated[int, Option("How many models to train at once.", least=1)] = 2,
    force: Annotated[bool, Option("Retrain models that are already built.")] = False,
) -> None:
    """Train the embedded pool's tiny language models from scratch, from their seed."""
    from rlfocal.lab import build

    with progress_bars() as on_progress:
        paths = build(output, seed=seed, models=models, workers=jobs, force=force, on_progress=on_progress)
    typer.echo("\n".join(map(str, paths)))
