"""Names that are known without importing what they stand for: the command line's, and packages' exports."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Literal

Backend = Literal["vllm", "hf", "openai", "chat"]
Per = Literal["benchmark", "task"]
Protocol = Literal["frozen", "online"]

RL_FOCAL = ("rl_focal", "rl_focal_sequential", "rl_focal_literal")
"""RL-Focal's methods; the first two run by default."""
TRAINED = (*RL_FOCAL, "gated_log_linear")
"""All that are trained to a checkpoint, as in `rlfocal.methods.variants`."""
WITHOUT_TEXTS = {f"{name}-text": name for name in (*RL_FOCAL[:2], "gated_log_linear")}
"""Controls: the same method trained without the questions' texts, which shows what reading them is worth."""


def import_when_used(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Makes a package's `__getattr__`. `homes`: the module of each name, or that it is."""

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(homes[name])
        value = module if homes[name].endswith(f".{name}") else getattr(module, name)
        setattr(sys.modules[package], name, value)
        return value

    return get
