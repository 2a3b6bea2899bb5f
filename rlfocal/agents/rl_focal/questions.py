"""What both agents know of a question before anybody is asked: its task, and where its words lie."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from rlfocal.agents.rl_focal.config import RLFocalConfig
from rlfocal.agents.shared.queries import QueryFeatures, fit_queries
from rlfocal.calls import Calls
from rlfocal.dataset import Dataset


class Questions(NamedTuple):
    """How questions become G numbers: 1, which of train's tasks it is, the first directions of its words."""

    queries: QueryFeatures
    tasks: tuple[str, ...]
    """Those of train, where it has several; a task that train did not have is none of them."""

    @property
    def size(self) -> int:
        """G"""
        return 1 + len(self.tasks) + len(self.queries.gate_scale)

    def numbers(self, documents: Dataset | Calls) -> Tensor:
        """(T, G)"""
        return self.of(documents.questions or ("",) * len(documents), documents.tasks.tolist())

    def of(self, questions: tuple[str, ...], tasks: list[str]) -> Tensor:
        """(T, G) of questions and their tasks; without a text, no words."""
        rows = np.zeros((len(tasks), self.size), dtype=np.float32)
        rows[:, 0] = 1.0
        place = {task: 1 + at for at, task in enumerate(self.tasks)}
        for row, task in zip(rows, tasks, strict=True):
            if task in place:
                row[place[task]] = 1.0
        if len(self.queries.gate_scale):
            rows[:, 1 + len(self.tasks) :] = self.queries.gates(self.queries.words(questions))
        return torch.from_numpy(rows)


def fit_questions(train: Dataset, config: RLFocalConfig) -> Questions | None:
    """From train questions, without labels; None where the agents do not look at questions."""
    if not config.sees_questions:
        return None
    tasks = tuple(dict.fromkeys(train.tasks.tolist()))
    texts = train.questions or ("",) * len(train)
    directions = config.word_directions
    return Questions(fit_queries(texts, directions, directions, 0), tasks if len(tasks) > 1 else ())
