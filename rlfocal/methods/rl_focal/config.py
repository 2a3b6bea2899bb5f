"""The settings of `rl_focal`, `rl_focal_literal` and `gated_log_linear`, and their entries among the methods,
without an import of torch. Each setting says whose its default is."""

from __future__ import annotations

from typing import Annotated, ClassVar, NamedTuple

from pydantic import AfterValidator, Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from rlfocal.base.errors import InputError, unknown_name
from rlfocal.methods.checking import Range, Share, checked
from rlfocal.methods.learning.agents import TrainedMethod
from rlfocal.methods.trained import register_trained
from rlfocal.statistics.metrics import METRICS

ALL_HISTORY_BELOW = 600
"""The number of train documents below which metrics are over all history (paper, section 2)."""
_VARIANTS = "rlfocal.methods.rl_focal.variants"
_SHARED_SPACE = {
    "weight_ridge": Range(0.5, 50.0, log=True),
    "slots_ridge": Range(3.0, 300.0, log=True),
    "words_ridge": Range(30.0, 3000.0, log=True),
    "core_rate": Range(5e-3, 0.1, log=True),
}


def _check_metric(metric: str) -> str:
    if metric not in METRICS:
        raise unknown_name("metric", metric, METRICS)
    return metric


Metrics = tuple[Annotated[str, AfterValidator(_check_metric)], ...]
"""Names of diversity metrics."""


class NetworkShape(NamedTuple):
    """The parts of the agents' networks; the defaults are those of `gated_log_linear`."""

    metrics: tuple[str, ...] = ()
    past_rewards: int = 0
    sees_questions: bool = True
    branching: bool = True
    decider_hidden: tuple[int, ...] | None = None
    """The sizes of the hidden layers of the Decider's trunk; None without a trunk."""
    log_linear: bool = True
    fusion_hidden: tuple[int, ...] = ()
    vote_weight: float = 0.0
    critic_hidden: tuple[int, ...] | None = None
    """The sizes of the critic's hidden layers; None: there is no critic."""
    actor_gain: float = 0.0


@checked
class PoolConfig:
    """Settings that `rl_focal` and `gated_log_linear` share.

    `revision` is raised whenever the same settings train different agents, so that earlier checkpoints are
    not used. `online_revision` is raised whenever the same agents decide differently online.
    """

    mean_pool: NonNegativeFloat = 5.5
    """The most models asked per document, as a mean over train; 0: no limit (paper).

    The multiplier of a penalty on the pool's size rises while the mean is too high. At the end, one shift
    lowers the logits of all branches (ours).
    """
    budgets: tuple[PositiveInt, ...] = (1, 2, 3, 4)
    """Budgets, in models, that both agents see and learn to act within, beside `mean_pool` (ours).

    Budgets from the usual pool size on are left out.
    """
    word_directions: NonNegativeInt = 4
    """The number of principal directions of the questions' words that both agents see (ours)."""
    log_linear_start: float = 3.0
    """The sum of the log-linear core's weights at the start (ours)."""
    has_floor: bool = True
    """Whether a simpler policy decides unless the learned one is clearly better on held-out train (ours).

    The simpler policies are the best single model, the start and the best constant pool.
    """
    call_penalty: NonNegativeFloat = 0.0025
    """The penalty of each model asked, where a right answer has a reward of 1: a quarter of a point (ours).
    """
    start_logit: float = 2.0
    """The logit of the best constant pool's branches at the start: a probability of 88 % (ours)."""
    start_others: PositiveFloat = 0.5
    """The mean number of models outside the best constant pool that are asked at the start (ours)."""
    weight_ridge: NonNegativeFloat = 5.0
    """The ridge penalty on the core's weights and biases that are the same for all questions.

    All ridge penalties are ours, by cross-validation on train rows of MMLU and BBH.
    """
    slots_ridge: NonNegativeFloat = 30.0
    """The ridge penalty on the core's weights from each slot of a model to the logits of all slots."""
    task_ridge: NonNegativeFloat = 3.0
    """The ridge penalty on the core's weights and biases that a task adds."""
    words_ridge: NonNegativeFloat = 300.0
    """The ridge penalty on the core's weights and biases that depend on the question's words."""
    budget_ridge: NonNegativeFloat = 30.0
    """The ridge penalty on the core's weights and biases that a budget adds."""
    branch_task_ridge: NonNegativeFloat = 0.1
    """The ridge penalty on what a task adds to the logits of the Decider's branches."""
    branch_words_ridge: NonNegativeFloat = 10.0
    """The ridge penalty on what the question's words add to the logits of the Decider's branches."""
    core_rate: PositiveFloat = 0.02
    """Adam learning rate of the log-linear core (ours)."""
    question_rate: PositiveFloat = 0.1
    """Adam learning rate of the weights by which the question shifts the Decider's branches (ours)."""
    max_grad_norm: PositiveFloat = 10.0
    """The norm to which the gradient of each network is scaled down (not in the paper; MAPPO's 10)."""
    answer_slots: PositiveInt = 10
    """The most distinct answers to a document that Fusion sees, for free answers (paper: 10)."""

    @property
    def shape(self) -> NetworkShape:
        """The parts of the agents' networks."""
        return NetworkShape()


@checked
class GatedConfig(PoolConfig):
    """Settings of `gated_log_linear`. Raises InputError for a value that cannot work."""

    size_penalty: NonNegativeFloat = 0.05
    """The cost of a pool of m of N models, per m/N, in proportion to the probability of a wrong answer.

    It is subtracted from the log score, and was chosen by cross-validation on train rows of MMLU and BBH.
    """
    steps: PositiveInt = 300
    """The number of gradient steps. Twice as many changed nothing in cross-validation on MMLU and BBH."""
    batch: PositiveInt = 1600
    """The largest number of train documents in a gradient step."""
    revision: ClassVar[int] = 6


@checked
class RLFocalConfig(PoolConfig):
    """Settings of `rl_focal` and `rl_focal_literal`. Raises InputError for a value that cannot work."""

    metrics: Metrics = ("focal_diversity", "plurality_accuracy")
    """Names of the diversity metrics in the Decider's observation.

    The paper leaves the choice open, and the paper's runs use these two.
    """
    window: Annotated[int, Field(ge=2)] = 500
    """The number of preceding documents that metrics are over (paper: 500; all if train has under 600)."""
    size_penalty: NonNegativeFloat = 0.0
    """α of Eq (6), the penalty of the pool's size (paper: 1 on GSM8K and MMLU, else 0.6).

    Ours is 0, because `call_penalty` replaces it, which does not depend on the number of models.
    """
    stretches: PositiveInt = 32
    """The number of stretches of the train stream, each with its parallel environments (ours; paper: 1)."""
    copies: PositiveInt = 1
    """The number of parallel environments on each stretch, whose sampled actions differ (paper: 1)."""
    update_period: PositiveInt = 50
    """T_u: the steps of each environment between two updates (paper: 100, and 10 on BBH, GPQA and MuSR)."""
    sees_questions: bool = True
    """Whether both agents see the question's words, and the task if tasks are shown (ours; paper: no)."""
    log_linear: bool = True
    """Whether Fusion has a log-linear core (ours; the paper: no)."""
    epochs: PositiveInt = 4
    """The number of gradient steps on each rollout (not in the paper; ours)."""
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

    If not, it has a softmax over N+1 moves: each adds or drops one model, or keeps the pool. That is our
    reading of the paper's single branch, which the paper does not define.
    """
    actor_gain: float = 0.01
    """The initial scale of the actors' last layers (not in the paper; MAPPO's).

    A small scale makes all actions nearly equally likely.
    """
    vote_weight: float = 1.0
    """The weight of a soft vote in the logits of a Fusion without a core (ours; 0 in the paper)."""
    past_rewards: NonNegativeInt = 0
    """k, the number of last rewards that Fusion's network sees (not in the paper; 0 without a network)."""
    decider_episodes: NonNegativeInt = 0
    """Passes over the train stream in Algorithm 1's first phase, by every copy (paper: 25).

    Ours is 0, because the Decider starts from the best constant pools.
    """
    fusion_episodes: NonNegativeInt = 0
    """Passes over the train stream in Algorithm 1's second phase, by every copy (paper: 150).

    Ours is 0, because Fusion starts from that phase's optimum on the best constant pools.
    """
    joint_episodes: NonNegativeInt = 24
    """Passes in which both agents learn from Fusion's rewards, as in Algorithm 2 (ours; paper: only online).
    """
    common_advantage: bool = False
    """Whether both agents have the advantage at s_t, the state after the pool is chosen (paper's text).

    If not, the Decider's advantage is that of the state before its action (ours).
    """
    decider_gamma: Share = 0.0
    """γ of the Decider and the critic: the discount of later documents' rewards (paper: 0.99).

    Ours is 0, so that a pool earns the reward of its own document, as in a contextual bandit.
    """
    fusion_gamma: Share = 0.0
    """γ of Fusion: the discount of later documents' rewards (paper: 0.5 to 0.9 by benchmark; ours: 0)."""
    gae_lambda: Share = 0.95
    """λ of the generalised advantage estimates (not in the paper; PPO's 0.95)."""
    samples: PositiveInt = 32
    """The number of answers that Fusion samples for each document of a rollout (paper: 1)."""
    success_weighting: bool = True
    """Whether an answer's advantage is divided by the share of right samples of its document (ours).

    Fusion then roughly maximises the log-probability of being right instead of the probability (maximum
    likelihood reinforcement learning). Documents without a right sample have no effect. If not, advantages
    are standardised (MAPPO).
    """
    has_critic: bool = True
    """Whether the central critic's values enter the advantages (paper); if not, values are 0."""
    entropy: NonNegativeFloat = 0.0
    """The weight of the policies' entropy in the loss (not in the paper; MAPPO's 0.01; ours: 0)."""
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
    """Settings to the letter of the paper's text: Algorithm 1 in two phases, one stream, and MLPs.

    Short streams get the paper's settings for BBH, GPQA and MuSR, and long streams those for MMLU and GSM8K.
    Settings that the paper leaves open are ours.
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


def _gated_config(n_train: int) -> GatedConfig:
    """The defaults of `gated_log_linear`, the same for any number of train documents."""
    return GatedConfig()


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
        _gated_config,
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
