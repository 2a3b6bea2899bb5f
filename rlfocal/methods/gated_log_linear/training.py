"""Fitting `gated_log_linear` to train rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import Episode
from rlfocal.methods.gated_log_linear import Everyone, GatedLearner
from rlfocal.methods.learning.agents import Progress, check_train
from rlfocal.methods.rl_focal.agents import GatedAgents
from rlfocal.methods.rl_focal.config import GatedConfig
from rlfocal.methods.rl_focal.environment import Memory, build_slots, network_sizes, slot_inputs, slots_kept
from rlfocal.methods.rl_focal.networks import Networks
from rlfocal.methods.rl_focal.questions import fit_questions
from rlfocal.methods.rl_focal.training import agents_of_seeds, train_in_groups

REMEMBERED = 500
"""Last train documents kept, from which the stand-ins for models that are down are chosen."""


def train(
    train_rows: Dataset,
    config: GatedConfig,
    seeds: Sequence[int],
    on_progress: Progress | None = None,
    kept: Path | None = None,
) -> list[GatedAgents]:
    """One pool and mask per seed, trained side by side; a seed's result does not depend on the others.

    It takes seconds, so nothing is kept of a training that is killed. Raises InputError as `check_train`
    does.
    """
    check_train(train_rows)
    questions = fit_questions(train_rows, config)
    assert questions is not None
    n_slots = slots_kept(train_rows, config.answer_slots)
    probs, n_choices = slot_inputs(train_rows, n_slots)
    asked = probs.new_ones((1, *probs.shape[:2]))
    slots = build_slots(probs, n_choices, asked, train_rows.kind, n_slots)
    everyone = Everyone.of(slots, torch.tensor(train_rows.labels), questions.numbers(train_rows))
    memory = Memory(
        torch.tensor(train_rows.predictions[-REMEMBERED:]),
        torch.tensor(train_rows.labels[-REMEMBERED:]),
        torch.zeros(0),
        torch.ones(len(train_rows.models)),
    )

    def train_group(group: Sequence[int], report: Progress) -> list[GatedAgents]:
        generators = [torch.Generator().manual_seed(seed) for seed in group]
        networks = Networks(network_sizes(train_rows, config, questions), config, generators, train_rows.kind)
        networks.fusion.fit_scales(everyone.outputs, everyone.exists, train_rows, config.log_linear_start)
        learner = GatedLearner(networks, config, everyone, questions, train_rows.kind)
        history: list[list[Episode]] = [[] for _ in group]
        for at in range(config.steps):
            for of_seed, episode in zip(history, learner.step(at, generators), strict=True):
                of_seed.append(episode)
            report((at + 1) / config.steps)
        return agents_of_seeds(
            GatedAgents, train_rows, networks, config, questions, [memory] * len(group), history, group,
            learner.multiplier.is_binding,
        )  # fmt: skip

    return train_in_groups(seeds, train_group, on_progress)
