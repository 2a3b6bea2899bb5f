"""What `add-model` can be asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated

from rlfocal.base.request import Backend, Datasets, Option, Progress, Request


@dataclass(frozen=True)
class AddModelRequest(Request):
    """A model to add to a pool."""

    pool: Annotated[str, Option("The pool's name or its YAML file.", complete="pools")]
    entry: Annotated[
        str | Path,
        Option("YAML with model, hf_repo (of a service's: served), params_b and other keys of a pool entry."),
    ]
    _: KW_ONLY
    warehouse: str | Path | None = None
    backend: Backend = None
    limit: Annotated[
        int | None,
        Option(
            "Only the first N documents of each task.",
            1,
            default="as many as the pool's other models answered",
            metavar="N",
        ),
    ] = None
    datasets: Datasets = None
    seeds: Annotated[
        int,
        Option("Seeds of RL-Focal, trained with and without the model; 0: not at all.", 0, metavar="K"),
    ] = 1
    until_clear: Annotated[
        bool,
        Option(
            "Extract 100, 200, 400, ... documents of each task, and stop once it is clear that no best pool "
            "includes the model."
        ),
    ] = False
    force: Annotated[bool, Option("Add the model even if its first answers are implausible.")] = False
    on_progress: Progress | None = None
    say: Callable[[str], None] | None = None
    """Called with each sentence about what was changed."""
