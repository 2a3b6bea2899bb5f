"""What can be set about RL-Focal. Every field says whether its default is the paper's or ours."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from rlfocal.agents.shared.checking import Metrics, Share, checked
from rlfocal.errors import InputError

ALL_HISTORY_BELOW = 600
"""Train documents under which the window is all history (paper, section 2)."""
GRADIENT_STEPS = 300
"""Enough on MMLU and BBH: twice as many changed nothing there by cross-validation."""
REVISION = 5
"""Raised whenever the same settings train other agents, so that earlier ones do not stand for them."""
ONLINE_REVISION = 2
"""Raised whenever the same agents decide otherwise online."""


@checked
class RLFocalConfig:
    """Settings of `rl_focal`. Raises InputError for a value that cannot work."""

    literal: bool = False
    """Whether all that is not set otherwise is as the paper's text has it (`literal_config`)."""
    metrics: Metrics = ("focal_diversity", "plurality_accuracy")
    """Diversity metrics in the Decider's observation (paper: a choice; its runs weigh these two)."""
    window: Annotated[int, Field(ge=2)] = 500
    """Documents the metrics look back on, or all there are (paper: 500; all where train has under 600)."""
    size_penalty: NonNegativeFloat = 0.05
    """α of Eq (6) (paper: 1 on GSM8K and MMLU, 0.6 on BBH, GPQA and MuSR; ours, where Fusion's log score is
    the reward: by cross-validation on train rows of MMLU and BBH)."""
    mean_pool: NonNegativeFloat = 5.5
    """Models asked per document, at most, on the average over train: a multiplier on the pool's size rises
    while it is not so, and at the end all branches are lowered alike (ours). 0: no such limit (paper)."""
    decider_episodes: NonNegativeInt = 0
    """Passes over the train stream in Algorithm 1's first phase, by every copy (paper: 25; ours: none)."""
    fusion_episodes: NonNegativeInt = 0
    """Passes over the train stream in its second phase, by every copy (paper: 150; ours: none)."""
    joint_episodes: NonNegativeInt = 15
    """Passes in which both agents learn from the labels by exact expectations (ours; the paper: 0)."""
    stretches: PositiveInt = 32
    """Stretches the train stream is cut into, one parallel environment each (ours; the paper: 1)."""
    copies: PositiveInt = 1
    """Parallel environments on each stretch, which differ by what is sampled (paper: 1)."""
    update_period: PositiveInt = 50
    """T_u: steps of each environment between two updates (paper: 100, and 10 on BBH, GPQA and MuSR)."""
    budgets: tuple[PositiveInt, ...] = (1, 2, 3, 4)
    """In models, which both agents are told of and learn to act within, beside `mean_pool` (ours); those that
    are no limit are left out."""
    sees_questions: bool = True
    """Whether both agents see the question's task and words (ours; the paper: no)."""
    word_directions: NonNegativeInt = 4
    """Of them, how many principal directions of the questions' words (ours)."""
    log_linear: bool = True
    """Whether Fusion has a log-linear core (ours; the paper: no)."""
    log_linear_start: float = 3.0
    """What the core's weights add up to at the start (ours)."""
    start_logit: float = 1.0
    """Of the Decider's branches at the start, where it sees questions: 73 % for each model (ours)."""
    log_linear_rate: PositiveFloat = 0.02
    """Adam's for the core, in the joint phase, where all rates fall to 0 (ours)."""
    question_rate: PositiveFloat = 0.1
    """Adam's for what the Decider's branches add by question, in the joint phase (ours)."""
    online_share: float = 1.0
    """Share of the core's rate at which it goes on learning online (ours: of 0.25 to 4 the least that
    follows a constructed stream that turns)."""
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
    """Prior on what the question's words add to them."""
    epochs: PositiveInt = 4
    """Gradient steps on each rollout (unknown in the paper; ours)."""
    learning_rate: PositiveFloat = 1e-3
    """Adam's, for both agents (paper: 1e-3) and for the critic."""
    clip: PositiveFloat = 0.2
    """ε of Eq (7) (paper: 0.2)."""
    decider_gamma: Share = 0.0
    """Discount of the Decider's rewards (paper: 0.99; ours: an action is worth what its own pool earns)."""
    fusion_gamma: Share = 0.5
    """Discount in the second phase (paper: 0.5 to 0.9 by benchmark)."""
    gae_lambda: Share = 0.5
    """λ of the advantages (unknown in the paper; ours, on train rows: at 0.95 the Decider hardly learns)."""
    entropy: NonNegativeFloat = 0.01
    """Weight of the policies' entropy (unknown in the paper; MAPPO's 0.01)."""
    max_grad_norm: PositiveFloat = 10.0
    """Gradients of one seed's network are scaled down to this norm (unknown in the paper; MAPPO's 10)."""
    decider_hidden: tuple[PositiveInt, ...] = (128,)
    """Widths of the Decider's shared trunk (paper: 128)."""
    fusion_hidden: tuple[PositiveInt, ...] = ()
    """Widths of Fusion's hidden layers (paper: 100, 100; ours: without a network where there is a core)."""
    branching: bool = True
    """A Bernoulli branch per model (paper). False: one branch, a softmax over N+1 moves that each ask or drop
    one model, or keep the pool (our reading of the paper's single branch, which it does not define)."""
    critic_hidden: tuple[PositiveInt, ...] = (64, 64)
    """Widths of the critic's hidden layers (unknown in the paper; MAPPO's 64)."""
    actor_gain: float = 0.01
    """Scale of the actors' last layers at the start, for an even start (unknown in the paper; MAPPO's)."""
    vote_weight: float = 1.0
    """Weight of the soft vote that Fusion's logits start from (ours; 0 is the paper's plain network)."""
    past_rewards: NonNegativeInt = 0
    """k: how many of its last rewards Fusion's network sees (unknown in the paper; ours without one: 0)."""
    answer_slots: PositiveInt = 10
    """Answers kept per document where documents have no choices (paper: 10)."""

    def __post_init__(self) -> None:
        if self.log_linear and not self.sees_questions:
            raise InputError("RLFocalConfig.log_linear needs sees_questions")
        if self.joint_episodes and not (self.log_linear and self.branching):
            raise InputError(
                f"RLFocalConfig.joint_episodes is {self.joint_episodes}; the joint phase needs log_linear "
                "and branching: set it to 0"
            )

    @property
    def n_observed(self) -> int:
        """K: how many numbers about a pool's answers the Decider sees."""
        return len(self.metrics)


def rl_focal_config(n_train: int) -> RLFocalConfig:
    """Settings of `rl_focal` on a train stream of this length: passes enough for some 300 gradient steps."""
    n = max(n_train, 2)
    window = n if n < ALL_HISTORY_BELOW else 500
    default = RLFocalConfig()
    walked = max(n - (window if window < n else 0), 1)
    updates = math.ceil(walked / (default.stretches * default.update_period))
    episodes = math.ceil(GRADIENT_STEPS / (default.epochs * updates))
    return RLFocalConfig(window=window, joint_episodes=max(episodes, 5))


def literal_config(n_train: int) -> RLFocalConfig:
    """The paper's text to the letter: Algorithm 1 in two phases, one stream, sampled actions, MLPs alone.

    Short streams take its settings for BBH, GPQA and MuSR, long ones those for MMLU and GSM8K. What the paper
    leaves open stays ours.
    """
    n = max(n_train, 2)
    is_short = n < ALL_HISTORY_BELOW
    return RLFocalConfig(
        literal=True, window=n if is_short else 500, size_penalty=0.6 if is_short else 1.0, mean_pool=0.0,
        decider_episodes=25, fusion_episodes=150, joint_episodes=0, stretches=1, copies=1,
        update_period=10 if is_short else 100, budgets=(), sees_questions=False, word_directions=0,
        log_linear=False, decider_gamma=0.99, gae_lambda=0.95, fusion_hidden=(100, 100), vote_weight=0.0,
        past_rewards=10,
    )  # fmt: skip
