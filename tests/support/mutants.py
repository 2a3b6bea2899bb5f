"""JSON values with one thing wrong in them."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

ODD = ["", "x", "-0.5", True, 1, 2.5, [], [1], {}, {"a": 1}, math.nan, math.inf, -math.inf, 10**400, None]


def places(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every part of a JSON value."""
    yield way
    for name, part in (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    ):
        yield from places(part, (*way, name))


def mutated(value: Any, draw: random.Random) -> Any:
    """The value with one part missing, renamed, doubled, moved, cut off, one more, or of another kind."""
    value = deepcopy(value)
    *way, name = draw.choice([way for way in places(value) if way])
    around = value
    for step in way:
        around = around[step]
    how = draw.choice(["drop", "odd", "odd", "rename", "double", "reorder", "cut", "more"])
    part = around[name]
    if how == "odd":
        # A text in place of another is a text.
        kinds = [odd for odd in ODD if not (isinstance(part, str) and isinstance(odd, str))]
        around[name] = deepcopy(draw.choice(kinds))
    elif how == "rename" and isinstance(around, dict):
        around[f"{name}_"] = around.pop(name)
    elif isinstance(part, list) and part and how in ("double", "reorder", "cut", "more"):
        if how == "double":
            part.insert(draw.randrange(len(part)), deepcopy(draw.choice(part)))
        elif how == "reorder":
            draw.shuffle(part)
        elif how == "cut":
            del part[draw.randrange(len(part)) :]
        else:
            part.append(deepcopy(part[-1]))
    else:
        del around[name]
    return value
