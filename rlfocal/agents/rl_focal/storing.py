"""Agents that choose one pool per document as named tensors and a header, and back."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Literal

import torch
from pydantic import model_validator
from torch import Tensor

from rlfocal.agents.rl_focal.agents import GatedAgents, LiteralAgents, PoolAgents, RLFocalAgents
from rlfocal.agents.rl_focal.config import GatedConfig, RLFocalConfig
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


class PoolHeader(NetworksHeader):
    """Of agents that choose one pool per document."""

    config: Any
    tasks: tuple[str, ...]
    """Train tasks that the agents tell apart."""

    @model_validator(mode="after")
    def _fits(self) -> PoolHeader:
        config = self.config
        slots = config.answer_slots if self.kind == "answers" else max(self.sizes.slots, 1)
        least = 1 + len(self.tasks) + len(limits(config, len(self.models))) if config.sees_questions else 0
        most = least + config.word_directions if config.sees_questions else 0
        shape = len(self.models), slots, len(config.metrics), config.past_rewards
        if self.sizes != Sizes(*shape, self.sizes.question) or not least <= self.sizes.question <= most:
            raise ValueError("its sizes are not those of its models and settings")
        if len(set(self.tasks)) < len(self.tasks):
            raise ValueError("a task is named twice")
        return self


class RLFocalHeader(PoolHeader):
    method: Literal["rl_focal"] = "rl_focal"
    config: RLFocalConfig


class LiteralHeader(PoolHeader):
    method: Literal["rl_focal_literal"] = "rl_focal_literal"
    config: RLFocalConfig


class GatedHeader(PoolHeader):
    method: Literal["gated_log_linear"] = "gated_log_linear"
    config: GatedConfig


_AGENTS = {one.method: one for one in (RLFocalAgents, LiteralAgents, GatedAgents)}
_HEADERS: dict[str, type[PoolHeader]] = {
    header.model_fields["method"].default: header for header in (RLFocalHeader, LiteralHeader, GatedHeader)
}


def to_parts(agents: PoolAgents) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors, and what JSON can hold."""
    tensors = network_tensors(agents.networks, agents.memory)
    if agents.questions is not None:
        tensors |= query_tensors(agents.questions.queries)
    return tensors, _HEADERS[agents.method].about(agents)


def from_parts(header: PoolHeader, tensors: Mapping[str, Tensor]) -> PoolAgents:
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
    memory = read_memory(header, rest)
    return _AGENTS[header.method](networks=networks, memory=memory, questions=questions, **fields)
