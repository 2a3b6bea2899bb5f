"""Registers `rl_focal`, `rl_focal_literal` and `gated_log_linear`, without an import of torch."""

from __future__ import annotations

from rlfocal.methods.checking import Range
from rlfocal.methods.learning.agents import TrainedMethod
from rlfocal.methods.rl_focal.config import gated_config, literal_config, rl_focal_config
from rlfocal.methods.trained import register_trained

_VARIANTS = "rlfocal.methods.rl_focal.variants"
_SHARED_SPACE = {
    "weight_ridge": Range(0.5, 50.0, log=True),
    "slots_ridge": Range(3.0, 300.0, log=True),
    "words_ridge": Range(30.0, 3000.0, log=True),
    "core_rate": Range(5e-3, 0.1, log=True),
}

register_trained(
    "rl_focal",
    "the Decider: one pool per document, from the question; it starts from the best constant pools",
    "Fusion's actor, log-linear at its core; both learn by MAPPO from sampled pools and answers, with a "
    "central critic",
    TrainedMethod(
        rl_focal_config,
        f"{_VARIANTS}:RL_FOCAL_VARIANT",
        space={
            "call_penalty": Range(1e-4, 0.02, log=True),
            **_SHARED_SPACE,
            "entropy": Range(0.0, 0.03),
            "gae_lambda": Range(0.5, 1.0),
        },
    ),
    source="RL-Focal (arXiv 2502.04492), Algorithms 1 and 2; departures: docs/agents.md",
)
register_trained(
    "rl_focal_literal",
    "the Decider of the paper's text: one pool per document, from the last pool and its focal diversity",
    "Fusion of the paper's text: a network on the selected models' distributions",
    # Its settings are the paper's: none is searched.
    TrainedMethod(literal_config, f"{_VARIANTS}:RL_FOCAL_VARIANT", routes_graded=False),
    source="RL-Focal (arXiv 2502.04492), to the letter; what the text leaves open is ours: docs/agents.md",
    with_task=None,
    has_budgets=False,
    is_default=False,
    is_in_all=False,
)
register_trained(
    "gated_log_linear",
    "the models that a mask learned from the question switches on",
    "a log-linear ensemble with weights that depend on the question; both fitted by exact expectations over "
    "train labels",
    TrainedMethod(
        gated_config,
        f"{_VARIANTS}:GATED_VARIANT",
        space={
            "size_penalty": Range(5e-3, 0.5, log=True),
            **_SHARED_SPACE,
            "steps": Range(100, 1000, log=True),
        },
    ),
    role="rival",
    protocols=("frozen",),
    needs=("log-probs",),
    source="ours; counterfactual baselines as in COMA (Foerster et al., 2018)",
)
