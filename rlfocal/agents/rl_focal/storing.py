"""Agents of `rl_focal` as named tensors and a header, and back."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Literal

import torch
from pydantic import model_validator
from torch import Tensor

from rlfocal.agents.rl_focal.agents import RLFocalAgents
from rlfocal.agents.rl_focal.config import RLFocalConfig
from rlfocal.agents.rl_focal.networks import Networks
from rlfocal.agents.rl_focal.questions import Questions, limits
from rlfocal.agents.shared.networks import Sizes
from rlfocal.agents.storage.layout import refuse_misfits
from rlfocal.agents.storage.stored_networks import (
    NetworksHeader,
    network_tensors,
    read_memory,
    read_networks,
)
from rlfocal.agents.storage.stored_queries import query_layouts, query_tensors, read_queries


class RLFocalHeader(NetworksHeader):
    """Of `rl_focal`."""

    method: Literal["rl_focal"] = "rl_focal"
    config: RLFocalConfig
    tasks: tuple[str, ...]
    """That the agents know from one another."""

    @model_validator(mode="after")
    def _fits(self) -> RLFocalHeader:
        config = self.config
        slots = config.answer_slots if self.kind == "answers" else max(self.sizes.slots, 1)
        least = 1 + len(self.tasks) + len(limits(config, len(self.models))) if config.sees_questions else 0
        most = least + config.word_directions if config.sees_questions else 0
        expected = Sizes(len(self.models), slots, config.n_observed, config.past_rewards, self.sizes.question)
        if self.sizes != expected or not least <= self.sizes.question <= most:
            raise ValueError("its sizes are not those of its models and settings")
        if len(set(self.tasks)) < len(self.tasks):
            raise ValueError("a task is named twice")
        return self


def to_parts(agents: RLFocalAgents) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors, and what JSON can hold."""
    tensors = network_tensors(agents.networks, agents.memory)
    if agents.questions is not None:
        tensors |= query_tensors(agents.questions.queries)
    return tensors, RLFocalHeader.about(agents)


def from_parts(header: RLFocalHeader, tensors: Mapping[str, Tensor]) -> RLFocalAgents:
    """The inverse of `to_parts`. Raises UnusableError for tensors that are not such agents'."""
    of_queries = {name: value for name, value in tensors.items() if name.startswith("queries.")}
    rest = {name: value for name, value in tensors.items() if name not in of_queries}
    build = partial(Networks, header.sizes, header.config, [torch.Generator()], header.kind)
    networks = read_networks(build, rest)
    fields = header.fields()
    tasks, questions = fields.pop("tasks"), None
    if header.config.sees_questions:
        budgets = limits(header.config, len(header.models))
        n_words = header.sizes.question - 1 - len(tasks) - len(budgets)
        refuse_misfits(of_queries, query_layouts(n_words, n_words))
        questions = Questions(read_queries(of_queries), tasks, budgets)
    else:
        refuse_misfits(of_queries, {})
    return RLFocalAgents(networks=networks, memory=read_memory(header, rest), questions=questions, **fields)
