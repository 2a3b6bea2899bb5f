"""Registers `rl_focal_sequential`, without an import of torch."""

from __future__ import annotations

from rlfocal.methods.checking import Range
from rlfocal.methods.learning.agents import TrainedMethod
from rlfocal.methods.rl_focal_sequential.config import sequential_config
from rlfocal.methods.trained import register_trained

register_trained(
    "rl_focal_sequential",
    "the Decider: after each answer or two, stop or ask the next models, by fitted Q-iteration",
    "softmax regressions over what was said so far",
    TrainedMethod(
        sequential_config,
        "rlfocal.methods.rl_focal_sequential.training:SEQUENTIAL_VARIANT",
        space={
            "size_penalty": Range(0.0, 0.2),
            "shared_ridge": Range(0.5, 50.0, log=True),
            "word_directions": Range(20, 120),
        },
    ),
    with_task="fitted per task",
)
