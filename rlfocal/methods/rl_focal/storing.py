"""Agents that choose one pool per document as named tensors and a header, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch
from pydantic import model_validator
from torch import Tensor

from rlfocal.methods.agents.header import Header
from rlfocal.methods.agents.layout import (
    Layout,
    layout,
    query_layouts,
    query_tensors,
    read_queries,
    refuse_misfits,
)
from rlfocal.methods.agents.networks import Sizes
from rlfocal.methods.agents.stream import Memory
from rlfocal.methods.agents.tensorfiles import UnusableError, under
from rlfocal.methods.rl_focal.agents import GatedAgents, LiteralAgents, NetworkAgents, RLFocalAgents
from rlfocal.methods.rl_focal.artefacts import ReleasedConfig
from rlfocal.methods.rl_focal.config import GatedConfig, RLFocalConfig
from rlfocal.methods.rl_focal.networks import Networks
from rlfocal.methods.rl_focal.questions import Questions, limits
from rlfocal.methods.rl_focal.released_agents import ReleasedAgents

_SLOTS = 10_000
"""More slots than any document has: looking back on train rows allocates as many as a file names."""
_MEMORY = tuple(f"memory.{name}" for name in Memory._fields)


class PoolHeader(Header):
    """Of agents that choose one pool per document."""

    config: Any
    sizes: Sizes
    tasks: tuple[str, ...]
    """Train tasks that the agents tell apart."""

    @model_validator(mode="after")
    def _fits(self) -> PoolHeader:
        config = self.config
        slots = config.answer_slots if self.kind == "answers" else max(self.sizes.slots, 1)
        least = 1 + len(self.tasks) + len(limits(config, len(self.models))) if config.sees_questions else 0
        most = least + config.word_directions if config.sees_questions else 0
        shape = len(self.models), slots, config.n_observed, config.past_rewards
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


class ReleasedHeader(PoolHeader):
    method: Literal["rl_focal_released"] = "rl_focal_released"
    config: ReleasedConfig


class GatedHeader(PoolHeader):
    method: Literal["gated_log_linear"] = "gated_log_linear"
    config: GatedConfig


_AGENTS = {one.method: one for one in (RLFocalAgents, LiteralAgents, ReleasedAgents, GatedAgents)}
_HEADERS: dict[str, type[PoolHeader]] = {
    header.model_fields["method"].default: header
    for header in (RLFocalHeader, LiteralHeader, ReleasedHeader, GatedHeader)
}


def to_parts(agents: NetworkAgents) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors, and what JSON can hold."""
    tensors = {f"agents.{name}": value for name, value in agents.networks.state_dict().items()}
    tensors |= {f"memory.{name}": value for name, value in agents.memory._asdict().items()}
    if agents.questions is not None:
        tensors |= query_tensors(agents.questions.queries)
    return tensors, _HEADERS[agents.method].about(agents)


def from_parts(header: PoolHeader, tensors: Mapping[str, Tensor]) -> Any:
    """The inverse of `to_parts`. Raises UnusableError for tensors that are not such agents'."""
    networks, n_words = _unfilled(header), 0
    wanted = {f"agents.{name}": layout(value) for name, value in networks.state_dict().items()}
    wanted |= _memory_layouts(header, tensors)
    fields = header.fields()
    tasks, questions = fields.pop("tasks"), None
    budgets = limits(header.config, len(header.models))
    if header.config.sees_questions:
        n_words = header.sizes.question - 1 - len(tasks) - len(budgets)
        wanted |= query_layouts(n_words, n_words)
    refuse_misfits(tensors, wanted)
    networks.load_state_dict(under("agents.", tensors), assign=True)
    if header.config.sees_questions:
        questions = Questions(read_queries(tensors), tasks, budgets)
    memory = _checked(Memory(*(tensors[name] for name in _MEMORY)))
    return _AGENTS[header.method](networks=networks, memory=memory, questions=questions, **fields)


def _unfilled(header: PoolHeader) -> Networks:
    """Networks that allocate no memory, before the tensors are known to be the right ones."""
    try:
        with torch.device("meta"):
            return Networks(header.sizes, header.config, [torch.Generator()], header.kind)
    except (RuntimeError, TypeError) as error:
        raise UnusableError("is not a valid checkpoint: its layers have impossible sizes") from error


def _memory_layouts(header: PoolHeader, tensors: Mapping[str, Tensor]) -> dict[str, Layout]:
    n, w = len(header.models), tensors[_MEMORY[1]].numel() if _MEMORY[1] in tensors else 0
    layouts = (torch.int64, (w, n)), (torch.int64, (w,)), (torch.float32, (header.sizes.past_rewards,))
    return dict(zip(_MEMORY, (*layouts, (torch.float32, (n,))), strict=True))


def _checked(memory: Memory) -> Memory:
    """Raises UnusableError for answers or a pool that cannot be."""
    slots = torch.cat([memory.predictions.flatten(), memory.labels])
    if not len(memory.labels) or slots.min() < -1 or slots.max() >= _SLOTS:
        raise UnusableError("is not a valid checkpoint (memory: no such answers)")
    if not ((memory.pool == 0) | (memory.pool == 1)).all():
        raise UnusableError("is not a valid checkpoint (memory: no such pool)")
    return memory
