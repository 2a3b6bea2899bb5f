"""Algorithm 2: what both agents learn from T_u labels, once all of these documents are answered."""

from __future__ import annotations

import torch

from rlfocal.agents.rl_focal.config import RLFocalConfig
from rlfocal.agents.rl_focal.environment import Rollout, State
from rlfocal.agents.rl_focal.mappo import clipped_surrogate, normalised
from rlfocal.agents.rl_focal.networks import Networks
from rlfocal.agents.shared.optimiser import StackedAdam
from rlfocal.agents.shared.policies import branch_log_probs


class OnlineLearner:
    """One optimiser over Decider, Fusion and critic.

    The Decider learns by sampled pools from Eq (6) with Fusion's answer, against what the critic expected of
    the document; Fusion, which is told the right slot, as in the joint phase.
    """

    def __init__(self, networks: Networks, config: RLFocalConfig) -> None:
        self.networks, self.config = networks, config
        rate = config.learning_rate
        fusion_rate = config.log_linear_rate * config.online_share if config.log_linear else rate
        self.optimiser = StackedAdam(
            [networks.decider, networks.fusion, networks.critic],
            [rate, fusion_rate, rate],
            config.max_grad_norm,
        )

    def learn(self, rollout: Rollout) -> None:
        """`epochs` gradient steps. Of the last action nothing is known yet: its document comes next."""
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
            asks = clipped_surrogate((log_probs - old_log_probs).exp(), advantages, config.clip)
            ratio = (log_score - old_score).exp()
            answers = torch.where(known, clipped_surrogate(ratio, torch.ones_like(ratio), config.clip), 0)
            loss = -answers.sum() / known.sum().clamp(min=1)
            if n:
                loss = loss - asks.mean() + (values - rewards).square().mean()
            self.optimiser.descend(loss)

    @torch.no_grad()
    def _before_actions(self, states: State) -> torch.Tensor:
        """(1, L-1, ...) the global states in which the actions were chosen that are known the worth of."""
        return self.networks.critic_input(*(part[:, :-2].flatten(1, 2) for part in states[:2]))
