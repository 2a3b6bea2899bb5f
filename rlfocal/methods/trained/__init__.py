"""What makes methods of the trained agents: settings, which need no torch; entries, checkpoints, drivers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, fields, replace
from typing import Any

from rlfocal.base.errors import unknown
from rlfocal.base.gone import refuse_gone
from rlfocal.methods.checking import is_readable
from rlfocal.methods.rl_focal.config import gated_config, literal_config, rl_focal_config
from rlfocal.methods.rl_focal_sequential.config import sequential_config

_CONFIGURE = {
    "rl_focal": rl_focal_config,
    "rl_focal_literal": literal_config,
    "gated_log_linear": gated_config,
    "rl_focal_sequential": sequential_config,
}


def configure(method: str, n_train: int, changes: Mapping[str, Any] | None = None) -> Any:
    """A variant's settings for `n_train` train rows, with these changes. Raises InputError for a method that
    is not RL-Focal's."""
    refuse_gone(f"method {method}")
    if method not in _CONFIGURE:
        raise unknown("method", method, _CONFIGURE, "RL-Focal")
    own: Callable[[int], Any] = _CONFIGURE[method]
    return replace(own(n_train), **(changes or {}))


def recipe(method: str, settings: Any) -> str:
    """Changes whenever the variant's agents would be trained differently."""
    return json.dumps([settings.revision, asdict(settings)])


def online_recipe(method: str) -> str:
    """Changes whenever agents trained alike would decide differently online."""
    revision = getattr(configure(method, 0), "online_revision", None)
    return "" if revision is None else f" online {revision}"


Settings = Mapping[str, Any]
_TYPICAL = 1_000
"""Train rows for which defaults are shown: some depend on how many there are."""


def defaults(method: str) -> Any:
    """The method's own settings. Raises InputError for one that is not RL-Focal's."""
    return configure(method, _TYPICAL)


def check_settings(method: str, names: Iterable[str]) -> None:
    """Raises InputError for a name that is not one of the method's settings."""
    known = [f.name for f in fields(defaults(method))]
    for name in names:
        if name not in known:
            raise unknown("setting", name, known, method)


def readable(method: str) -> dict[str, Any]:
    """The settings that `read_value` can read, with their defaults."""
    config = defaults(method)
    own = {f.name: getattr(config, f.name) for f in fields(config)}
    return {name: value for name, value in own.items() if is_readable(value)}
