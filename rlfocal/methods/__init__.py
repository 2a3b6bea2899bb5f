"""Every way to choose and fuse, by the name it has in `evaluations.method`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from rlfocal.agents import VARIANTS
from rlfocal.dataset import Kind
from rlfocal.errors import InputError, unknown
from rlfocal.methods.base import (
    NEEDS_CHOICES,
    Decisions,
    Learned,
    Method,
    OnlineLearner,
    Policy,
    refuse_answers,
)
from rlfocal.methods.constant_pools import BestPool, ByLogLinear, ByPlurality, BySoftVote
from rlfocal.methods.greedy import LatestCorrect, RandomSelect
from rlfocal.methods.log_linear import LogLinear
from rlfocal.methods.reference import BestSingle, ConstantChoice, Oracle, Plurality, Single, SoftVote
from rlfocal.methods.rl_focal import CheckpointStore, RLFocal
from rlfocal.methods.stacking import Stacking
from rlfocal.methods.weighted_vote import WeightedVote

__all__ = [
    "CONSTANT_POOLS",
    "METHODS",
    "NEEDS_CHOICES",
    "ONLINE_ONLY",
    "REFERENCES",
    "SIZED",
    "VARIANTS",
    "CheckpointStore",
    "Decisions",
    "Learned",
    "Method",
    "OnlineLearner",
    "Policy",
    "RLFocal",
    "check_methods",
    "make_method",
    "methods_for",
    "refuse_answers",
    "with_references",
]

_plurality = partial(BestPool, ByPlurality())
_soft_vote = partial(BestPool, BySoftVote())
_log_linear = partial(BestPool, ByLogLinear())

METHODS: dict[str, Callable[[], Method]] = {
    "rl_focal": RLFocal,
    "best_single": BestSingle,
    "best_plurality": _plurality,
    "best_soft_vote": _soft_vote,
    "best_log_linear": _log_linear,
    "plurality": Plurality,
    "soft_vote": SoftVote,
    "weighted_vote": WeightedVote,
    "log_linear": LogLinear,
    "stacking": Stacking,
    "random_select": RandomSelect,
    "latest_correct": LatestCorrect,
    "constant_choice": ConstantChoice,
    "oracle": Oracle,
}
SIZED: dict[str, Callable[[int], Method]] = {
    "best_plurality": _plurality,
    "best_soft_vote": _soft_vote,
    "best_log_linear": _log_linear,
    "random_select": RandomSelect,
    "latest_correct": LatestCorrect,
}
"""Methods that may be called `<name>:<size>`: of so many models of the pool."""
CONSTANT_POOLS = ("best_plurality", "best_soft_vote", "best_log_linear")
REFERENCES = ("best_single", "plurality", "soft_vote", "constant_choice", "oracle")
"""Reference policies: no figure of RL-Focal says anything without them."""
ONLINE_ONLY = ("latest_correct",)
"""Methods that look at the label of the document before."""


def methods_for(n_models: int, kind: Kind = "choices", protocol: str = "frozen") -> list[str]:
    """Every method that a pool of this size, a kind of benchmark and a protocol admit.

    With one model there is no team to choose, and the slots of free answers mean nothing across documents.
    """
    out = [
        *(["rl_focal"] if n_models < 2 else []),
        *(NEEDS_CHOICES if kind == "answers" else []),
        *(ONLINE_ONLY if protocol == "frozen" else []),
    ]
    return [name for name in METHODS if name not in out]


def with_references(names: Sequence[str], kind: Kind = "choices") -> list[str]:
    """Each name once, and the kind's reference policies after them where RL-Focal is named."""
    references = [name for name in REFERENCES if kind == "choices" or name not in NEEDS_CHOICES]
    return list(dict.fromkeys([*names, *(references if "rl_focal" in names else [])]))


def check_methods(
    names: Sequence[str], variant: str, models: Sequence[str], protocol: str = "frozen"
) -> None:
    """Raises InputError for a method, a variant, a `single:<model>` or a size that does not exist."""
    if variant not in VARIANTS:
        raise unknown("variant", variant, VARIANTS)
    for name in names:
        method, colon, argument = name.partition(":")
        if method == "single" and colon:
            if argument not in models:
                raise unknown("model", argument, models, f"method {name!r}")
        elif method in SIZED and colon:
            if not argument.isdecimal() or not 1 <= int(argument) <= len(models):
                raise InputError(
                    f"method {name!r}: {argument!r} is no number of models, 1 to {len(models)} in this pool"
                )
        elif name not in METHODS:
            raise unknown("method", name, [*METHODS, "single:<model>", *(f"{m}:<size>" for m in SIZED)])
        if method in ONLINE_ONLY and protocol == "frozen":
            raise InputError(
                f"method {name!r} looks at the label of the document before; it needs --protocol online"
            )
    if not names:
        raise InputError(f"no method named; known: {', '.join(METHODS)}, single:<model>")


def make_method(
    name: str,
    variant: str = VARIANTS[0],
    store: CheckpointStore | None = None,
    on_progress: Callable[[float], None] | None = None,
) -> Method:
    """The method of that name; the other arguments concern rl_focal alone."""
    if name.startswith("single:"):
        return Single(name.removeprefix("single:"))
    if name == "rl_focal":
        return RLFocal(variant, store=store, on_progress=on_progress)
    method, colon, size = name.partition(":")
    return SIZED[method](int(size)) if colon else METHODS[name]()
