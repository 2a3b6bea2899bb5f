"""The networks of the Decider, of Fusion, and of the central critic."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from rlfocal.data.dataset import Dataset, Kind
from rlfocal.methods.learning.networks import Linear, mask_closed, mlp
from rlfocal.methods.rl_focal.config import PoolConfig
from rlfocal.methods.rl_focal.questions import FeatureColumns

MIN_LOGPROB = -50.0
"""The value to which lower log-probs are clipped, because they tell no more."""


class Sizes(NamedTuple):
    """The sizes that determine the networks' shapes."""

    models: int
    slots: int
    metrics: int
    past_rewards: int
    question: int = 0
    """G, the number of question features, which are known before any model is asked."""

    @property
    def decider(self) -> int:
        """The length of o^Dec = [pool; metrics; size; question]."""
        return self.models + self.metrics + 1 + self.question

    @property
    def fusion(self) -> int:
        """The length of o^Fus = [distributions of the selected models; past rewards; question]."""
        return self.models * self.slots + self.past_rewards + self.question


class Standardiser(nn.Module):
    """Standardises the selected models' outputs by train mean and deviation; outputs of other models stay 0.

    Probabilities cluster around 1/C, where a freshly initialised sigmoid layer hardly tells them apart.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(1, sizes.models, sizes.slots))
        self.register_buffer("scale", torch.ones(1, sizes.models, sizes.slots))

    @torch.no_grad()
    def learn(self, outputs: Tensor) -> None:
        """Sets mean and scale from the outputs of all models on train, (T, N, C)."""
        self.mean.copy_(outputs.mean(0, keepdim=True))
        self.scale.copy_(1 / (outputs.std(0, correction=0, keepdim=True) + 1e-3))

    def forward(self, observation: Tensor) -> Tensor:
        """(B, ...) observations o^Fus, in which the outputs are standardised and the rest is unchanged."""
        shape = self.mean.shape[1:]
        outputs = observation[:, : shape.numel()].view(-1, *shape)
        selected = outputs.sum(-1, keepdim=True) > 0
        standard = torch.where(selected, (outputs - self.mean) * self.scale, 0)
        return torch.cat([standard.flatten(1), observation[:, shape.numel() :]], -1)


class Decider(nn.Module):
    """The Decider of Eq (5): a trunk over [pool; metrics; size] and a linear term of the question.

    Each model's branch has an output of the trunk and a linear term. `gated_log_linear` has no trunk.
    """

    def __init__(self, sizes: Sizes, config: PoolConfig, generator: torch.Generator) -> None:
        super().__init__()
        shape = config.shape
        actions = sizes.models if shape.branching else sizes.models + 1
        self.n_pool = sizes.decider - sizes.question
        self.trunk = None
        if shape.decider_hidden is not None:
            widths = [self.n_pool, *shape.decider_hidden, actions]
            self.trunk = mlp(widths, generator, shape.actor_gain)
        self.question = nn.Parameter(torch.zeros(sizes.question, actions))

    @torch.no_grad()
    def start_from(self, pools: Tensor, config: PoolConfig) -> None:
        """Sets the branches' constants so that the members of pools (K, N) are likely at the start.

        The K pools are for the budgets in ascending order, and last for no budget.
        """
        others = (~pools).sum(1, keepdim=True).clamp(min=1)
        unlikely = torch.logit(config.start_others / others, eps=1e-6).clamp(max=config.start_logit)
        places = [*range(1 - len(pools), 0), 0]
        self.question[places] = torch.where(pools, config.start_logit, unlikely)

    def forward(self, observation: Tensor) -> Tensor:
        """(B, N) logits of the branches, from observations (B, N+K+1+G)."""
        of_question = observation[:, self.n_pool :] @ self.question
        return self.pool_logits(observation[:, : self.n_pool]) + of_question

    def pool_logits(self, observation: Tensor) -> Tensor:
        """(B, N) the trunk's part of the logits, from [pool; metrics; size] (B, N+K+1); 0 without a trunk."""
        if self.trunk is None:
            return observation.new_zeros((len(observation), self.question.shape[1]))
        of_pool: Tensor = self.trunk(observation)
        return of_pool

    def penalty(self, config: PoolConfig, columns: FeatureColumns) -> Tensor:
        """The ridge penalty on the linear terms' weights, except those of the constant and the budgets."""
        if not len(self.question):  # without questions there is not even a constant
            return self.question.new_zeros(())
        ridges = columns.expand(0.0, config.branch_task_ridge, config.branch_words_ridge, 0.0)
        return (self.question.new_tensor(ridges)[:, None] * self.question.square()).sum()


class Evidence(NamedTuple):
    """Models' outputs for M documents, standardised on train."""

    shared: Tensor
    """(M, N, C) log-probs, centred over the open slots and scaled for each model; for free answers, shares of
    samples"""
    own: Tensor
    """(M, N, C) log-probs, centred over the open slots and standardised for each model and slot; 0 for free
    answers"""


class LogLinearCore(nn.Module):
    """A log-linear Fusion: logit_c(x) = Σ_i w_i(x) z_ic + Σ_i Σ_c' W_ic'c u_ic' + bias_c(x).

    The sums are over the selected models i. z is `shared` and u is `own` of the evidence; w and bias are
    linear in the question features. Free answers, whose slots have no fixed meaning, have only the first sum.
    """

    deviation: Tensor
    mean: Tensor
    scale: Tensor

    def __init__(self, sizes: Sizes, kind: Kind) -> None:
        super().__init__()
        n, c, g = sizes.models, sizes.slots, sizes.question
        self.kind = kind
        self.centre: Tensor | None = None
        """(G, N) the weights to which the ridge penalty pulls; None: 0"""
        self.strength = 1.0
        """The factor on the ridge penalties."""
        self.weight = nn.Parameter(torch.zeros(g, n))
        self.slots = nn.Parameter(torch.zeros(n * c if kind == "choices" else 0, c))
        self.bias = nn.Parameter(torch.zeros(g if kind == "choices" else 0, c))
        self.register_buffer("deviation", torch.ones(1, n, 1))
        self.register_buffer("mean", torch.zeros(1, n, c))
        self.register_buffer("scale", torch.ones(1, n, c))

    @torch.no_grad()
    def learn(self, outputs: Tensor, is_open: Tensor, accuracy: Tensor, start: float) -> None:
        """Sets scales and weights from all models' outputs (T, N, C) on train, and which slots exist (T, C).

        The weights sum to `start`, in proportion to the models' odds of being right, from `accuracy` (N,).
        """
        odds = accuracy / (1 - accuracy)
        self.weight[0] = start * odds / odds.sum()
        if self.kind == "choices":
            centred = _centre(outputs, is_open)
            total = centred.square().sum((0, 2)) / is_open.sum().clamp(min=1)
            self.deviation.copy_(total.sqrt().clamp(min=1e-6)[:, None])
            self.mean.copy_(centred.mean(0))
            spread = centred.std(0, correction=0)
            self.scale.copy_(torch.where(spread > 1e-6, 1 / spread.clamp(min=1e-6), 0))

    def widen(self, n_slots: int) -> LogLinearCore:
        """The core for `n_slots` choices; of those that train lacked, it reads the shared evidence alone."""
        n, c = self.mean.shape[1:]
        more = n_slots - c
        wide = LogLinearCore(Sizes(n, n_slots, 0, 0, len(self.weight)), self.kind)
        state = self.state_dict() | {
            "slots": pad(self.slots.view(n, c, c), (0, more, 0, more)).flatten(0, 1),
            "bias": pad(self.bias, (0, more)),
            "mean": pad(self.mean, (0, more)),
            "scale": pad(self.scale, (0, more)),
        }
        wide.load_state_dict(state)
        return wide

    def evidence(self, outputs: Tensor, is_open: Tensor) -> Evidence:
        """The evidence of outputs (M, N, C), 0 for models that were not asked; `is_open` (M, C)."""
        if self.kind == "answers":
            return Evidence(outputs, torch.zeros_like(outputs))
        asked = outputs.sum(-1, keepdim=True) > 0
        centred = _centre(outputs, is_open)
        own = (centred - self.mean) * self.scale * is_open[:, None]
        return Evidence(torch.where(asked, centred / self.deviation, 0), torch.where(asked, own, 0))

    def contributions(self, evidence: Evidence, question: Tensor) -> Tensor:
        """(M, N, C) what each model adds to the logits, for question features (M, G)."""
        added = (question @ self.weight)[..., None] * evidence.shared
        if self.kind == "choices":
            n, c = evidence.own.shape[-2:]
            added = added + torch.einsum("mnc,ncd->mnd", evidence.own, self.slots.view(n, c, c))
        return added

    def biases(self, question: Tensor) -> Tensor:
        """(M, C) the biases of the slots, for question features (M, G); 0 for free answers."""
        return question @ self.bias if self.kind == "choices" else question.new_zeros(())

    def forward(self, evidence: Evidence, question: Tensor) -> Tensor:
        """(M, C) logits of all slots, of which the caller has to mask closed ones."""
        logits = (evidence.shared.transpose(-1, -2) @ (question @ self.weight)[..., None])[..., 0]
        if self.kind == "choices":
            logits = logits + evidence.own.flatten(1) @ self.slots + question @ self.bias
        return logits

    def penalty(self, config: PoolConfig, columns: FeatureColumns) -> Tensor:
        """The ridge penalty, a weighted sum of squared distances from `centre`, without a factor of 1/2."""
        ridges = config.weight_ridge, config.task_ridge, config.words_ridge, config.budget_ridge
        of_question = self.weight.new_tensor(columns.expand(*ridges))[:, None]
        moved = self.weight if self.centre is None else self.weight - self.centre
        total = (of_question * moved.square()).sum()
        if self.kind == "choices":
            total = total + config.slots_ridge * self.slots.square().sum()
            total = total + (of_question * self.bias.square()).sum()
        return self.strength * total


class PreprocessedObservation(NamedTuple):
    """Fusion's observations after all computations that involve no parameter."""

    evidence: Evidence | None
    """The outputs that the log-linear core reads; None without a core."""
    standard: Tensor | None
    """(B, N·C+k) the observations, standardised, for a network or a soft vote"""
    question: Tensor
    """(B, G) the question features"""
    open: Tensor
    """(B, C) whether the slot exists"""


class Fusion(nn.Module):
    """Fusion's policy: a log-linear core or a soft vote, and possibly a network whose logits are added."""

    def __init__(self, sizes: Sizes, config: PoolConfig, generator: torch.Generator, kind: Kind) -> None:
        super().__init__()
        shape = config.shape
        self.sizes, self.vote_weight = sizes, shape.vote_weight
        self.n_outputs = sizes.models * sizes.slots
        self.standardiser = Standardiser(sizes)
        self.core = LogLinearCore(sizes, kind) if shape.log_linear else None
        widths = [self.n_outputs + sizes.past_rewards, *shape.fusion_hidden, sizes.slots]
        with_network = bool(shape.fusion_hidden) or not shape.log_linear
        self.network = mlp(widths, generator, shape.actor_gain) if with_network else None

    def fit_scales(self, outputs: Tensor, is_open: Tensor, train: Dataset, start: float) -> None:
        """Sets scales and the core's weights from all models' outputs (T, N, C) and which slots exist (T, C).

        The weights sum to `start`.
        """
        self.standardiser.learn(outputs)
        if self.core is not None:
            self.core.learn(outputs, is_open, accuracies(torch.tensor(train.correct)), start)

    def forward(self, observation: Tensor, is_open: Tensor) -> Tensor:
        """(B, C) logits from o^Fus (B, N·C+k+G); -inf where `is_open` (B, C) is false."""
        return self.logits(self.preprocess(observation, is_open))

    @torch.no_grad()
    def preprocess(self, observation: Tensor, is_open: Tensor) -> PreprocessedObservation:
        """Computes the part of the logits that involves no parameter, once for several updates."""
        seen = None if self.core is None else self.core.evidence(self._read_outputs(observation), is_open)
        standard = None
        if self.core is None or self.network is not None:
            standard = self.standardiser(observation[:, : self._n_seen])
        return PreprocessedObservation(seen, standard, observation[:, self._n_seen :], is_open)

    def logits(self, inputs: PreprocessedObservation) -> Tensor:
        """(B, C) logits, -inf for slots that do not exist."""
        logits = self._reward_free_logits(inputs)
        if self.network is not None:
            logits = logits + self.network(inputs.standard)
        return mask_closed(logits, inputs.open)

    def _reward_free_logits(self, inputs: PreprocessedObservation) -> Tensor:
        """(B, C) the part of the logits that does not depend on past rewards: the core's, or a soft vote."""
        if self.core is not None:
            steady: Tensor = self.core(inputs.evidence, inputs.question)
            return steady
        assert inputs.standard is not None
        standard = self._read_outputs(inputs.standard)
        size = standard.any(-1).sum(-1, keepdim=True).clamp(min=1)
        return self.vote_weight * standard.sum(1) / size

    def make_step_function(
        self, outputs: Tensor, is_open: Tensor, question: Tensor
    ) -> Callable[[int, Tensor], Tensor]:
        """A function from step t and the past rewards (B, k) to logits (B, C), for outputs (L, B, N·C)."""
        shape = outputs.shape[:2]
        none_yet = outputs.new_zeros((*shape, self.sizes.past_rewards))
        observation = torch.cat([outputs, none_yet, question], -1).flatten(0, 1)
        inputs = self.preprocess(observation, is_open.flatten(0, 1))
        start = self._reward_free_logits(inputs).view(*shape, -1)
        if self.network is None:
            return lambda t, past_rewards: mask_closed(start[t], is_open[t])
        network, standard = self.network, inputs.standard
        first, rest = network[0], network[1:]
        assert isinstance(first, Linear)
        hidden, of_past = first(standard).view(*shape, -1), first.weight[self.n_outputs :]

        def logits(t: int, past_rewards: Tensor) -> Tensor:
            own: Tensor = rest(torch.addmm(hidden[t], past_rewards, of_past))
            return mask_closed(own + start[t], is_open[t])

        return logits

    @property
    def _n_seen(self) -> int:
        return self.n_outputs + self.sizes.past_rewards

    def _read_outputs(self, observation: Tensor) -> Tensor:
        """(B, N, C) the models' outputs in an observation."""
        return observation[:, : self.n_outputs].reshape(-1, self.sizes.models, self.sizes.slots)


class Networks(nn.Module):
    """The networks of the Decider, of Fusion and, if the settings have one, of the central critic."""

    def __init__(self, sizes: Sizes, config: PoolConfig, generator: torch.Generator, kind: Kind) -> None:
        super().__init__()
        self.sizes = sizes
        self.decider = Decider(sizes, config, generator)
        self.fusion = Fusion(sizes, config, generator, kind)
        self.critic = None
        if (hidden := config.shape.critic_hidden) is not None:
            widths = [sizes.decider + sizes.fusion + 1, *hidden, 1]
            self.critic = mlp(widths, generator)

    def critic_input(self, decider: Tensor, fusion: Tensor | None) -> Tensor:
        """(B, ...) the critic's input, which no update changes.

        In the global state, in which a document is answered, it is [o^Dec; standardised o^Fus; 1]. In the
        state in which the pool is chosen, zeros replace o^Fus and the 1.
        """
        if fusion is None:
            return nn.functional.pad(decider, (0, self.sizes.fusion + 1))
        asked = fusion.new_ones((len(fusion), 1))
        return torch.cat([decider, self.fusion.standardiser(fusion), asked], -1)


def accuracies(right: Tensor) -> Tensor:
    """(N,) accuracies from `right` (T, N), with one more document counted as right and one as wrong."""
    return (right.sum(0) + 1) / (len(right) + 2)


def _centre(outputs: Tensor, is_open: Tensor) -> Tensor:
    """(..., N, C) log-probs minus their mean over the open slots (..., C); 0 for closed slots."""
    is_open = is_open[..., None, :]
    logs = outputs.clamp(min=torch.finfo(torch.float32).tiny).log().clamp(min=MIN_LOGPROB)
    logs = torch.where(is_open, logs, 0)
    mean = logs.sum(-1, keepdim=True) / is_open.sum(-1, keepdim=True).clamp(min=1)
    return torch.where(is_open, logs - mean, 0)
