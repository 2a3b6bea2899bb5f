"""Each variant's settings, and what its training depends on. No torch: asked where nothing is trained."""

from __future__ import annotations

import json
from typing import Any

from rlfocal.agents.rl_focal import config as paper
from rlfocal.agents.rl_focal_released import config as released
from rlfocal.agents.rl_focal_sequential import config as sequential
from rlfocal.errors import unknown

_REVISIONS = {
    "sequential": sequential.REVISION,
    "paper": paper.REVISION,
    "released": released.REVISION,
}
_CONFIGURE = {
    "sequential": sequential.sequential_config,
    "paper": paper.paper_config,
    "released": released.released_config,
}


def configure(variant: str, n_train: int) -> Any:
    """A variant's settings for as many train rows. Raises InputError for an unknown variant."""
    if variant not in _CONFIGURE:
        raise unknown("variant", variant, _CONFIGURE)
    return _CONFIGURE[variant](n_train)


def recipe(variant: str, settings: Any) -> str:
    """Changes whenever the variant's agents would be trained otherwise."""
    return json.dumps([_REVISIONS[variant], settings.to_dict()])
