"""Search spaces of methods' settings, declared where the methods are registered."""

from __future__ import annotations

from typing import NamedTuple


class Range(NamedTuple):
    """All numbers from `low` to `high`; whole numbers if both ends are."""

    low: float
    high: float
    log: bool = False
    """Whether every order of magnitude is equally likely."""

    def __contains__(self, value: object) -> bool:
        if isinstance(value, bool) or not isinstance(value, int if self.is_whole else int | float):
            return False
        return self.low <= value <= self.high

    @property
    def is_whole(self) -> bool:
        return isinstance(self.low, int) and isinstance(self.high, int)


Space = Range | tuple[str | int | float | bool, ...]
"""A range, or a tuple of the values to choose from."""
