"""A log-linear ensemble with a learned mask of models, gated by the question, without reinforcement learning.

Ensemble and mask learn together, by exact expectations over train labels and all models' outputs. They share
one objective: the log-probability of the right slot, minus the pool's cost. The mask compares the pool with
and without each model, all else equal (the counterfactual baseline of COMA, Foerster et al., 2018). So it
also reads what models outside a sampled pool would have added.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from rlfocal.data.dataset import Dataset, Kind
from rlfocal.data.policy import Episode
from rlfocal.methods.learning.agents import Progress
from rlfocal.methods.learning.networks import Adam, branch_entropy, logistic_noise, mask_closed, sample_pool
from rlfocal.methods.rl_focal.agents import GatedAgents
from rlfocal.methods.rl_focal.config import GatedConfig
from rlfocal.methods.rl_focal.environment import Memory, Slots, build_slots, slot_inputs
from rlfocal.methods.rl_focal.networks import Networks
from rlfocal.methods.rl_focal.questions import Multiplier, Questions, to_decider
from rlfocal.methods.rl_focal.training import (
    TrainingSetup,
    finish_agents,
    fit_and_choose,
    prepare,
    start_training,
    train_each,
)

DOCUMENTS_PER_BUDGET = 3
"""The number of documents of which one is learned within a budget: the best of 2, 3 and 4 on train rows."""
MIN_LOG_SCORE = -8.0
"""The lowest log score, also that of a right slot that no model of the pool gave."""


class _TrainOutputs(NamedTuple):
    """The outputs of all models on each of T train documents, and the right slots."""

    outputs: Tensor
    """(T, N, C) the models' probabilities of each slot"""
    exists: Tensor
    """(T, C) whether the slot exists"""
    gold: Tensor
    """(T,) the right slot; -1 where no slot is right"""
    questions: Tensor
    """(T, G) the question features"""

    @classmethod
    def from_slots(cls, slots: Slots, labels: Tensor, questions: Tensor) -> _TrainOutputs:
        """The outputs, from the slots of documents about which all models were asked."""
        is_right = (slots.numbers == labels[:, None]) & slots.open
        gold = torch.where(is_right.any(-1), is_right.float().argmax(-1), -1)
        return cls(slots.distributions, slots.open, gold, questions)


class _GatedLearner:
    """Learns the ensemble and the mask by gradient steps, each on newly sampled pools."""

    def __init__(
        self,
        networks: Networks,
        config: GatedConfig,
        outputs: _TrainOutputs,
        questions: Questions,
        kind: Kind,
    ) -> None:
        assert networks.fusion.core is not None
        self.networks, self.config, self.everyone, self.kind = networks, config, outputs, kind
        self.columns, self.core = questions.columns, networks.fusion.core
        self.multiplier = Multiplier(questions.budgets, config.mean_pool)
        mask = nn.ParameterList([networks.decider.question])
        self.optimiser = Adam(
            [self.core, mask], [config.core_rate, config.question_rate], config.max_grad_norm
        )

    def step(self, number: int, generator: torch.Generator) -> Episode:
        """Takes gradient step `number`, at rates that fall linearly to 0, and returns its figures."""
        config, columns = self.config, self.columns
        rows, told = self._batch(number)
        about = torch.cat([self.everyone.questions[rows, : -columns.budgets or None], told], -1)
        logits = to_decider(about, columns.budgets) @ self.networks.decider.question
        draws = torch.rand(logits.shape, generator=generator)
        pools = sample_pool(logits, logistic_noise(draws)).detach()
        within = torch.cat([told, 1 - told.sum(-1, keepdim=True)], -1).T  # (K, M)
        worth = self._weigh_pools(rows, about, pools, self.multiplier.values @ within)
        chances = torch.sigmoid(logits)
        self.multiplier.adapt(chances.detach().sum(-1), within)
        asks = (chances * worth.gain).sum(-1).mean()
        priors = self.core.penalty(config, columns) + self.networks.decider.penalty(config, columns)
        loss = -asks - worth.log_score.mean() + priors / len(self.everyone.gold)
        norms = self.optimiser.descend(loss, 1 - number / config.steps)
        free = within[-1] > 0
        earned = worth.reward[free].mean(), worth.chance[free].mean(), pools.sum(-1)[free].mean()
        reward, accuracy, size = (part.item() for part in earned)
        entropy = branch_entropy(logits.detach()).mean().item()
        norm = torch.stack(norms).square().sum().sqrt().item()
        return Episode(
            "joint", number, reward, accuracy, size, loss.item(), entropy=entropy, actor_grad_norm=norm
        )

    def _batch(self, step: int) -> tuple[Tensor, Tensor]:
        """(M,) evenly spaced documents, others in each step, and (M, budgets) the budget of each, one-hot."""
        n, budgets = len(self.everyone.gold), self.columns.budgets
        every = max(n // self.config.batch, 1)
        rows = torch.arange(step % every, n, every)
        turn = (torch.arange(len(rows)) + step) % max(DOCUMENTS_PER_BUDGET * budgets, 1)
        return rows, (turn[:, None] == DOCUMENTS_PER_BUDGET * torch.arange(budgets)).to(
            self.everyone.questions.dtype
        )

    def _weigh_pools(self, rows: Tensor, features: Tensor, pools: Tensor, multiplier: Tensor) -> PoolValues:
        everyone = self.everyone
        exists = everyone.exists[rows]
        added = self.core.contributions(self.core.evidence(everyone.outputs[rows], exists), features)
        given = everyone.outputs[rows] > 0 if self.kind == "answers" else None
        return weigh_pools(
            added, self.core.biases(features), pools, exists, given, everyone.gold[rows],
            self.config.size_penalty, multiplier[..., None],
        )  # fmt: skip


class PoolValues(NamedTuple):
    """The value of each of M sampled pools on its document."""

    gain: Tensor
    """(M, N) log score minus costs with each model in the pool, less the same without it; detached"""
    log_score: Tensor
    """(M,) log-probability of the right slot; 0 where there is none"""
    chance: Tensor
    """(M,) probability of the right slot; detached"""
    reward: Tensor
    """(M,) the expectation of Eq (6) over answers; detached"""


def weigh_pools(
    contributions: Tensor, biases: Tensor, pools: Tensor, exists: Tensor, is_given: Tensor | None,
    gold: Tensor, size_penalty: float, multiplier: Tensor,
) -> PoolValues:  # fmt: skip
    """The value of each of M sampled pools on its document.

    `contributions`: (M, N, C) what each model adds to the logits. `biases`: (M, C) or (). `pools`: (M, N).
    `exists`: (M, C) which slots exist. `is_given`: (M, N, C) which slots each model gave, for free answers.
    `gold`: (M,) the right slot, -1 for none. `multiplier`: (M, 1) a factor on the pool's size.

    The value is log π(gold) - (α (1 - π(gold)) + multiplier) m/N. A pool without models has the log score
    `MIN_LOG_SCORE`.
    """
    n_models = pools.shape[-1]
    gold_slot, is_open = gold.clamp(min=0)[:, None], exists
    logits = (contributions * pools[..., None]).sum(1) + biases
    if is_given is not None:
        is_open = (is_given * pools[..., None]).sum(1) > 0
    has_gold = (gold >= 0) & is_open.gather(-1, gold_slot)[:, 0] & pools.any(-1)
    scores = torch.log_softmax(mask_closed(logits, is_open), -1)
    log_score = torch.where(has_gold, scores.gather(-1, gold_slot)[:, 0], 0)
    with torch.no_grad():
        chance = torch.where(has_gold, log_score.exp(), 0)
        share = pools.sum(-1) / n_models
        reward = torch.where(pools.any(-1), 1 - (1 - chance) * (2 + size_penalty * share), -1)
        without = logits[:, None] - pools[..., None] * contributions  # (M, N, C)
        others = pools.sum(-1, keepdim=True) - pools
        earned = []
        for asked in (0, 1):
            here, opened = without + asked * contributions, exists[:, None].expand_as(without)
            if is_given is not None:
                votes = (is_given * pools[..., None]).sum(1)[:, None] - is_given * pools[..., None]
                opened = (votes + asked * is_given) > 0
            of_gold = gold_slot[..., None].expand(*pools.shape, 1)
            score = torch.log_softmax(mask_closed(here, opened), -1).gather(-1, of_gold)[..., 0]
            nobody = (others + asked == 0) | (gold < 0)[:, None] | ~opened.gather(-1, of_gold)[..., 0]
            score = torch.where(nobody, MIN_LOG_SCORE, score.clamp(min=MIN_LOG_SCORE))
            cost = (size_penalty * (1 - score.exp()) + multiplier) * (others + asked) / n_models
            earned.append(score - cost)
    return PoolValues(earned[1] - earned[0], log_score, chance, reward)


# ---- fitting it to train rows


MAX_REMEMBERED_DOCUMENTS = 500
"""The most train documents in `memory`, by which stand-ins are chosen for models that are down."""


def train(
    train_rows: Dataset,
    config: GatedConfig,
    seeds: Sequence[int],
    on_progress: Progress | None = None,
    folder: Path | None = None,
) -> list[GatedAgents]:
    """Fits one ensemble and mask per seed, each independently of the other seeds.

    Nothing is saved in `folder`, because a fit takes only seconds. Raises InputError for a pool of one model
    or fewer than two train documents.
    """
    prepared = prepare(train_rows, config)

    def train_seed(seed: int, report: Progress) -> GatedAgents:
        return fit_and_choose(prepared, config, seed, lambda of, part: _fit(of, config, seed, part), report)

    return train_each(seeds, train_seed, on_progress)


def _fit(setup: TrainingSetup, config: GatedConfig, seed: int, report: Progress) -> GatedAgents:
    """One seed's ensemble and mask, before any fallback is considered."""
    rows, questions = setup.rows, setup.questions
    assert questions is not None
    n_slots = setup.sizes.slots
    probs, n_choices = slot_inputs(rows, n_slots)
    asked = probs.new_ones(probs.shape[:2])
    slots = build_slots(probs, n_choices, asked, rows.kind, n_slots)
    everyone = _TrainOutputs.from_slots(slots, torch.tensor(rows.labels), questions.numbers(rows))
    last = slice(-MAX_REMEMBERED_DOCUMENTS, None)
    memory = Memory(
        torch.tensor(rows.predictions[last]), torch.tensor(rows.labels[last]),
        torch.zeros(0), torch.ones(len(rows.models)),
    )  # fmt: skip
    generator = torch.Generator().manual_seed(seed)
    networks = start_training(setup, config, generator, slots)
    learner = _GatedLearner(networks, config, everyone, questions, rows.kind)
    history: list[Episode] = []
    for step in range(config.steps):
        history.append(learner.step(step, generator))
        report((step + 1) / config.steps)
    return finish_agents(
        GatedAgents, setup, networks, config, memory, history, seed, learner.multiplier.is_binding
    )
