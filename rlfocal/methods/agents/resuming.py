"""What a killed training run resumes from: one file per group of seeds, rewritten at intervals."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import Episode
from rlfocal.methods.agents.optimiser import StackedAdam
from rlfocal.methods.agents.tensorfiles import TRAINING, UnusableError, read_tensors, under, write_tensors

EVERY = 5
"""Episodes between two saves."""


class Position(NamedTuple):
    """How far a training run has come."""

    phase: str
    episode: int
    """finished episodes of this phase"""
    history: list[list[Episode]]
    """all finished episodes, per seed"""

    @classmethod
    def start(cls, n_seeds: int) -> Position:
        return cls("decider", 0, [[] for _ in range(n_seeds)])

    def episodes_of(self, phase: str) -> int:
        """Finished episodes of a phase; all of them once the phase is over."""
        return sum(episode.phase == phase for episode in self.history[0])

    def after(self, phase: str, episodes: Sequence[Episode]) -> Position:
        """The position one episode later."""
        history = [[*of_seed, row] for of_seed, row in zip(self.history, episodes, strict=True)]
        return Position(phase, episodes[0].episode + 1, history)


@dataclass(frozen=True)
class Unfinished:
    """The file of one group of seeds; its name is a hash of the data, settings and seeds."""

    path: Path

    @classmethod
    def beside(
        cls, folder: Path, revision: int, rows: Dataset, seeds: Sequence[int], settings: Any
    ) -> Unfinished:
        about = json.dumps([revision, rows.fingerprint(), list(seeds), asdict(settings)])
        return cls(folder / f"unfinished-{sha256(about.encode()).hexdigest()[:16]}.safetensors")

    def read(self) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
        """What was written last; None without a complete file."""
        try:
            return read_tensors(self.path, TRAINING)
        except UnusableError:
            return None

    def write(self, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
        write_tensors(self.path, tensors, TRAINING, about)

    def forget(self) -> None:
        """Deletes the file, once training is done."""
        self.path.unlink(missing_ok=True)


@dataclass
class Kept:
    """Saves training that runs in episodes: the networks, their optimiser, and each seed's random state."""

    file: Unfinished
    n_seeds: int
    every: int = EVERY

    def is_due(self, position: Position) -> bool:
        return len(position.history[0]) % self.every == 0

    def position(self) -> Position:
        """The position saved in the file; the very start without a complete file."""
        found = self.file.read()
        if found is None:
            return Position.start(self.n_seeds)
        about = found[0]
        history = [[Episode(*row) for row in of_seed] for of_seed in about["history"]]
        return Position(about["phase"], about["episode"], history)

    def restore(
        self, agents: nn.Module, optimiser: StackedAdam, generators: Sequence[torch.Generator]
    ) -> dict[str, Tensor]:
        """Restores everything as it was at `position`; returns what else was saved then."""
        found = self.file.read()
        assert found is not None
        tensors = found[1]
        agents.load_state_dict(under("agents.", tensors))
        optimiser.restore(under("adam.", tensors))
        for at, generator in enumerate(generators):
            generator.set_state(tensors[f"generator.{at}"])
        return under("rest.", tensors)

    def save(
        self,
        position: Position,
        agents: nn.Module,
        optimiser: StackedAdam,
        generators: Sequence[torch.Generator],
        rest: Mapping[str, Tensor] | None = None,
    ) -> None:
        tensors = {f"agents.{name}": value for name, value in agents.state_dict().items()}
        tensors |= {f"adam.{name}": value for name, value in optimiser.state().items()}
        tensors |= {f"generator.{at}": g.get_state() for at, g in enumerate(generators)}
        tensors |= {f"rest.{name}": value for name, value in (rest or {}).items()}
        self.file.write(tensors, position._asdict())
