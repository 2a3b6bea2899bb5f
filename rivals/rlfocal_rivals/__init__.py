"""Published rivals of RL-Focal; importing this registers them, which rlfocal does where it is installed."""

from rlfocal_rivals import (
    bandits,
    carrot,
    cascades,
    clusters,
    des,
    eagle,
    experts,
    llm_blender,
    pools,
    question,
    ranking,
    rlae,
    routellm,
    topla,
    towers,
)

__all__ = [
    "bandits",
    "carrot",
    "cascades",
    "clusters",
    "des",
    "eagle",
    "experts",
    "llm_blender",
    "pools",
    "question",
    "ranking",
    "rlae",
    "routellm",
    "topla",
    "towers",
]
