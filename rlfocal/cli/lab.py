"""`rlfocal lab build`: trains the embedded pool."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlfocal.base.request import Models, Option
from rlfocal.cli.support.commands import group
from rlfocal.cli.support.progress import progress_bars
from rlfocal.cli.support.requests import takes

lab = group(
    "lab", "Run a pool of LLMs", "The embedded pool: twelve tiny language models that ship with rlfocal."
)


@lab.command("build")
@takes()
def lab_build(
    output: Annotated[
        Path,
        Option("Where the models go.", flags=("--output", "-o")),
    ] = Path(".rlfocal/lab"),
    seed: Annotated[int, Option("The shipped models have seed 0.")] = 0,
    models: Models = None,
    jobs: Annotated[int, Option("How many models to train at once.", least=1)] = 2,
    force: Annotated[bool, Option("Retrain models that are already built.")] = False,
) -> None:
    """Train the embedded pool's tiny language models from scratch, from their seed."""
    from rlfocal.lab import build

    with progress_bars() as on_progress:
        paths = build(output, seed=seed, models=models, workers=jobs, force=force, on_progress=on_progress)
    typer.echo("\n".join(map(str, paths)))
