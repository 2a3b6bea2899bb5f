"""Settings of a study: what it changed, and how they are written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlfocal.base.errors import InputError
from rlfocal.methods.trained.settings import Settings, check_settings, configure, defaults, read_value, shown


def changed(method: str, settings: Settings, sizes: Sequence[int]) -> dict[str, Any]:
    """The settings that differ from the method's own for groups of `sizes` train rows."""
    configs = [configure(method, n) for n in sizes]
    return {k: v for k, v in settings.items() if any(getattr(config, k) != v for config in configs)}


def written(settings: Settings) -> str:
    """`name=value,...` as `parse` reads it, in alphabetical order."""
    return ",".join(f"{name}={shown(value)}" for name, value in sorted(settings.items()))


def parse(method: str, texts: Sequence[str]) -> dict[str, Any]:
    """`name=value` words as settings. Raises InputError for a word or a value that cannot be read."""
    config = defaults(method)
    settings: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"--set {text!r} is not NAME=VALUE")
        check_settings(method, [name])
        settings[name] = read_value(value, getattr(config, name), name)
    return settings
