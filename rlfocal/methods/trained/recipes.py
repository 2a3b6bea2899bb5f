"""Each variant's settings, and what its training depends on. No torch: needed where nothing is trained."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

from rlfocal.base.errors import unknown
from rlfocal.methods.rl_focal.artefacts import released_config
from rlfocal.methods.rl_focal.config import gated_config, literal_config, rl_focal_config
from rlfocal.methods.rl_focal_sequential.config import sequential_config

_CONFIGURE = {
    "rl_focal": rl_focal_config,
    "rl_focal_literal": literal_config,
    "gated_log_linear": gated_config,
    "rl_focal_sequential": sequential_config,
    "rl_focal_released": released_config,
}


def configure(method: str, n_train: int, changes: Mapping[str, Any] | None = None) -> Any:
    """A variant's settings for `n_train` train rows, with these changes. Raises InputError for a method that
    is not RL-Focal's."""
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
