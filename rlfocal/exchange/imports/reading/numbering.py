"""Numbers for documents that have names: equal in all files that name the same documents."""

from __future__ import annotations

import re
from collections.abc import Iterable

_LARGEST = 2**63


def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """A key that sorts `a.9` before `a.10`."""
    parts = re.findall(r"[0-9]+|[^0-9]+", name)
    bare = ((part, part.lstrip("0")) for part in parts)
    return tuple(
        (0, len(digits), digits) if part[0] in "0123456789" else (1, 0, part) for part, digits in bare
    )


def numbers(names: Iterable[str]) -> dict[str, int]:
    """The number of each name: itself where all of them are numbers, else its place in natural order.

    >>> numbers(["7", "12"]), numbers(["q10", "q9"])
    ({'7': 7, '12': 12}, {'q9': 0, 'q10': 1})
    """
    distinct = set(names)
    if all(re.fullmatch("0|[1-9][0-9]{0,18}", name) and int(name) < _LARGEST for name in distinct):
        return {name: int(name) for name in sorted(distinct, key=natural)}
    return {name: at for at, name in enumerate(sorted(distinct, key=lambda name: (natural(name), name)))}
