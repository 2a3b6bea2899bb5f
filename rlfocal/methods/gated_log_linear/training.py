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
from rlfocal.methods.rl_focal.environment import Memory, build_slots, slot_inputs, slots_kept
from rlfocal.methods.rl_focal.questions import fit_questions
from rlfocal.methods.rl_focal.training import finish, fit_and_judge, start, train_each

REMEMBERED = 500
"""Last train documents kept, from which the stand-ins for models that are down are chosen."""


def train(
    train_rows: Dataset,
    config: GatedConfig,
    seeds: Sequence[int],
    on_progress: Progress | None = None,
    kept: Path | None = None,
) -> list[GatedAgents]:
    """One pool and mask per seed, each fitted alone: the other seeds do not matter.

    It takes seconds, so nothing is kept of a training that is killed. Raises InputError as `check_train`
    does.
    """
    check_train(train_rows)

    def train_seed(seed: int, report: Progress) -> GatedAgents:
        return fit_and_judge(
            train_rows, config, seed, lambda rows, part: _fit(rows, config, seed, part), report
        )

    return train_each(seeds, train_seed, on_progress)


def _fit(rows: Dataset, config: GatedConfig, seed: int, report: Progress) -> GatedAgents:
    """One seed's pool and mask, whatever they are worth."""
    questions = fit_questions(rows, config)
    assert questions is not None
    n_slots = slots_kept(rows, config.answer_slots)
    probs, n_choices = slot_inputs(rows, n_slots)
    asked = probs.new_ones(probs.shape[:2])
    slots = build_slots(probs, n_choices, asked, rows.kind, n_slots)
    everyone = Everyone.of(slots, torch.tensor(rows.labels), questions.numbers(rows))
    memory = Memory(
        torch.tensor(rows.predictions[-REMEMBERED:]), torch.tensor(rows.labels[-REMEMBERED:]),
        torch.zeros(0), torch.ones(len(rows.models)),
    )  # fmt: skip
    generator = torch.Generator().manual_seed(seed)
    networks, floor = start(rows, config, questions, generator, slots)
    learner = GatedLearner(networks, config, everyone, questions, rows.kind)
    history: list[Episode] = []
    for at in range(config.steps):
        history.append(learner.step(at, generator))
        report((at + 1) / config.steps)
    return finish(
        GatedAgents, rows, networks, config, questions, memory, history, seed,
        learner.multiplier.is_binding, floor,
    )  # fmt: skip
