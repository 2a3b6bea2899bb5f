"""Types of the flows' parameters: the server shows them as a form, and refuses values out of bounds."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

from pydantic import Field

from rlfocal.base.errors import InputError
from warehouse.locations import without_password

Name = Annotated[str, Field(min_length=1)]
Names = Annotated[list[Name], Field(min_length=1)]
Count = Annotated[int, Field(ge=1)]
WAREHOUSE = "RLFOCAL_WAREHOUSE"


@contextmanager
def secret_kept(parameters: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Parameters without a warehouse's password, which the environment holds: a server stores parameters."""
    given = parameters.get("warehouse")
    if given is None or without_password(given) == given:
        yield dict(parameters)
        return
    before = os.environ.get(WAREHOUSE)
    os.environ[WAREHOUSE] = given
    try:
        yield {**parameters, "warehouse": None}
    finally:
        del os.environ[WAREHOUSE]
        if before is not None:
            os.environ[WAREHOUSE] = before


def check_no_password(warehouse: str | None) -> None:
    """Raises InputError for a location with a password: the server stores and shows parameters."""
    if warehouse is not None and (shown := without_password(warehouse)) != warehouse:
        raise InputError(
            f"the parameter warehouse, {shown}, holds a password, but parameters are stored and shown; "
            "change that password, set RLFOCAL_WAREHOUSE where the worker runs, and leave the parameter out"
        )
