"""The settings of RL-Focal. Every field says whether its default is the paper's or ours."""

from __future__ import annotations

from typing import Annotated, ClassVar, NamedTuple

from pydantic import AfterValidator, Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from rlfocal.base.errors import InputError, unknown_name
from rlfocal.methods.checking import Share, checked
from rlfocal.statistics.metrics import METRICS

ALL_HISTORY_BELOW = 600
"""With fewer train documents, the window is all history (paper, section 2)."""


def _check_metric(metric: str) -> str:
    if metric not in METRICS:
        raise unknown_name("metric", metric, METRICS)
    return metric


Metrics = tuple[Annotated[str, AfterValidator(_check_metric)], ...]
"""Names of diversity metrics."""


class NetworkShape(NamedTuple):
    """The parts of the agents' networks; the defaults are those of a mask that is linear in the question."""

    metrics: tuple[str, ...] = ()
    past_rewards: int = 0
    sees_questions: bool = True
    branching: bool = True
    decider_hidden: tuple[int, ...] | None = None
    """The sizes of the Decider's hidden layers; None: it has no trunk."""
    log_linear: bool = True
    fusion_hidden: tuple[int, ...] = ()
    vote_weight: float = 0.0
    critic_hidden: tuple[int, ...] | None = None
    """The sizes of the critic's hidden layers; None: there is no critic."""
    actor_gain: float = 0.0


@checked
class PoolConfig:
    """Settings that `rl_focal` and `gated_log_linear` share.

    `revision` is raised whenever the same settings train other agents, so that earlier agents do not stand
    for them. `online_revision` is raised whenever the same agents decide otherwise online.
    """

    mean_pool: NonNegativeFloat = 5.5
    """The most models asked per document, as a mean over train; 0: no limit (paper).

    A multiplier on the pool's size rises while the mean is above it. At the end, all branches are lowered
    alike (ours).
    """
    budgets: tuple[PositiveInt, ...] = (1, 2, 3, 4)
    """Budgets, in models, that both agents see and learn to act within, beside `mean_pool` (ours).

    Those that limit nothing are left out.
    """
    word_directions: NonNegativeInt = 4
    """The number of principal directions of the questions' words that both agents see (ours)."""
    log_linear_start: float = 3.0
    """The sum of the log-linear core's weights at the start (ours)."""
    has_floor: bool = True
    """Whether a simpler policy decides where the learned one is not clearly better on held-out train
    documents (ours).

    Simpler are best single, the start and the best constant pool.
    """
    call_penalty: NonNegativeFloat = 0.0025
    """The penalty of each model asked, where a right answer has a reward of 1: a quarter of a point (ours).
    """
    start_logit: float = 2.0
    """The logit at the start of the branches of the best constant pool, if the Decider sees questions: 88 %
    for each model (ours)."""
    start_others: PositiveFloat = 0.5
    """The mean number of other models asked at the start (ours)."""
    weight_ridge: NonNegativeFloat = 5.0
    """The ridge penalty on the core's weights and biases that hold for all questions.

    This and the other ridges are ours, by cross-validation on train rows of MMLU and BBH.
    """
    slots_ridge: NonNegativeFloat = 30.0
    """The ridge penalty on the weights of one model's slot for the other slots."""
    task_ridge: NonNegativeFloat = 3.0
    """The ridge penalty on what is particular to a task."""
    words_ridge: NonNegativeFloat = 300.0
    """The ridge penalty on what depends on the question's words."""
    budget_ridge: NonNegativeFloat = 30.0
    """The ridge penalty on what is particular to a budget."""
    branch_task_ridge: NonNegativeFloat = 0.1
    """The ridge penalty on what a task adds to the logits of the Decider's branches."""
    branch_words_ridge: NonNegativeFloat = 10.0
    """The ridge penalty on what the question's words add to the logits of the Decider's branches."""
    core_rate: PositiveFloat = 0.02
    """Adam learning rate of the log-linear core (ours)."""
    question_rate: PositiveFloat = 0.1
    """Adam learning rate of the weights by which the question shifts the Decider's branches (ours)."""
    max_grad_norm: PositiveFloat = 10.0
    """Gradients of one seed's network are scaled down to this norm (not in the paper; MAPPO's 10)."""
    answer_slots: PositiveInt = 10
    """The most distinct answers per document, for free answers (paper: 10)."""

    @property
    def shape(self) -> NetworkShape:
        """The parts of the agents' networks."""
        return NetworkShape()


@checked
class GatedConfig(PoolConfig):
    """Settings of `gated_log_linear`. Raises InputError for a value that cannot work."""

    size_penalty: NonNegativeFloat = 0.05
    """The cost of the pool's size m/N where the answer is wrong; the reward is the log score.

    Chosen by cross-validation on train rows of MMLU and BBH.
    """
    steps: PositiveInt = 300
    """The number of gradient steps. On MMLU and BBH, twice as many changed nothing by cross-validation."""
    batch: PositiveInt = 1600
    """The largest number of train documents in a gradient step."""
    revision: ClassVar[int] = 6


@checked
class RLFocalConfig(PoolConfig):
    """Settings of `rl_focal` and `rl_focal_literal`. Raises InputError for a value that cannot work."""

    metrics: Metrics = ("focal_diversity", "plurality_accuracy")
    """Diversity metrics in the Decider's observation.

    The paper leaves the choice open, and its runs use these two.
    """
    window: Annotated[int, Field(ge=2)] = 500
    """The number of last documents over which metrics are taken (paper: 500; all where train has under 600).
    """
    size_penalty: NonNegativeFloat = 0.0
    """α of Eq (6) (paper: 1 on GSM8K and MMLU, else 0.6).

    Ours is 0: `call_penalty`, which does not depend on the number of models, stands for it.
    """
    stretches: PositiveInt = 32
    """The number of stretches into which the train stream is cut, each a parallel environment (ours; the
    paper: 1)."""
    copies: PositiveInt = 1
    """The number of parallel environments on each stretch, which differ by what they sample (paper: 1)."""
    update_period: PositiveInt = 50
    """T_u: the steps of each environment between two updates (paper: 100, and 10 on BBH, GPQA and MuSR)."""
    sees_questions: bool = True
    """Whether both agents see the question's words, and its task if one is given (ours; the paper: no)."""
    log_linear: bool = True
    """Whether Fusion has a log-linear core (ours; the paper: no)."""
    epochs: PositiveInt = 4
    """Gradient steps on each rollout (not in the paper; ours)."""
    clip: PositiveFloat = 0.2
    """ε of Eq (7) (paper: 0.2)."""
    learning_rate: PositiveFloat = 1e-3
    """Adam learning rate of the agents' networks (paper: 1e-3)."""
    decider_hidden: tuple[PositiveInt, ...] = (128,)
    """Widths of the Decider's shared trunk (paper: 128)."""
    fusion_hidden: tuple[PositiveInt, ...] = ()
    """Widths of Fusion's hidden layers (paper: 100, 100; ours: no network, because there is a core)."""
    branching: bool = True
    """Whether the Decider has a Bernoulli branch per model (paper).

    If not, it has one branch, a softmax over N+1 moves: each asks or drops one model, or keeps the pool. That
    is our reading of the paper's single branch, which it does not define.
    """
    actor_gain: float = 0.01
    """The scale of the actors' last layers at the start, for nearly equal probabilities (not in the paper;
    MAPPO's)."""
    vote_weight: float = 1.0
    """The weight of the soft vote at which Fusion's logits start (ours; 0 is the paper's plain network)."""
    past_rewards: NonNegativeInt = 0
    """k: how many of its last rewards Fusion's network sees (not in the paper; ours has no network: 0)."""
    decider_episodes: NonNegativeInt = 0
    """Passes over the train stream in Algorithm 1's first phase, by every copy (paper: 25).

    Ours is 0, because the Decider starts from the best constant pools.
    """
    fusion_episodes: NonNegativeInt = 0
    """Passes over the train stream in Algorithm 1's second phase, by every copy (paper: 150).

    Ours is 0, because Fusion starts from that phase's optimum on the best constant pools.
    """
    joint_episodes: NonNegativeInt = 24
    """Passes in which both agents learn from Fusion's rewards, as in Algorithm 2 (ours; the paper: online
    only)."""
    common_advantage: bool = False
    """Whether both agents share the advantage of s_t, whose value already knows the pool (paper's text).

    If not, the Decider's advantage is that of the state before its action (ours).
    """
    decider_gamma: Share = 0.0
    """γ of the Decider and the critic: the discount of later documents' rewards (paper: 0.99).

    Ours is 0: a pool is worth what it earns on its own document, so training is a contextual bandit.
    """
    fusion_gamma: Share = 0.0
    """γ for Fusion (paper: 0.5 to 0.9 by benchmark)."""
    gae_lambda: Share = 0.95
    """λ of the advantages (not in the paper; PPO's 0.95)."""
    samples: PositiveInt = 32
    """Answers that Fusion samples for each document of a rollout (paper: 1)."""
    success_weighting: bool = True
    """Whether an answer's advantage is divided by the share of its document's samples that are right.

    Fusion then roughly climbs the log-probability of being right instead of the probability (maximum
    likelihood reinforcement learning, ours). A document without a right sample teaches nothing. If not,
    advantages are standardised (MAPPO).
    """
    has_critic: bool = True
    """Whether the central critic's values enter the advantages (paper); if not, values are 0."""
    entropy: NonNegativeFloat = 0.0
    """The weight of the policies' entropy (not in the paper; MAPPO's 0.01; ours: none)."""
    critic_rate: PositiveFloat = 5e-3
    """Adam learning rate of the critic (not in the paper; ours)."""
    critic_hidden: tuple[PositiveInt, ...] = (64, 64)
    """Widths of the critic's hidden layers (not in the paper; MAPPO's 64)."""
    online_share: float = 1.0
    """The share of the core's learning rate that online learning uses (ours)."""
    anneal: bool = True
    """Whether learning rates and entropy fall to 0 over a phase (ours)."""
    revision: ClassVar[int] = 12
    online_revision: ClassVar[int] = 4

    def __post_init__(self) -> None:
        if self.log_linear and not self.sees_questions:
            raise InputError("RLFocalConfig.log_linear needs sees_questions")

    @property
    def shape(self) -> NetworkShape:
        return NetworkShape(*(getattr(self, name) for name in NetworkShape._fields))


def rl_focal_config(n_train: int) -> RLFocalConfig:
    """Settings of `rl_focal` on a train stream of this length."""
    n = max(n_train, 2)
    return RLFocalConfig(window=n if n < ALL_HISTORY_BELOW else 500)


def literal_config(n_train: int) -> RLFocalConfig:
    """Settings that follow the paper's text to the letter: Algorithm 1 in two phases, one stream, sampled
    actions, MLPs.

    Short streams take the paper's settings for BBH, GPQA and MuSR, long ones those for MMLU and GSM8K. What
    the paper leaves open stays ours.
    """
    n = max(n_train, 2)
    is_short = n < ALL_HISTORY_BELOW
    return RLFocalConfig(
        window=n if is_short else 500, size_penalty=0.6 if is_short else 1.0, mean_pool=0.0,
        has_floor=False, call_penalty=0.0,
        decider_episodes=25, fusion_episodes=150, joint_episodes=0, stretches=1, copies=1,
        update_period=10 if is_short else 100, budgets=(), sees_questions=False, word_directions=0,
        log_linear=False, decider_gamma=0.99, gae_lambda=0.95, common_advantage=True, anneal=False,
        critic_rate=1e-3, fusion_hidden=(100, 100), vote_weight=0.0, past_rewards=10, samples=1,
        success_weighting=False,
    )  # fmt: skip


def gated_config(n_train: int) -> GatedConfig:
    """Settings of `gated_log_linear`, whatever the length of train."""
    return GatedConfig()
