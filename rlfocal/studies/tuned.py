"""RL-Focal with settings that differ from its variant's own, and what such runs are called."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from rlfocal.agents.recipes import configure
from rlfocal.dataset import Dataset
from rlfocal.errors import InputError, unknown
from rlfocal.methods import CheckpointStore, Policy, RLFocal

Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Tuned:
    """A method: the variant's settings for as many train rows, some of them replaced.

    Raises InputError for a setting that the variant has not.
    """

    variant: str
    settings: Settings = field(default_factory=dict)
    store: CheckpointStore | None = None
    on_progress: Callable[[float], None] | None = None
    seeded: bool = True

    def __post_init__(self) -> None:
        check_settings(self.variant, self.settings)

    def recipe(self, n_train: int) -> str:
        return self.method(n_train).recipe(n_train)

    def fit(self, train: Dataset, seeds: Sequence[int]) -> Sequence[Policy]:
        return self.method(len(train)).fit(train, seeds)

    def method(self, n_train: int) -> RLFocal:
        config = replace(defaults(self.variant, n_train), **self.settings)
        return RLFocal(self.variant, config, self.store, self.on_progress)


def defaults(variant: str, n_train: int) -> Any:
    """The variant's settings for as many train rows. Raises InputError for an unknown variant."""
    return configure(variant, n_train)


def check_settings(variant: str, settings: Settings) -> None:
    """Raises InputError for a setting that the variant has not."""
    known = [f.name for f in fields(defaults(variant, 1000))]
    for name in settings:
        if name not in known:
            raise unknown("setting", name, known, f"variant {variant!r}")


def label(variant: str, settings: Settings, sizes: Sequence[int]) -> str:
    """`paper[size_penalty=0.6]`: what is not the variant's own for groups of `sizes` train rows."""
    configs = [defaults(variant, n) for n in sizes]
    changed = {k: v for k, v in settings.items() if any(getattr(config, k) != v for config in configs)}
    return marked(variant, written(changed))


def marked(variant: str, *marks: str) -> str:
    """The variant's name with more between its brackets, which it gets if it has none."""
    name, _, inside = variant.removesuffix("]").partition("[")
    every = ",".join(part for part in (inside, *marks) if part)
    return f"{name}[{every}]" if every else name


def written(settings: Settings) -> str:
    """`name=value,...` as `parse` reads it, in alphabetical order."""
    return ",".join(f"{name}={_shown(value)}" for name, value in sorted(settings.items()))


def parse(variant: str, texts: Sequence[str]) -> dict[str, Any]:
    """`name=value` words as settings. Raises InputError for a word or a value that cannot be read."""
    config = defaults(variant, 1000)
    settings: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"--set {text!r} is not NAME=VALUE")
        check_settings(variant, {name: value})
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
