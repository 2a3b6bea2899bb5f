"""How far two ways to compute the same log-probability may differ."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch

LEAST = 1e-4
"""What is allowed in any precision."""
STEPS = 3
"""Rounding steps of a value: SmolLM2 with 30 layers is off by 1.1 of them in bfloat16, by 1.3 in float16."""


class Comparison(NamedTuple):
    """Log-probabilities in two ways, the first of them lm-eval's."""

    difference: float
    """The largest; NaN if a value is not finite."""
    tolerance: float

    @property
    def is_close(self) -> bool:
        return self.difference <= self.tolerance


def compare(expected: Sequence[float], found: Sequence[float], dtype: torch.dtype) -> Comparison:
    """Compares log-probabilities with what rounding in `dtype` explains."""
    differences = [abs(a - b) for a, b in zip(expected, found, strict=True)]
    if not all(math.isfinite(difference) for difference in differences):
        return Comparison(math.nan, LEAST)
    tolerance = max(LEAST, STEPS * torch.finfo(dtype).eps * max(map(abs, expected)))
    return Comparison(max(differences), tolerance)
