"""Names that the command line and packages' exports need before the modules behind them are imported."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Literal

Backend = Literal["vllm", "hf", "openai", "chat"]
Per = Literal["benchmark", "task"]
Protocol = Literal["frozen", "online"]

RL_FOCAL = ("rl_focal", "rl_focal_sequential", "rl_focal_literal")
"""RL-Focal's methods. The first two run by default."""
TRAINED_METHODS = (*RL_FOCAL, "gated_log_linear")
"""All methods that are trained to a checkpoint, which the command line knows without importing them."""
WITHOUT_TEXTS = {f"{name}-text": name for name in (*RL_FOCAL[:2], "gated_log_linear")}
"""Controls: the same method trained without the questions' texts.

The difference is what the texts are worth.
"""
START_METHOD, TEAM_LOG_LINEAR = "rl_focal_start", "log_linear_team"
"""Controls beside `rl_focal`: the policy from which it starts, and `log_linear` on the models of that."""
CEILING_METHOD = "oracle"
"""The ceiling: right wherever some model is right. It is not a method, because it reads labels."""
RIVALS = (
    "avengers", "avengers_pro", "best_plurality", "best_soft_vote", "carrot_knn", "carrot_linear", "des",
    "discounted_linucb", "discounted_thompson", "dylan", "eagle", "frugalgpt", "graph_router", "hedge",
    "hier_shrink", "irt", "likelihood_pool", "linucb", "llm_blender", "mf", "mlp", "model_sat", "more_agents",
    "mutual_information_pool", "pairwise_log_linear", "rlae_mappo", "rlae_ppo", "routellm_mf", "routellm_sw",
    "self_consistency_cascade", "sliding_best", "svm", "thompson", "topla", "uniroute",
)  # fmt: skip
"""Methods that rivals/ registers where it is installed."""

LOOK_MESSAGE = "look at drift and promises"
"""The message of commits that store how far answers were looked at.

Such commits change nothing in a report.
"""


def import_when_used(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Makes a package's `__getattr__`.

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
