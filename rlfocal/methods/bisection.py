"""The least value that is enough, where whatever is larger is enough too."""

from __future__ import annotations

from collections.abc import Callable


def least_enough(
    is_enough: Callable[[float], bool], too_little: float, enough: float, halvings: int
) -> float:
    """The bound that is enough once the interval between both has been halved so many times. Neither bound is
    tried, and `enough` may be the smaller one."""
    for _ in range(halvings):
        middle = (too_little + enough) / 2
        if is_enough(middle):
            enough = middle
        else:
            too_little = middle
    return enough
