"""What can be set about `rl_focal_released`: the released code's artefacts as switches of the shared code."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from rlfocal.base.errors import InputError, unknown
from rlfocal.methods.checking import Share, checked
from rlfocal.statistics.metrics import METRICS


def _check_metric(metric: str) -> str:
    if metric not in METRICS:
        raise unknown("metric", metric, METRICS)
    return metric


Metrics = tuple[Annotated[str, AfterValidator(_check_metric)], ...]
"""Names of diversity metrics."""


@checked
class Artefacts:
    """Where the released code differs from the paper. True: as released. False: as the paper has it."""

    fusion_acts_greedily: bool = True
    """Fusion takes the likeliest answer in training, too: it never explores."""
    probability_as_log_prob: bool = True
    """Fusion stores the action's probability where a log-probability belongs."""
    no_critic: bool = True
    """Advantages are standardised returns; off: returns above what the central critic expects."""
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


@checked
class ReleasedConfig:
    """Settings of `rl_focal_released`; the defaults are the released code's."""

    metrics: Metrics = ("focal_diversity", "plurality_accuracy")
    weights: tuple[float, ...] = (0.5, 0.5)
    window: Annotated[int, Field(ge=2)] = 500
    size_penalty: NonNegativeFloat = 1.0
    decider_episodes: NonNegativeInt = 15
    fusion_episodes: NonNegativeInt = 15
    update_period: PositiveInt = 100
    learning_rate: PositiveFloat = 1e-3
    clip: PositiveFloat = 0.2
    decider_gamma: Share = 0.99
    fusion_gamma: Share = 0.8
    decider_hidden: tuple[PositiveInt, ...] = (128,)
    fusion_hidden: tuple[PositiveInt, ...] = (100, 100)
    answer_slots: PositiveInt = 10
    artefacts: Artefacts = Artefacts()
    revision: ClassVar[int] = 3
    # What the released code has no choice about.
    joint_episodes: ClassVar[int] = 0
    stretches: ClassVar[int] = 1
    copies: ClassVar[int] = 1
    samples: ClassVar[int] = 1
    sees_questions: ClassVar[bool] = False
    log_linear: ClassVar[bool] = False
    branching: ClassVar[bool] = True
    success_weighting: ClassVar[bool] = False
    anneal: ClassVar[bool] = False
    common_advantage: ClassVar[bool] = False
    actor_gain: ClassVar[float] = 1.0
    vote_weight: ClassVar[float] = 0.0
    entropy: ClassVar[float] = 0.0
    gae_lambda: ClassVar[float] = 1.0
    max_grad_norm: ClassVar[float] = math.inf
    question_rate: ClassVar[float] = 1e-3
    mean_pool: ClassVar[float] = 0.0
    budgets: ClassVar[tuple[int, ...]] = ()

    def __post_init__(self) -> None:
        if len(self.weights) != len(self.metrics):
            raise InputError(
                f"ReleasedConfig.weights has {len(self.weights)} values for {len(self.metrics)} metrics"
            )

    @property
    def past_rewards(self) -> int:
        """k: how many of its last rewards Fusion sees."""
        return 0 if self.artefacts.past_rewards_missing else 10

    @property
    def epochs(self) -> int:
        """Gradient steps on each rollout."""
        return 1 if self.artefacts.one_step_per_buffer else 4

    @property
    def critic_hidden(self) -> tuple[int, ...] | None:
        """None: no critic."""
        return None if self.artefacts.no_critic else (64,)

    @property
    def critic_rate(self) -> float:
        """Adam learning rate of the critic."""
        return self.learning_rate

    @property
    def has_critic(self) -> bool:
        """Whether its values enter the advantages."""
        return not self.artefacts.no_critic

    @property
    def n_observed(self) -> int:
        """K: how many numbers about a pool's answers the Decider sees."""
        return 1 if self.artefacts.metrics_as_one_scalar else len(self.metrics)


def released_config(n_train: int) -> ReleasedConfig:
    """The released defaults on a train stream of this length.

    Streams too short for a window of 500 twice take 50 and updates every 10 steps, with which the released
    code ran best on tasks of 200 rows; still shorter ones a third of their rows.
    """
    if n_train >= 1_200:
        return ReleasedConfig()
    return ReleasedConfig(window=min(50, max(n_train // 3, 2)), update_period=10)
