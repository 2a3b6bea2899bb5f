"""The errors that commands report: wrong input, and failed work."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class InputError(Exception):
    """Wrong input: the message names the bad value, where it is, and the fix (exit code 2)."""


class ReadOnlyError(InputError):
    """The error of a write to a warehouse that is open read-only, or that this user may not write to."""


class RunError(Exception):
    """The input was right but the work failed: the message says what is missing and why (exit code 1)."""


def unknown_name(kind: str, name: str, known: Iterable[str], where: str = "") -> InputError:
    """An InputError for a name that does not exist, with the nearest names that do.

    >>> str(unknown_name("model", "lama", ["llama", "phi"]))
    "unknown model 'lama'; did you mean 'llama'? Known: llama, phi"
    """
    names = sorted(set(known))
    near = get_close_matches(name, names, n=3, cutoff=0.5)
    place = f" in {where}" if where else ""
    hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else "."
    listed = ", ".join(names[:30]) + (f", ... ({len(names)} in all)" if len(names) > 30 else "")
    return InputError(f"unknown {kind} {name!r}{place}{hint} Known: {listed or 'none'}")
