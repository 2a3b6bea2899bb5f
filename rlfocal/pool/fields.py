"""Types of the fields of a pool's file: names, bounded numbers, single lines, prices and arguments of
engines."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any, get_args

from pydantic import AfterValidator, AllowInfNan, Field, Strict, WithJsonSchema

from rlfocal.base.errors import unknown_name
from rlfocal.base.names import Backend
from rlfocal.base.request import MAX_NUMBER

# A name becomes a table value and part of a file name, so it must not be able to leave a directory.
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._@+-]*$"
Name = Annotated[str, Field(pattern=NAME_PATTERN, max_length=96)]
NAME_ADVICE = "a name has ASCII letters, digits and . _ @ + - only, and begins with a letter or digit"


def _check_bound(number: float) -> float:
    if number > MAX_NUMBER:
        raise ValueError(f"at most {MAX_NUMBER:,} is allowed")
    return number


def _check_line(text: str) -> str:
    if not text.isprintable():
        raise ValueError("must be text on one line, without control characters")
    return text


def check_json(arguments: dict[str, Any]) -> dict[str, Any]:
    """The same `arguments`. Raises ValueError if one is no JSON value."""
    try:
        json.dumps(arguments, allow_nan=False, sort_keys=True)  # sorted as in fingerprints
    except (TypeError, ValueError) as error:
        raise ValueError(f"arguments must be JSON values: {error}") from None
    return arguments


def check_engine_args(arguments: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The same `arguments`, by backend. Raises ValueError for an unknown backend, and if one is no JSON
    value."""
    for backend in arguments:
        if backend not in get_args(Backend):
            raise ValueError(str(unknown_name("backend", backend, get_args(Backend))))
    return check_json(arguments)


class _BoundInForms:
    """Adds the bound of numbers to their JSON schema, so that a server of forms refuses larger numbers."""

    def __get_pydantic_json_schema__(self, core: Any, handler: Callable[[Any], Any]) -> dict[str, Any]:
        return {"maximum": MAX_NUMBER, **handler(core)}


def _bound_integers(depth: int) -> dict[str, Any]:
    """A JSON schema of any value whose integers have 64 bits. A server cannot list runs with larger
    integers."""
    inner = (
        {"items": _bound_integers(depth - 1), "additionalProperties": _bound_integers(depth - 1)}
        if depth
        else {}
    )
    return {"minimum": -(2**63), "maximum": 2**63 - 1, **inner}


# Strict, because YAML tells 1 from true and "1".
Whole = Annotated[int, Strict(), AfterValidator(_check_bound), _BoundInForms()]
Number = Annotated[float, Strict(), AllowInfNan(False), AfterValidator(_check_bound), _BoundInForms()]
Argument = Annotated[Any, WithJsonSchema(_bound_integers(depth=3))]
Line = Annotated[str, Field(max_length=4096), AfterValidator(_check_line)]
MIN_TOKEN_PRICE = 0.01
"""The least price that is accepted, in cents per million tokens: a fiftieth of the cheapest list price.
Prices per token are far below."""


def check_token_price(price: float) -> float:
    """The same price, in cents per million tokens. Raises ValueError for one that must be per single
    token."""
    if 0 < price < MIN_TOKEN_PRICE:
        raise ValueError(
            f"no model costs {price:g} cents per million tokens: this looks like dollars per token or per "
            f"thousand; per token, give {price * 1e8:g}"
        )
    return price


TokenPrice = Annotated[Number, AfterValidator(check_token_price)]
