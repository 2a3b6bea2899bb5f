"""The three networks, each a stack of one MLP per seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from rlfocal.agents.rl_focal.config import RLFocalConfig
from rlfocal.agents.shared.networks import Sizes, StackedLinear, stacked_mlp
from rlfocal.agents.shared.policies import mask_closed


class Standardiser(nn.Module):
    """The selected models' outputs at mean 0 and deviation 1 over train; those of the unselected stay 0.

    Probabilities crowd around 1/C, where a fresh sigmoid layer tells them apart badly.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, sizes: Sizes, n_seeds: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(n_seeds, 1, sizes.models, sizes.slots))
        self.register_buffer("scale", torch.ones(n_seeds, 1, sizes.models, sizes.slots))

    @torch.no_grad()
    def learn(self, outputs: Tensor) -> None:
        """From the outputs of all models on the train documents, (T, N, C)."""
        self.mean.copy_(outputs.mean(0).expand_as(self.mean))
        self.scale.copy_((1 / (outputs.std(0, correction=0) + 1e-3)).expand_as(self.scale))

    def forward(self, observation: Tensor) -> Tensor:
        """(S, B, N·C + k) o^Fus -> the same, past rewards unchanged."""
        shape = self.mean.shape[2:]
        outputs = observation[..., : shape.numel()].view(*observation.shape[:2], *shape)
        selected = outputs.sum(-1, keepdim=True) > 0
        standard = torch.where(selected, (outputs - self.mean) * self.scale, 0)
        return torch.cat([standard.flatten(2), observation[..., shape.numel() :]], -1)


class Networks(nn.Module):
    """Decider (a trunk shared by one Bernoulli branch per model), Fusion and the central critic."""

    def __init__(self, sizes: Sizes, config: RLFocalConfig, generators: Sequence[torch.Generator]) -> None:
        super().__init__()
        self.sizes, self.vote_weight = sizes, config.vote_weight
        actor = config.actor_gain
        actions = sizes.models if config.branching else sizes.models + 1
        self.standardiser = Standardiser(sizes, len(generators))
        self.decider = stacked_mlp([sizes.decider, *config.decider_hidden, actions], generators, actor)
        self.fusion = stacked_mlp([sizes.fusion, *config.fusion_hidden, sizes.slots], generators, actor)
        self.critic = stacked_mlp([sizes.decider + sizes.fusion, *config.critic_hidden, 1], generators)

    def pool_logits(self, decider: Tensor) -> Tensor:
        """(S, B, N) logits of the branches from o^Dec; of a single branch, (S, B, N+1) its moves'."""
        logits: Tensor = self.decider(decider)
        return logits

    def slot_logits(self, fusion: Tensor, open_slots: Tensor) -> Tensor:
        """(S, B, C) logits of the slots from o^Fus, -inf where `open_slots` has none."""
        standard = self.standardiser(fusion)
        logits: Tensor = self.fusion(standard) + self.head_start(standard, open_slots)
        return logits

    def head_start(self, standard: Tensor, open_slots: Tensor) -> Tensor:
        """(S, B, C) what Fusion's network adds to: a soft vote of the selected models' standardised outputs,
        -inf where no slot is. The same before and after an update."""
        n_outputs = self.sizes.models * self.sizes.slots
        outputs = standard[..., :n_outputs].view(*standard.shape[:2], self.sizes.models, self.sizes.slots)
        size = outputs.any(-1).sum(-1, keepdim=True).clamp(min=1)
        return mask_closed(self.vote_weight * outputs.sum(2) / size, open_slots)

    def fuser(self, outputs: Tensor, open_slots: Tensor) -> Callable[[int, Tensor], Tensor]:
        """For L steps of `outputs` (S, L, B, N·C) at once: a function from step t and the past rewards
        (S, B, k) to `slot_logits` (S, B, C)."""
        shape, n_outputs = outputs.shape[:3], outputs.shape[3]
        none_yet = outputs.new_zeros((*shape, self.sizes.past_rewards))
        standard = self.standardiser(torch.cat([outputs, none_yet], -1).flatten(1, 2))
        start = self.head_start(standard, open_slots.flatten(1, 2)).view(*shape, -1)
        first, rest = self.fusion[0], self.fusion[1:]
        assert isinstance(first, StackedLinear)
        hidden, of_past = first(standard).view(*shape, -1), first.weight[:, n_outputs:]

        def logits(t: int, past_rewards: Tensor) -> Tensor:
            own: Tensor = rest(torch.baddbmm(hidden[:, t], past_rewards, of_past))
            return own + start[:, t]

        return logits

    def value(self, decider: Tensor, fusion: Tensor) -> Tensor:
        """(S, B) V(s) of global states."""
        value: Tensor = self.critic(self.critic_input(decider, fusion))[..., 0]
        return value

    def critic_input(self, decider: Tensor, fusion: Tensor) -> Tensor:
        """(S, B, ...) [o^Dec; o^Fus standardised]. The same before and after an update."""
        return torch.cat([decider, self.standardiser(fusion)], -1)
