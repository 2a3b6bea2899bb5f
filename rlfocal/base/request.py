"""Checks of arguments, which are the same in Python, on the command line and in forms."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from functools import cache, wraps
from inspect import Parameter, signature
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


def takes(
    request: type[Any], without: Collection[str] = (), **annotations: Any
) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Makes a function with a request as a parameter take the request's fields as parameters in its place.

    `request`: the class of the request. `without`: fields that are left out. `annotations`: those of fields
    that a command reads in another way. Commands and forms are made from the new signature.
    """
    hints = get_type_hints(request, include_extras=True) | annotations
    fields = [
        each.replace(annotation=hints[name], kind=Parameter.POSITIONAL_OR_KEYWORD)
        for name, each in signature(request).parameters.items()
        if name not in without
    ]
    names = {each.name for each in fields}

    def enter(function: Callable[..., Result]) -> Callable[..., Result]:
        own = get_type_hints(function, include_extras=True)
        [place] = [name for name in signature(function).parameters if own[name] is request]
        parameters: list[Parameter] = []
        for name, each in signature(function).parameters.items():
            parameters += fields if name == place else [each.replace(annotation=own[name])]
        whole = signature(function).replace(parameters=parameters, return_annotation=own.get("return"))

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Result:
            given = whole.bind(*args, **kwargs).arguments
            asked = {name: given.pop(name) for name in names & given.keys()}
            return function(**{place: request(**asked)}, **given)

        call.__signature__ = whole  # type: ignore[attr-defined]
        call.__annotations__ = {name: each.annotation for name, each in whole.parameters.items()}
        return call

    return enter


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
