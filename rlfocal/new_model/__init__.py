"""Models that join or leave a pool: what is checked first, what a model brings, and how to undo it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rlfocal.base.names import import_when_used
from rlfocal.base.request import Backend, Datasets, Option, Progress, Request

if TYPE_CHECKING:
    from rlfocal.new_model.adding import Removed as Removed
    from rlfocal.new_model.adding import add_model as add_model
    from rlfocal.new_model.adding import remove_model as remove_model
    from rlfocal.new_model.page import Newcomer as Newcomer

__getattr__ = import_when_used(
    __name__,
    {
        "Newcomer": "rlfocal.new_model.page",
        "Removed": "rlfocal.new_model.adding",
        "add_model": "rlfocal.new_model.adding",
        "remove_model": "rlfocal.new_model.adding",
    },
)


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
    force: Annotated[bool, Option("Add the model even if its first answers are implausible.")] = False
    on_progress: Progress | None = None
    say: Callable[[str], None] | None = None
    """Called with each sentence about what was changed."""
