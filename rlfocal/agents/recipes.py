"""Each variant's settings, and what its training depends on. No torch: needed where nothing is trained."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

from rlfocal.agents.rl_focal import artefacts as released
from rlfocal.agents.rl_focal import config as rl_focal
from rlfocal.agents.rl_focal_sequential import config as sequential
from rlfocal.errors import unknown

_REVISIONS = {
    "rl_focal": rl_focal.REVISION,
    "rl_focal_literal": rl_focal.REVISION,
    "gated_log_linear": rl_focal.GATED_REVISION,
    "rl_focal_sequential": sequential.REVISION,
    "rl_focal_released": released.RELEASED_REVISION,
}
_ONLINE = {
    "rl_focal": f" online {rl_focal.ONLINE_REVISION}",
    "rl_focal_literal": f" online {rl_focal.ONLINE_REVISION}",
    "rl_focal_sequential": f" online {sequential.ONLINE_REVISION}",
}
_CONFIGURE = {
    "rl_focal": rl_focal.rl_focal_config,
    "rl_focal_literal": rl_focal.literal_config,
    "gated_log_linear": rl_focal.gated_config,
    "rl_focal_sequential": sequential.sequential_config,
    "rl_focal_released": released.released_config,
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
    return json.dumps([_REVISIONS[method], asdict(settings)])


def online_recipe(method: str) -> str:
    """Changes whenever agents trained alike would decide differently online."""
    return _ONLINE.get(method, "")
