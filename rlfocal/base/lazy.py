"""Packages whose names are imported once they are used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def import_when_used(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Makes a package's `__getattr__`. `homes`: the module of each name, or that it is."""

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(homes[name])
        value = module if homes[name].endswith(f".{name}") else getattr(module, name)
        setattr(sys.modules[package], name, value)
        return value

    return get
