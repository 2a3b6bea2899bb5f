"""Algorithm 2: what both agents learn from T_u labels, once all of these documents are answered."""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor

from rlfocal.agents.rl_focal.config import RLFocalConfig
from rlfocal.agents.rl_focal.environment import Rollout, State
from rlfocal.agents.rl_focal.mappo import clipped_surrogate, normalised
from rlfocal.agents.rl_focal.networks import Fusion, Networks
from rlfocal.agents.shared.optimiser import StackedAdam
from rlfocal.agents.shared.policies import branch_log_probs, modal_pool, sample_pool

MEMORY = 0.8
"""Factor by which older labels count less after every T_u labels, where online learning is judged."""
ALARM = 3.0
"""The Decider explores once answers are this many standard errors below what train promised."""
QUESTION_SHARE = 0.5
"""Share of `question_rate` at which the Decider's question weights go on learning online."""


class OnlineLearner:
    """One optimiser over Decider, Fusion and critic.

    While answers are right as often as train promised, pools are the Decider's likeliest, and it does not
    change. Once they are not, it explores: it also asks other models, and learns from these pools by Eq (6)
    with Fusion's answer, relative to what the critic expected of the document. Fusion, which is told the
    right slot, learns from every label as in the joint phase. With `literal`, the Decider always explores, by
    sampled pools.

    Fusion learns at `online_share` of the joint phase's rate, the Decider's question weights at half. On 16
    constructed streams that do not turn, this costs -0.1 points against frozen agents (-0.9 to 0.8); on 16
    that turn, it is right 93 % as often as the best constant pool (76 to 101 %), from 300 documents after the
    turn.
    """

    def __init__(self, networks: Networks, config: RLFocalConfig, found: float = 1.0) -> None:
        """`found`: how often some model asked gives the right answer, where answers are free."""
        self.networks, self.config = networks, config
        self.explores = config.literal
        self._trained, self._lead = deepcopy(networks.fusion), 0.0
        self._found = found
        self._surplus = self._variance = 0.0
        rate = config.learning_rate
        fusion_rate = config.log_linear_rate * config.online_share if config.log_linear else rate
        by_question = torch.nn.ParameterList([networks.decider.question])
        self.optimiser = StackedAdam(
            [by_question, networks.decider.trunk, networks.fusion, networks.critic],
            [QUESTION_SHARE * config.question_rate, rate, fusion_rate, rate],
            config.max_grad_norm,
        )

    @property
    def fusion(self) -> Fusion:
        """The Fusion that answers next: the online one once it has predicted recent labels better, else the
        trained one, which is the better one where nothing changes."""
        return self.networks.fusion if self._lead > 0 else self._trained

    def pool(self, observed: Tensor, noise: Tensor) -> Tensor:
        """(..., N) the next pool, from the Decider's observation and logistic noise (..., N). While
        exploring, models that it would leave out are asked with a log-odds of at least `start_logit`."""
        logits = self.networks.decider(observed)
        if self.config.literal:
            return sample_pool(logits, noise)
        likeliest = modal_pool(logits)
        if not self.explores:
            return likeliest
        return torch.maximum(likeliest, sample_pool(logits.clamp(min=self.config.start_logit), noise))

    def learn(self, rollout: Rollout) -> None:
        """`epochs` gradient steps. The last action is left out: its document is still to come."""
        networks, config = self.networks, self.config
        decider, fusion, is_open = (part[:, :-1].flatten(1, 2) for part in rollout.states)
        gold, asked = rollout.gold.flatten(1, 2), rollout.pools[:, 1:-1].flatten(1, 2)
        known, at = gold >= 0, gold.clamp(min=0)[..., None]
        chosen_at, n = self._before_actions(rollout.states), asked.shape[1]
        wrong = -1 - config.size_penalty * rollout.pools[:, 1:-1].mean(-1)
        rewards = torch.where(rollout.right[:, 1:] > 0, 1.0, wrong).flatten(1)
        for epoch in range(config.epochs):
            log_probs = branch_log_probs(networks.decider(decider[:, :n]), asked)
            log_score = torch.log_softmax(networks.fusion(fusion, is_open), -1).gather(-1, at)[..., 0]
            values = networks.critic(chosen_at)[..., 0]
            if epoch == 0:
                old_log_probs, old_score = log_probs.detach(), log_score.detach()
                advantages = normalised(rewards - values.detach())[..., None] if n else rewards[..., None]
                by_trained = torch.log_softmax(self._trained(fusion, is_open).detach(), -1)
                self._judge(old_score, by_trained, at, known)
            asks = clipped_surrogate((log_probs - old_log_probs).exp(), advantages, config.clip)
            ratio = (log_score - old_score).exp()
            answers = torch.where(known, clipped_surrogate(ratio, torch.ones_like(ratio), config.clip), 0)
            loss = -answers.sum() / known.sum().clamp(min=1)
            if n:
                loss = loss + (values - rewards).square().mean()
            if n and self.explores:
                loss = loss - asks.mean()
            self.optimiser.descend(loss)
        self._look_out(rollout.right.flatten(1), by_trained)

    @torch.no_grad()
    def _judge(self, learned: Tensor, by_trained: Tensor, at: Tensor, known: Tensor) -> None:
        """Compares both Fusions by log scores of labels that neither had seen."""
        ahead = torch.where(known, learned - by_trained.gather(-1, at)[..., 0], 0)
        self._lead = MEMORY * self._lead + float(ahead.sum())

    def _look_out(self, right: Tensor, by_trained: Tensor) -> None:
        """Explores if answers, right or wrong (1, L), fall short of what the trained Fusion expected of its
        own, by log-probabilities (1, L, C)."""
        promised = self._found * by_trained.exp().amax(-1)
        self._surplus = MEMORY * self._surplus + float((right - promised).sum())
        self._variance = MEMORY * self._variance + float((promised * (1 - promised)).sum())
        self.explores = self.config.literal or self._surplus < -ALARM * self._variance**0.5

    @torch.no_grad()
    def _before_actions(self, states: State) -> Tensor:
        """(1, L-1, ...) the global states in which those actions were chosen whose reward is known."""
        return self.networks.critic_input(*(part[:, :-2].flatten(1, 2) for part in states[:2]))
