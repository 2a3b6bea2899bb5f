"""`rlfocal lab build`: trains the embedded pool."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlfocal.base.request import Models
from rlfocal.cli.support.commands import group
from rlfocal.cli.support.progress import progress_bars
from rlfocal.cli.support.requests import takes

lab = group(
    "lab", "Run a pool of LLMs", "The embedded pool: twelve tiny language models that ship with rlfocal."
)


@lab.command("build")
@takes()
def lab_build(
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the models go.")] = Path(
        ".rlfocal/lab"
    ),
    seed: Annotated[int, typer.Option(help="The shipped models have seed 0.")] = 0,
    models: Models = None,
    jobs: Annotated[int, typer.Option(min=1, help="How many models to train at once.")] = 2,
    force: Annotated[bool, typer.Option("--force", help="Retrain models that are already built.")] = False,
) -> None:
    """Train the embedded pool's tiny language models from scratch, from their seed."""
    from rlfocal.lab import build

    with progress_bars() as on_progress:
        paths = build(output, seed=seed, models=models, workers=jobs, force=force, on_progress=on_progress)
    typer.echo("\n".join(map(str, paths)))
