"""Models that join or leave a pool: what is checked first, what a model brings, and how to undo it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from rlfocal.base.names import import_when_used
from rlfocal.base.parameters import Option

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

SeedsWithAndWithout = Annotated[
    int, Option("Seeds of RL-Focal, trained with and without the model; 0: not at all.", 0, metavar="K")
]
LimitOfOthers = Annotated[
    int | None,
    Option(
        "Only the first N documents of each task.",
        1,
        default="as many as the pool's other models answered",
        metavar="N",
    ),
]
EvenIfImplausible = Annotated[bool, Option("Add the model even if its first answers are implausible.")]
