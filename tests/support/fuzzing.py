"""What every fuzzer shares: how many examples, and what a good end is.

`RLFOCAL_EXAMPLES=5000 pytest -m hypothesis --hypothesis-profile=thorough` looks for new faults; by default
the same few examples run each time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from rlfocal.base.errors import MAX_MESSAGE_CHARACTERS, InputError, describe_error

SECONDS = 60  # on a busy machine; what is checked takes milliseconds
FUZZ = settings(
    derandomize="RLFOCAL_EXAMPLES" not in os.environ,
    database=None,
    suppress_health_check=list(HealthCheck),
)

ODD = [
    "",
    " ",
    "\0",
    "a\nb",
    "\x1b[2J",
    "\u202e",
    "\ud800",
    "x" * 5000,
    "../x",
    "nan",
    "1e400",
    "01",
    "[",
    "é",
]

numbers = st.one_of(
    st.integers(-3, 40),
    st.sampled_from([2**31, 2**63, -(2**63) - 1, 10**400, 1e300, -0.0, 1e-320]),
    st.floats(),
    st.booleans(),
)
texts = st.one_of(
    st.text(max_size=20),
    st.sampled_from(ODD),
)
values = st.recursive(
    st.one_of(st.none(), numbers, texts),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=4)),
    max_leaves=8,
)


@contextmanager
def ends_well() -> Iterator[None]:
    """The block ends, in time, or raises InputError with one short line; no other error is caught."""
    started = time.monotonic()
    try:
        yield
    except InputError as error:
        check_message(error)
    assert time.monotonic() - started < SECONDS


def check_message(error: InputError) -> None:
    """It is one short line."""
    told = describe_error(error)
    assert told.isprintable(), told
    assert 10 < len(told) <= MAX_MESSAGE_CHARACTERS, told


@st.composite
def changed(draw: st.DrawFn, value: object, most: int = 3) -> object:
    """`value` (lists, dicts, scalars) with some of its parts replaced, dropped, doubled or renamed."""
    for _ in range(draw(st.integers(1, most))):
        value = draw(_once(value))
    return value


@st.composite
def _once(draw: st.DrawFn, value: object) -> object:
    if not isinstance(value, dict | list) or not value or draw(st.integers(0, 5)) == 0:
        return draw(values)
    if isinstance(value, list):
        at = draw(st.integers(0, len(value) - 1))
        how = draw(st.sampled_from(["deeper"] * 4 + ["drop", "double"]))
        if how == "deeper":
            return [*value[:at], draw(_once(value[at])), *value[at + 1 :]]
        return value[:at] + value[at + 1 :] if how == "drop" else [*value, value[at]]
    key = draw(st.sampled_from(sorted(value, key=repr)))
    rest = {k: v for k, v in value.items() if k != key}
    how = draw(st.sampled_from(["deeper"] * 4 + ["drop", "rename", "add"]))
    if how == "deeper":
        return {**value, key: draw(_once(value[key]))}
    if how == "rename":
        return {**rest, draw(texts): value[key]}
    return rest if how == "drop" else {**value, draw(texts): draw(values)}


@st.composite
def spliced(draw: st.DrawFn, text: str, fragments: list[str], most: int = 4) -> str:
    """`text` with fragments put in, and stretches taken out or repeated."""
    for _ in range(draw(st.integers(1, most))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 12)))
        how = draw(st.sampled_from(["insert", "insert", "replace", "drop", "repeat"]))
        new = draw(st.one_of(st.sampled_from(fragments), texts)) if how in ("insert", "replace") else ""
        if how == "repeat":
            new = text[start:end] * draw(st.sampled_from([2, 3, 200]))
        text = text[:start] + new + text[start if how == "insert" else end :]
    return text
