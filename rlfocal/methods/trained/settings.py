"""RL-Focal's settings by name, with their values read from text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from rlfocal.base.errors import InputError, unknown
from rlfocal.methods.trained.recipes import configure

Settings = Mapping[str, Any]
_TYPICAL = 1_000
"""Train rows for which defaults are shown: some depend on how many there are."""


def defaults(method: str) -> Any:
    """The method's own settings. Raises InputError for one that is not RL-Focal's."""
    return configure(method, _TYPICAL)


def check_settings(method: str, names: Iterable[str]) -> None:
    """Raises InputError for a name that is not one of the method's settings."""
    known = [f.name for f in fields(defaults(method))]
    for name in names:
        if name not in known:
            raise unknown("setting", name, known, method)


def readable(method: str) -> dict[str, Any]:
    """The settings that `read_value` can read, with their defaults."""
    config = defaults(method)
    own = {f.name: getattr(config, f.name) for f in fields(config)}
    return {name: value for name, value in own.items() if _is_readable(value)}


def read_value(text: str, like: Any, name: str) -> Any:
    """`text` as a value of the type of `like`; None means a number. Raises InputError if it cannot be read.

    `a+b` is a tuple; `none` is an empty tuple, or None.
    """
    try:
        if isinstance(like, bool):
            return {"true": True, "false": False}[text.lower()]
        if isinstance(like, tuple):
            kind = type(like[0]) if like else str
            return () if text == "none" else tuple(kind(part) for part in text.split("+"))
        if like is None:
            return None if text == "none" else float(text)
        return type(like)(text)
    except (KeyError, ValueError, TypeError) as error:
        raise InputError(f"{name}={text!r} cannot be read; its default is {shown(like)}") from error


def shown(value: Any) -> str:
    """A value as text that `read_value` reads."""
    if isinstance(value, tuple):
        return "+".join(map(shown, value)) or "none"
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _is_readable(value: Any) -> bool:
    if type(value) is tuple:
        return all(isinstance(part, str | int | float) for part in value)
    return value is None or isinstance(value, str | int | float)
