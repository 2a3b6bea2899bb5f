"""Checks of arguments, which are the same in Python, on the command line and in forms."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache, wraps
from inspect import signature
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec, TypeVar, get_origin, get_type_hints

from rlfocal.base.errors import InputError, unknown_name

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError

Fields = ParamSpec("Fields")
Result = TypeVar("Result")
Progress = Callable[[str, float], None]
"""A function called with what is running and its finished share, 0 to 1."""
MAX_NUMBER = 1_000_000_000
"""The largest number that a parameter takes. A server's list of runs fails on numbers beyond 64 bits."""

_ERROR_REASONS = {
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le:,}",
    "sequence_str": "must be a list of names",
    "too_short": "must name at least {min_length}",
    "string_too_short": "must not be empty",
}
"""By pydantic's type of error, the words for a refused value."""


def checked(function: Callable[Fields, Result]) -> Callable[Fields, Result]:
    """Makes a function raise InputError for an argument that its annotation does not allow."""

    @wraps(function)
    def call(*args: Fields.args, **kwargs: Fields.kwargs) -> Result:
        check(function, signature(function).bind(*args, **kwargs).arguments)
        return function(*args, **kwargs)

    return call


def check(function: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    """Raises InputError for an argument that a function's parameter, or a class's field, does not allow."""
    from pydantic import ValidationError  # here, as the command line's help must not wait for it

    for name, adapter in _make_adapters(function).items():
        if name in arguments:
            try:
                adapter.validate_python(arguments[name])
            except ValidationError as error:
                raise _make_refusal(name, arguments[name], error) from None


@cache
def _make_adapters(function: Callable[..., Any]) -> dict[str, TypeAdapter[Any]]:
    """By parameter with an annotation of bounds, pydantic's checker of its values."""
    from pydantic import TypeAdapter

    hints = get_type_hints(function, include_extras=True)
    return {name: TypeAdapter(hint) for name, hint in hints.items() if get_origin(hint) is Annotated}


def _make_refusal(name: str, value: Any, error: ValidationError) -> InputError:
    [fault, *_] = error.errors()
    if fault["type"] == "literal_error":
        return unknown_name(name, str(value), re.findall(r"'([^']+)'", fault["ctx"]["expected"]))
    reason = _ERROR_REASONS.get(fault["type"], "is not taken").format(**fault.get("ctx", {}))
    return InputError(f"{name} {reason}, got {value!r}")
