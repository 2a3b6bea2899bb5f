"""Each variant's settings, and what its training depends on. No torch: asked where nothing is trained."""

from __future__ import annotations

import json
from typing import Any

from rlfocal.agents.rl_focal import config as rl_focal
from rlfocal.agents.rl_focal_released import config as released
from rlfocal.agents.rl_focal_sequential import config as sequential
from rlfocal.errors import unknown

_REVISIONS = {
    "rl_focal": rl_focal.REVISION,
    "rl_focal_sequential": sequential.REVISION,
    "rl_focal_released": released.REVISION,
}
_CONFIGURE = {
    "rl_focal": rl_focal.rl_focal_config,
    "rl_focal_sequential": sequential.sequential_config,
    "rl_focal_released": released.released_config,
}


def configure(method: str, n_train: int) -> Any:
    """A variant's settings for as many train rows. Raises InputError for another method than RL-Focal's."""
    if method not in _CONFIGURE:
        raise unknown("method", method, _CONFIGURE, "RL-Focal")
    return _CONFIGURE[method](n_train)


def recipe(method: str, settings: Any) -> str:
    """Changes whenever the variant's agents would be trained otherwise."""
    return json.dumps([_REVISIONS[method], settings.to_dict()])
