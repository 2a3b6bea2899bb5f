"""Checks settings by pydantic, reads and writes their values as text, and declares ranges to search."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import wraps
from typing import Annotated, Any, NamedTuple, TypeVar, cast, dataclass_transform, get_type_hints

from pydantic import ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass

from rlfocal.base.errors import InputError

Settings = TypeVar("Settings")


Share = Annotated[float, Field(ge=0, le=1)]
Worth = Annotated[float, Field(gt=0, allow_inf_nan=True)]
"""What a right answer is worth, in cents per 1,000 queries; inf: price does not count."""


@dataclass_transform(frozen_default=True)
def checked(cls: type[Settings]) -> type[Settings]:
    """Makes a class a frozen dataclass of settings, on which `fields`, `replace` and `asdict` work.

    The constructor raises InputError for an unknown field, for a wrong type and for a value out of bounds.
    """
    made = dataclass(cls, frozen=True, config=ConfigDict(strict=True, extra="forbid", allow_inf_nan=False))
    unchecked = made.__init__

    @wraps(unchecked)
    def init(self: Settings, *values: Any, **named: Any) -> None:
        try:
            unchecked(self, *values, **named)
        except ValidationError as error:
            [fault, *_] = error.errors(include_url=False)
            method = getattr(
                self, "registered_name", cls.__name__
            )  # a method is known by the name of its entry
            place = ".".join((method, *map(str, fault["loc"])))
            what = fault["msg"].removeprefix("Value error, ").replace("Input should", "it should")
            raise InputError(f"{place} is {fault['input']!r}; {what}") from error

    setattr(made, "__init__", init)  # noqa: B010, which mypy takes for another signature
    return cast("type[Settings]", made)


def read_value(text: str, like: Any, name: str) -> Any:
    """Reads `text` as a value of the type of `like`; where `like` is None, as a number or None.

    `a+b` is a tuple; `none` is an empty tuple, or None. Raises InputError for a text that cannot be read.
    """
    try:
        if isinstance(like, bool):
            return {"true": True, "false": False}[text.lower()]
        if isinstance(like, tuple):
            kind = type(like[0]) if like else int if text.replace("+", "").isdigit() else str
            return () if text == "none" else tuple(kind(part) for part in text.split("+"))
        if like is None:
            return None if text == "none" else float(text)
        return type(like)(text)
    except (KeyError, ValueError, TypeError) as error:
        raise InputError(f"{name}={text!r} cannot be read; its default is {write_value(like)}") from error


def write_value(value: Any) -> str:
    """A value as text that `read_value` reads."""
    if isinstance(value, tuple):
        return "+".join(map(write_value, value)) or "none"
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def is_readable(value: Any) -> bool:
    """Whether `read_value` reads values of this value's type."""
    if type(value) is tuple:
        return all(isinstance(part, str | int | float) for part in value)
    return value is None or isinstance(value, str | int | float)


class Range(NamedTuple):
    """All numbers from `low` to `high`; only whole numbers if both ends are whole."""

    low: float
    high: float
    log: bool = False
    """Whether a search draws every order of magnitude equally often."""

    def __contains__(self, value: object) -> bool:
        if isinstance(value, bool) or not isinstance(value, int if self.is_whole else int | float):
            return False
        return self.low <= value <= self.high

    @property
    def is_whole(self) -> bool:
        return isinstance(self.low, int) and isinstance(self.high, int)


Space = Range | tuple[str | int | float | bool, ...]
"""A range, or a tuple of the values to choose from."""


def annotated_space(cls: object) -> dict[str, Space]:
    """For each field of a dataclass whose type is `Annotated` with a space, that space."""
    if not isinstance(cls, type) or not is_dataclass(cls):
        return {}
    hints = get_type_hints(cls, include_extras=True)
    marks = {field.name: getattr(hints[field.name], "__metadata__", ()) for field in fields(cls)}
    return {name: mark for name, every in marks.items() for mark in every if isinstance(mark, tuple)}
