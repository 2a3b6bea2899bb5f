"""What can be set about `rl_focal_released`, and what of its behaviour can be switched off."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from rlfocal.errors import InputError, unknown
from rlfocal.statistics.metrics import METRICS

REVISION = 2
"""Raised whenever the same settings train other agents."""


@dataclass(frozen=True)
class Artefacts:
    """Where the released code differs from the paper. True: as released. False: as the paper has it."""

    fusion_acts_greedily: bool = True
    """Fusion takes the likeliest answer in training, too: it never explores."""
    probability_as_log_prob: bool = True
    """Fusion stores the action's probability where a log-probability belongs."""
    no_critic: bool = True
    """Advantages are standardised returns; off: returns above what a critic expects."""
    one_step_per_buffer: bool = True
    """One gradient step, so that the ratio is 1 and never clipped; off: four."""
    returns_across_episodes: bool = True
    """Steps left over at an episode's end wait for the next one's first update; off: they are dropped."""
    live_best_weights: bool = True
    """The kept weights are the live ones; off: those of the phase's best episode come back at its end."""
    size_penalty_only_when_wrong: bool = True
    """Off: right answers pay for the pool's size, too."""
    metrics_as_one_scalar: bool = True
    """The Decider sees one weighted sum; off: each metric."""
    minus_99_for_small_pools: bool = True
    """Pools of fewer than two models show -99 for metrics; off: 0."""
    perfect_model_is_diverse: bool = True
    """A member that never fails has focal diversity 1; off: it is left out of the mean."""
    lagged_window: bool = True
    """The window ends one document too early."""
    window_subtracted_twice: bool = True
    """The last `window` train documents are never seen."""
    first_rows_skipped: bool = True
    """The two documents after the first window are not, either."""
    exp_of_probabilities: bool = True
    """Fusion sees exp(q) of the selected models, in [1, e]; off: q."""
    past_rewards_missing: bool = True
    """Fusion sees no past rewards; off: its last ten."""
    slots_of_all_models: bool = True
    """Answers are ordered by the probabilities of all models, asked or not; off: of those asked."""
    unanswerable_left_out: bool = True
    """Train documents whose gold answer is in no slot are dropped."""
    decider_samples_at_test: bool = True
    """Pools are drawn at test, too; off: the likeliest."""

    @classmethod
    def without(cls, name: str) -> Artefacts:
        """All but one. Raises InputError for a name that does not exist."""
        known = [f.name for f in fields(cls)]
        if name not in known:
            raise unknown("artefact", name, known)
        return cls(**{name: False})


ARTEFACTS = tuple(f.name for f in fields(Artefacts))


@dataclass(frozen=True)
class ReleasedConfig:
    """Settings of `rl_focal_released`; the defaults are the released code's."""

    metrics: tuple[str, ...] = ("focal_diversity", "plurality_accuracy")
    weights: tuple[float, ...] = (0.5, 0.5)
    window: int = 500
    size_penalty: float = 1.0
    decider_episodes: int = 15
    fusion_episodes: int = 15
    update_period: int = 100
    learning_rate: float = 1e-3
    clip: float = 0.2
    decider_gamma: float = 0.99
    fusion_gamma: float = 0.8
    decider_hidden: tuple[int, ...] = (128,)
    fusion_hidden: tuple[int, ...] = (100, 100)
    answer_slots: int = 10
    artefacts: Artefacts = field(default_factory=Artefacts)

    def __post_init__(self) -> None:
        for name in self.metrics:
            if name not in METRICS:
                raise unknown("metric", name, METRICS, "ReleasedConfig.metrics")
        if len(self.weights) != len(self.metrics):
            raise InputError(
                f"ReleasedConfig.weights has {len(self.weights)} values for {len(self.metrics)} metrics"
            )
        for name, least in {"window": 2, "update_period": 1, "answer_slots": 1}.items():
            if getattr(self, name) < least:
                raise InputError(
                    f"ReleasedConfig.{name} is {getattr(self, name)}; it must be at least {least}"
                )

    @property
    def past_rewards(self) -> int:
        """k: how many of its last rewards Fusion sees."""
        return 0 if self.artefacts.past_rewards_missing else 10

    @property
    def n_observed(self) -> int:
        """K: how many numbers about a pool's answers the Decider sees."""
        return 1 if self.artefacts.metrics_as_one_scalar else len(self.metrics)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ReleasedConfig:
        """The inverse of `to_dict`. Raises InputError for a field that does not exist."""
        plain: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in values.items()}
        if "artefacts" in plain:
            plain["artefacts"] = Artefacts(**_known(Artefacts, plain["artefacts"]))
        return cls(**_known(cls, plain))


def _known(cls: type[ReleasedConfig] | type[Artefacts], values: Mapping[str, Any]) -> dict[str, Any]:
    known = [f.name for f in fields(cls)]
    for name in values:
        if name not in known:
            raise unknown("setting", name, known, cls.__name__)
    return dict(values)


def released_config(n_train: int) -> ReleasedConfig:
    """The released defaults on a train stream of this length.

    Streams too short for a window of 500 twice take 50 and updates every 10 steps, with which the released
    code ran best on tasks of 200 rows; still shorter ones a third of their rows.
    """
    if n_train >= 1_200:
        return ReleasedConfig()
    return ReleasedConfig(window=min(50, max(n_train // 3, 2)), update_period=10)
