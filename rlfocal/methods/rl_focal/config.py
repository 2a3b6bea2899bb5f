"""What can be set about RL-Focal. Every field says whether its default is the paper's or ours."""

from __future__ import annotations

from typing import Annotated, ClassVar, NamedTuple

from pydantic import AfterValidator, Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from rlfocal.base.errors import InputError, unknown_name
from rlfocal.methods.checking import Share, checked
from rlfocal.statistics.metrics import METRICS

ALL_HISTORY_BELOW = 600
"""Train documents under which the window is all history (paper, section 2)."""


def _check_metric(metric: str) -> str:
    if metric not in METRICS:
        raise unknown_name("metric", metric, METRICS)
    return metric


Metrics = tuple[Annotated[str, AfterValidator(_check_metric)], ...]
"""Names of diversity metrics."""


class NetworkShape(NamedTuple):
    """What the agents' networks are built of, by default as for a mask that is linear in the question."""

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

    `revision` is raised whenever the same settings train other agents, so that earlier ones do not stand for
    them; `online_revision` whenever the same agents decide otherwise online.
    """

    mean_pool: NonNegativeFloat = 5.5
    """Models asked per document, at most, on the average over train: a multiplier on the pool's size rises
    while it is not so, and at the end all branches are lowered alike (ours). 0: no such limit (paper)."""
    budgets: tuple[PositiveInt, ...] = (1, 2, 3, 4)
    """Numbers of models that both agents are told and learn to act within, beside `mean_pool` (ours). Those
    that limit nothing are left out."""
    word_directions: NonNegativeInt = 4
    """How many principal directions of the questions' words they see (ours)."""
    log_linear_start: float = 3.0
    """Sum of the core's weights at the start (ours)."""
    has_floor: bool = True
    """Whether best single, the start and the best constant pool decide, where what was learned is not clearly
    better on held-out train documents (ours)."""
    call_penalty: NonNegativeFloat = 0.0025
    """What one more model has to bring, where being right earns 1: a quarter of a point (ours)."""
    start_logit: float = 2.0
    """Logit of the branches of the best constant pool at the start, where the Decider sees questions: 88 %
    for each of its models (ours)."""
    start_others: PositiveFloat = 0.5
    """How many of all other models are asked at the start, on average (ours)."""
    weight_ridge: NonNegativeFloat = 5.0
    """Prior on the core's weights and biases that hold for all questions (ours; the ridges: by
    cross-validation on train rows of MMLU and BBH)."""
    slots_ridge: NonNegativeFloat = 30.0
    """Prior on what one slot of a model tells of the others."""
    task_ridge: NonNegativeFloat = 3.0
    """Prior on what is particular to a task."""
    words_ridge: NonNegativeFloat = 300.0
    """Prior on what depends on the question's words."""
    budget_ridge: NonNegativeFloat = 30.0
    """Prior on what is particular to a budget."""
    branch_task_ridge: NonNegativeFloat = 0.1
    """Prior on what a task adds to the Decider's branches."""
    branch_words_ridge: NonNegativeFloat = 10.0
    """Prior on what the question's words add to the branches' logits."""
    core_rate: PositiveFloat = 0.02
    """Adam learning rate of the log-linear core (ours)."""
    question_rate: PositiveFloat = 0.1
    """Adam learning rate of what the question adds to the Decider's branches (ours)."""
    max_grad_norm: PositiveFloat = 10.0
    """Gradients of one seed's network are scaled down to this norm (unknown in the paper; MAPPO's 10)."""
    answer_slots: PositiveInt = 10
    """Answers kept per document where documents have no choices (paper: 10)."""

    @property
    def shape(self) -> NetworkShape:
        """What the agents' networks are built of."""
        return NetworkShape()


@checked
class GatedConfig(PoolConfig):
    """Settings of `gated_log_linear`. Raises InputError for a value that cannot work."""

    size_penalty: NonNegativeFloat = 0.05
    """Cost of the pool's size m/N where the answer is wrong; the reward is the log score (by cross-validation
    on train rows of MMLU and BBH)."""
    steps: PositiveInt = 300
    """Gradient steps: enough on MMLU and BBH, where twice as many changed nothing by cross-validation."""
    batch: PositiveInt = 1600
    """The largest number of train documents in a gradient step."""
    revision: ClassVar[int] = 5


@checked
class RLFocalConfig(PoolConfig):
    """Settings of `rl_focal` and `rl_focal_literal`. Raises InputError for a value that cannot work."""

    metrics: Metrics = ("focal_diversity", "plurality_accuracy")
    """Diversity metrics in the Decider's observation (paper: a choice; its runs weigh these two)."""
    window: Annotated[int, Field(ge=2)] = 500
    """Documents the metrics look back on, or all there are (paper: 500; all where train has under 600)."""
    size_penalty: NonNegativeFloat = 0.0
    """α of Eq (6) (paper: 1 on GSM8K and MMLU, else 0.6; ours: `call_penalty` instead, which does not depend
    on the number of models)."""
    stretches: PositiveInt = 32
    """Stretches the train stream is cut into, one parallel environment each (ours; the paper: 1)."""
    copies: PositiveInt = 1
    """Parallel environments on each stretch, which differ by what is sampled (paper: 1)."""
    update_period: PositiveInt = 50
    """T_u: steps of each environment between two updates (paper: 100, and 10 on BBH, GPQA and MuSR)."""
    sees_questions: bool = True
    """Whether both agents see the question's words, and its task where one is given (ours; the paper: no)."""
    log_linear: bool = True
    """Whether Fusion has a log-linear core (ours; the paper: no)."""
    epochs: PositiveInt = 4
    """Gradient steps on each rollout (unknown in the paper; ours)."""
    clip: PositiveFloat = 0.2
    """ε of Eq (7) (paper: 0.2)."""
    learning_rate: PositiveFloat = 1e-3
    """Adam learning rate of the agents' networks (paper: 1e-3)."""
    decider_hidden: tuple[PositiveInt, ...] = (128,)
    """Widths of the Decider's shared trunk (paper: 128)."""
    fusion_hidden: tuple[PositiveInt, ...] = ()
    """Widths of Fusion's hidden layers (paper: 100, 100; ours: without a network where there is a core)."""
    branching: bool = True
    """A Bernoulli branch per model (paper). False: one branch, a softmax over N+1 moves that each ask or drop
    one model, or keep the pool (our reading of the paper's single branch, which it does not define)."""
    actor_gain: float = 0.01
    """Scale of the actors' last layers at the start, for an even start (unknown in the paper; MAPPO's)."""
    vote_weight: float = 1.0
    """Weight of the soft vote that Fusion's logits start from (ours; 0 is the paper's plain network)."""
    past_rewards: NonNegativeInt = 0
    """k: how many of its last rewards Fusion's network sees (unknown in the paper; ours without one: 0)."""
    decider_episodes: NonNegativeInt = 0
    """Passes over the train stream in Algorithm 1's first phase, by every copy (paper: 25; ours: none, for
    the Decider starts from the best constant pools)."""
    fusion_episodes: NonNegativeInt = 0
    """Passes over the train stream in its second phase, by every copy (paper: 150; ours: none, for Fusion
    starts from the optimum of that phase on the best constant pools)."""
    joint_episodes: NonNegativeInt = 24
    """Passes in which both agents learn from Fusion's rewards, as in Algorithm 2 (ours; the paper: online
    only)."""
    common_advantage: bool = False
    """Whether both agents share the advantage of s_t, whose value already knows the pool (paper's text); else
    the Decider's is that of the state before its action (ours)."""
    decider_gamma: Share = 0.0
    """γ: discount of later documents' rewards for the Decider, and in the critic's targets (paper: 0.99;
    ours: a pool is worth what its own document earns, so training is a contextual bandit)."""
    fusion_gamma: Share = 0.0
    """γ for Fusion (paper: 0.5 to 0.9 by benchmark)."""
    gae_lambda: Share = 0.95
    """λ of the advantages (unknown in the paper; PPO's 0.95)."""
    samples: PositiveInt = 32
    """Answers that Fusion samples for each document of a rollout (paper: 1)."""
    success_weighting: bool = True
    """Whether an answer's advantage is divided by the share of its document's samples that are right, so that
    Fusion roughly climbs the log-probability of being right instead of the probability (maximum likelihood
    reinforcement learning, ours; without a right sample, a document teaches nothing); else advantages are
    standardised (MAPPO)."""
    has_critic: bool = True
    """Whether the central critic's values enter the advantages (paper); else they are 0."""
    entropy: NonNegativeFloat = 0.0
    """Weight of the policies' entropy (unknown in the paper; MAPPO's 0.01; ours: none)."""
    critic_rate: PositiveFloat = 5e-3
    """Adam learning rate of the critic (unknown in the paper; ours)."""
    critic_hidden: tuple[PositiveInt, ...] = (64, 64)
    """Widths of the critic's hidden layers (unknown in the paper; MAPPO's 64)."""
    online_share: float = 1.0
    """Share of the core's learning rate at which it goes on learning online (ours)."""
    anneal: bool = True
    """Whether learning rates and entropy fall to 0 over a phase (ours)."""
    revision: ClassVar[int] = 11
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
    """The paper's text to the letter: Algorithm 1 in two phases, one stream, sampled actions, MLPs alone.

    Short streams take its settings for BBH, GPQA and MuSR, long ones those for MMLU and GSM8K. What the paper
    leaves open stays ours.
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
