"""What can be set about RL-Focal. Every field says whether its default is the paper's or ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from rlfocal.errors import InputError, unknown
from rlfocal.statistics.metrics import METRICS

ALL_HISTORY_BELOW = 600
"""Train documents under which the window is all history (paper, section 2)."""
REVISION = 2
"""Raised whenever the same settings train other agents, so that earlier ones do not stand for them."""


@dataclass(frozen=True)
class RLFocalConfig:
    """Settings of `rl_focal`. Raises InputError for a value that cannot work."""

    metrics: tuple[str, ...] = ("focal_diversity", "plurality_accuracy")
    """Diversity metrics in the Decider's observation (paper: a choice; its runs weigh these two)."""
    window: int = 500
    """Documents the metrics look back on, or all there are (paper: 500; all where train has under 600)."""
    size_penalty: float = 1.0
    """α of Eq (6) (paper: 1 on GSM8K and MMLU, 0.6 on BBH, GPQA and MuSR)."""
    decider_episodes: int = 12
    """Passes over the train stream in the first phase, by every copy (paper: 25, as are 12 by 2 copies)."""
    fusion_episodes: int = 25
    """Passes over the train stream in the second phase, by every copy (paper: 150; ours: enough on MMLU)."""
    stretches: int = 8
    """Stretches the train stream is cut into, one parallel environment each (ours; the paper: 1)."""
    copies: int = 2
    """Parallel environments on each stretch, which differ by what is sampled (ours; the paper: 1)."""
    update_period: int = 100
    """T_u: steps of each environment between two updates (paper: 100, and 10 on BBH, GPQA and MuSR)."""
    epochs: int = 4
    """Gradient steps on each rollout (unknown in the paper; ours)."""
    learning_rate: float = 1e-3
    """Adam's, for both agents (paper: 1e-3) and for the critic."""
    clip: float = 0.2
    """ε of Eq (7) (paper: 0.2)."""
    decider_gamma: float = 0.99
    """Discount in the first phase (paper: 0.99)."""
    fusion_gamma: float = 0.5
    """Discount in the second phase (paper: 0.5 to 0.9 by benchmark)."""
    gae_lambda: float = 0.5
    """λ of the advantages (unknown in the paper; ours, on train rows: at 0.95 the Decider hardly learns)."""
    entropy: float = 0.01
    """Weight of the policies' entropy (unknown in the paper; MAPPO's 0.01)."""
    max_grad_norm: float = 10.0
    """Gradients of one seed's network are scaled down to this norm (unknown in the paper; MAPPO's 10)."""
    decider_hidden: tuple[int, ...] = (128,)
    """Widths of the Decider's shared trunk (paper: 128)."""
    fusion_hidden: tuple[int, ...] = (100, 100)
    """Widths of Fusion's hidden layers (paper: 100, 100)."""
    branching: bool = True
    """A Bernoulli branch per model (paper). False: one branch, a softmax over N+1 moves that each ask or drop
    one model, or keep the pool (our reading of the paper's single branch, which it does not define)."""
    critic_hidden: tuple[int, ...] = (64, 64)
    """Widths of the critic's hidden layers (unknown in the paper; MAPPO's 64)."""
    actor_gain: float = 0.01
    """Scale of the actors' last layers at the start, for an even start (unknown in the paper; MAPPO's)."""
    vote_weight: float = 1.0
    """Weight of the soft vote that Fusion's logits start from (ours; 0 is the paper's plain network)."""
    past_rewards: int = 10
    """k: how many of its last rewards Fusion sees (unknown in the paper; ours 10)."""
    answer_slots: int = 10
    """Answers kept per document where documents have no choices (paper: 10)."""

    def __post_init__(self) -> None:
        for name in self.metrics:
            if name not in METRICS:
                raise unknown("metric", name, METRICS, "RLFocalConfig.metrics")
        at_least = {
            "window": 2, "stretches": 1, "copies": 1, "update_period": 1, "epochs": 1, "answer_slots": 1,
            "past_rewards": 0, "decider_episodes": 0, "fusion_episodes": 0, "size_penalty": 0, "entropy": 0,
        }  # fmt: skip
        for name, least in at_least.items():
            if getattr(self, name) < least:
                raise InputError(
                    f"RLFocalConfig.{name} is {getattr(self, name)}; it must be at least {least}"
                )
        for name in ("decider_gamma", "fusion_gamma", "gae_lambda"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(
                    f"RLFocalConfig.{name} is {getattr(self, name)}; it must lie between 0 and 1"
                )
        for name in ("learning_rate", "clip", "max_grad_norm"):
            if not getattr(self, name) > 0:
                raise InputError(f"RLFocalConfig.{name} is {getattr(self, name)}; it must be positive")

    @property
    def n_observed(self) -> int:
        """K: how many numbers about a pool's answers the Decider sees."""
        return len(self.metrics)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RLFocalConfig:
        """The inverse of `to_dict`. Raises InputError for a field that does not exist."""
        known = [field.name for field in fields(cls)]
        for name in values:
            if name not in known:
                raise unknown("setting", name, known, "RLFocalConfig")
        plain: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in values.items()}
        return cls(**plain)


def rl_focal_config(n_train: int) -> RLFocalConfig:
    """Settings of `rl_focal` on a train stream of this length.

    Short streams take the paper's settings for BBH, GPQA and MuSR, long ones those for MMLU and GSM8K. Ours
    is the way between: the shorter the stream, the more passes over it and the shorter the rollouts.
    """
    n = max(n_train, 1)
    return RLFocalConfig(
        window=max(n, 2) if n < ALL_HISTORY_BELOW else 500,
        size_penalty=0.6 if n < ALL_HISTORY_BELOW else 1.0,
        update_period=min(max(n // 80, 10), 100),
        decider_episodes=min(max(96_000 // n, 12), 25),
        fusion_episodes=min(max(200_000 // n, 25), 75),
    )
