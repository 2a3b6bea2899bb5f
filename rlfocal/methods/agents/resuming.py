"""What a killed training run resumes from: one file per group of seeds, rewritten at intervals."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from torch import Tensor

from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import Episode
from rlfocal.methods.agents.tensorfiles import TRAINING, UnusableError, read_tensors, write_tensors

EVERY = 5
"""Episodes between two saves."""


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

    def history(self, n_seeds: int) -> list[list[Episode]]:
        """The episodes that each seed had finished when they were saved; none without a complete file."""
        found = self.read()
        history = [[]] * n_seeds if found is None else found[0]["history"]
        return [[Episode(*row) for row in of_seed] for of_seed in history]

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
