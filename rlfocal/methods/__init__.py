"""Every way to choose and fuse, by the name it has in `evaluations.method`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlfocal.errors import InputError, unknown
from rlfocal.methods.base import Decisions, Learned, Method, Policy
from rlfocal.methods.reference import BestSingle, ConstantChoice, Oracle, Plurality, Single, SoftVote
from rlfocal.methods.rl_focal import VARIANTS, CheckpointStore, RLFocal

__all__ = [
    "METHODS",
    "CheckpointStore",
    "Decisions",
    "Learned",
    "Method",
    "Policy",
    "RLFocal",
    "check_methods",
    "make_method",
    "methods_for",
]

METHODS: dict[str, Callable[[], Method]] = {
    "rl_focal": RLFocal,
    "best_single": BestSingle,
    "plurality": Plurality,
    "soft_vote": SoftVote,
    "constant_choice": ConstantChoice,
    "oracle": Oracle,
}


def methods_for(n_models: int) -> list[str]:
    """Every method that a pool of this size admits: with one model there is no team to choose."""
    return [name for name in METHODS if n_models > 1 or name != "rl_focal"]


def check_methods(names: Sequence[str], variant: str, models: Sequence[str]) -> None:
    """Raises InputError for a method, a variant or a `single:<model>` that does not exist."""
    if variant not in VARIANTS:
        raise unknown("variant", variant, VARIANTS)
    for name in names:
        if name.startswith("single:"):
            if (model := name.removeprefix("single:")) not in models:
                raise unknown("model", model, models, f"method {name!r}")
        elif name not in METHODS:
            raise unknown("method", name, [*METHODS, "single:<model>"])
    if not names:
        raise InputError(f"no method named; known: {', '.join(METHODS)}, single:<model>")


def make_method(
    name: str,
    variant: str = "paper",
    store: CheckpointStore | None = None,
    on_progress: Callable[[float], None] | None = None,
) -> Method:
    """The method of that name; the other arguments concern rl_focal alone."""
    if name.startswith("single:"):
        return Single(name.removeprefix("single:"))
    if name == "rl_focal":
        return RLFocal(variant, store=store, on_progress=on_progress)
    return METHODS[name]()
