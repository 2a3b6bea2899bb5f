"""Conditions for stored answers: models that fail, and who stands in; models that answer as others do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rlfocal.base.arrays import Bools
from rlfocal.base.errors import InputError, unknown
from rlfocal.data.calls import Answered, Calls


class Failing(NamedTuple):
    """Models that fail whenever they are called, and who stands in for them."""

    down: Bools
    """(N,)"""
    best: int
    """The position of the best model that is not down."""

    def stand_in(self, calls: Calls, answered: Answered) -> Answered:
        """The answers (T,), that of the best model where all calls failed, or some did and none answered."""
        lost = calls.failed & (~calls.called.any(axis=1) | (answered.slots < 0))
        is_best = np.arange(len(self.down)) == self.best
        slots = calls.call(lost[:, None] & is_best).predictions[:, self.best]
        probability = None if answered.probability is None else np.where(lost, np.nan, answered.probability)
        return Answered(np.where(lost, slots, answered.slots), probability)


def down_among(
    models: Sequence[str], down: Sequence[str], what: str = "--down", only: Sequence[str] | None = None
) -> Bools:
    """(N,) which models are down: those named, and those not among `only`, if it is given.

    Raises InputError, which names the option `what`, for an unknown model, and if none is left.
    """
    for option, names in ((what, down), ("--models", only or ())):
        for name in names:
            if name not in models:
                raise unknown("model", name, models, f"the policy's pool ({option})")
    mask = np.array([name in down or (only is not None and name not in only) for name in models])
    if mask.all():
        raise InputError(
            f"{what}: no model of {len(models)} is left to answer; leave one out, say {models[0]}"
        )
    return mask


def parse_swaps(models: Sequence[str], swaps: Sequence[str]) -> dict[str, str]:
    """From `A=B`: who answers under the name of each swapped model. Raises InputError for other text, an
    unknown A, and one that is swapped twice."""
    swapped: dict[str, str] = {}
    for text in swaps:
        model, _, other = (part.strip() for part in text.partition("="))
        if not (model and other):
            raise InputError(
                f"--swap {text!r} is not A=B: name a model of the pool, and whose answers it gives"
            )
        if model not in models:
            raise unknown("model", model, models, f"the policy's pool (--swap {text})")
        if model in swapped:
            raise InputError(f"--swap {text}: {model!r} is swapped twice; give each model one other")
        swapped[model] = other
    return {model: other for model, other in swapped.items() if model != other}
