"""Names that are needed before the modules behind them are imported, as by the command line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Literal

Backend = Literal["vllm", "hf", "openai", "chat"]
Per = Literal["benchmark", "task"]
Protocol = Literal["frozen", "online"]

RL_FOCAL = ("rl_focal", "rl_focal_sequential", "rl_focal_literal")
"""The names of RL-Focal's methods; the first two run by default."""
TRAINED_METHODS = (*RL_FOCAL, "gated_log_linear")
"""The names of all methods whose training writes a checkpoint."""
WITHOUT_TEXTS = {f"{name}-text": name for name in (*RL_FOCAL[:2], "gated_log_linear")}
"""By control, the method that it trains without the questions' texts, to show what texts are worth."""
START_METHOD, TEAM_LOG_LINEAR = "rl_focal_start", "log_linear_team"
"""Controls of `rl_focal`: the policy from which it starts, and `log_linear` on that policy's models."""
CEILING_METHOD = "oracle"
"""The name of the ceiling, which is right wherever some model is; it reads labels, so it is no method."""
RIVALS = (
    "avengers", "avengers_pro", "best_plurality", "best_soft_vote", "carrot_knn", "carrot_linear", "des",
    "discounted_linucb", "discounted_thompson", "dylan", "eagle", "frugalgpt", "graph_router", "hedge",
    "hier_shrink", "irt", "likelihood_pool", "linucb", "llm_blender", "mf", "mlp", "model_sat", "more_agents",
    "mutual_information_pool", "pairwise_log_linear", "rlae_mappo", "rlae_ppo", "routellm_mf", "routellm_sw",
    "self_consistency_cascade", "sliding_best", "svm", "thompson", "topla", "uniroute",
)  # fmt: skip
"""The methods that the package in rivals/ registers if it is installed."""

LOOK_MESSAGE = "look at drift and promises"
"""The message of commits that store up to which snapshot answers were checked; a report shows no such
change."""


def import_when_used(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """A package's `__getattr__`, which imports a name when it is used.

    `homes`: by name, the module that defines it, or the module of that name.
    """

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(homes[name])
        value = module if homes[name].endswith(f".{name}") else getattr(module, name)
        setattr(sys.modules[package], name, value)
        return value

    return get
