"""Reads the options of an engine from a model's entry."""

from __future__ import annotations

from typing import TypeVar

from rlfocal.base.errors import InputError
from rlfocal.pool.specs import ModelSpec

Options = TypeVar("Options")


def options_of(spec: ModelSpec, backend: str, kind: type[Options]) -> Options:
    """The engine's options, from `engine_args: {backend: ...}` of a model's entry. Raises InputError for an
    option that the engine does not know."""
    try:
        return kind(**spec.engine_args.get(backend, {}))
    except TypeError as error:
        names = ", ".join(vars(kind)["__dataclass_fields__"])
        raise InputError(f"model {spec.model!r}: engine_args.{backend} takes {names} ({error})") from None
