"""Formats of numbers in sentences and tables. A dash stands for what is unknown or undefined."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import fsum, isnan
from typing import Protocol

MISSING_CELL = "–"


class _Interval(Protocol):
    @property
    def mean(self) -> float: ...
    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...


def number_or_none(value: float | None) -> float | None:
    """A number, or None if it is NULL or NaN."""
    return None if value is None or isnan(value) else value


def mean_known(values: Iterable[float | None]) -> float | None:
    """The mean of the values; None if one of them is None or NaN."""
    each = list(values)
    there = [value for value in map(number_or_none, each) if value is not None]
    return fsum(there) / len(there) if len(there) == len(each) else None


def count_noun(n: int, noun: str) -> str:
    """A count with a regular noun.

    >>> count_noun(1, "model"), count_noun(1200, "model")
    ('1 model', '1,200 models')
    """
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def decimal(value: float | None, digits: int = 3) -> str:
    """A number with so many decimal digits; a dash for None and NaN.

    >>> decimal(0.12345), decimal(None)
    ('0.123', '–')
    """
    return MISSING_CELL if number_or_none(value) is None else f"{value:.{digits}f}"


def percent(fraction: float | None, digits: int = 2) -> str:
    """A fraction as a percentage, without the % sign; a dash for None and NaN.

    >>> percent(0.12345), percent(None)
    ('12.35', '–')
    """
    return MISSING_CELL if fraction is None else decimal(100 * fraction, digits)


def points(fraction: float) -> str:
    """A difference as signed percentage points, with a true minus sign.

    >>> points(-0.0213), points(0.004)
    ('−2.1', '+0.4')
    """
    text = f"{100 * fraction:+.1f}"
    return text.replace("-", "−") if float(text) else "0.0"


def interval(
    value: _Interval | tuple[float, float, float] | None, write: Callable[[float], str] = points
) -> str:
    """A mean and its interval, written `+0.4 [−0.3, +1.1]`; by default, fractions become points.

    An exact value has no interval: `+0.4`.
    """
    if value is None:
        return MISSING_CELL
    values = value if isinstance(value, tuple) else (value.mean, value.low, value.high)
    mean, low, high = map(write, values)
    if values[0] == values[1] == values[2]:
        return mean
    return f"{mean} [{low}, {high}]"


def duration(seconds: float) -> str:
    """A duration in words, with two units at most.

    >>> duration(45.2), duration(754), duration(11_640)
    ('45 s', '12 min 34 s', '3 h 14 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60:,} h {minutes % 60} min"


def cents(cost: float | None) -> str:
    """A cost in cents per 1,000 queries.

    >>> cents(0.348), cents(1685.0), cents(None)
    ('0.35', '1,685.0', '–')
    """
    if cost is None:
        return MISSING_CELL
    return f"{cost:.2f}" if cost < 10 else f"{cost:,.1f}"
