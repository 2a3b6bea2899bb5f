"""RL-Focal with settings that differ from its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from rlfocal.agents.recipes import configure
from rlfocal.dataset import Dataset
from rlfocal.errors import InputError, unknown
from rlfocal.methods import CheckpointStore, RLFocal
from rlfocal.policy import Fitted

Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Tuned:
    """A method: one of RL-Focal's with its settings for as many train rows, some of them replaced.

    Raises InputError for a setting that it has not.
    """

    method: str
    settings: Settings = field(default_factory=dict)
    store: CheckpointStore | None = None
    on_progress: Callable[[float], None] | None = None
    seeded: bool = True

    def __post_init__(self) -> None:
        check_settings(self.method, self.settings)

    def recipe(self, n_train: int) -> str:
        return self.tuned(n_train).recipe(n_train)

    def fit(self, train: Dataset, seeds: Sequence[int]) -> Sequence[Fitted]:
        return self.tuned(len(train)).fit(train, seeds)

    def tuned(self, n_train: int) -> RLFocal:
        config = configure(self.method, n_train, self.settings)
        return RLFocal(self.method, config, self.store, self.on_progress)


def defaults(method: str, n_train: int) -> Any:
    """The method's settings for as many train rows. Raises InputError for one that is not RL-Focal's."""
    return configure(method, n_train)


def check_settings(method: str, settings: Settings) -> None:
    """Raises InputError for a setting that it has not."""
    known = [f.name for f in fields(defaults(method, 1000))]
    for name in settings:
        if name not in known:
            raise unknown("setting", name, known, method)


def changed(method: str, settings: Settings, sizes: Sequence[int]) -> dict[str, Any]:
    """What is not the method's own for groups of `sizes` train rows."""
    configs = [defaults(method, n) for n in sizes]
    return {k: v for k, v in settings.items() if any(getattr(config, k) != v for config in configs)}


def written(settings: Settings) -> str:
    """`name=value,...` as `parse` reads it, in alphabetical order."""
    return ",".join(f"{name}={_shown(value)}" for name, value in sorted(settings.items()))


def parse(method: str, texts: Sequence[str]) -> dict[str, Any]:
    """`name=value` words as settings. Raises InputError for a word or a value that cannot be read."""
    config = defaults(method, 1000)
    settings: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"--set {text!r} is not NAME=VALUE")
        check_settings(method, {name: value})
        settings[name] = read_value(value, getattr(config, name), name)
    return settings


def read_value(text: str, like: Any, name: str) -> Any:
    """A value of the type of `like`. Raises InputError where it is not one."""
    try:
        if isinstance(like, bool):
            return {"true": True, "false": False}[text.lower()]
        if isinstance(like, tuple):
            kind = type(like[0]) if like else str
            return () if text == "none" else tuple(kind(part) for part in text.split("+"))
        return type(like)(text)
    except (KeyError, ValueError, TypeError) as error:
        raise InputError(f"{name}={text!r} cannot be read; its default is {_shown(like)}") from error


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return "+".join(map(_shown, value)) or "none"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
