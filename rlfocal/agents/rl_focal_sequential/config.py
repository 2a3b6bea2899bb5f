"""What can be set about `rl_focal_sequential`. Defaults were chosen on train rows (docs/agents.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from rlfocal.errors import InputError, unknown

_LONG = 2_000
"""Train documents from which three parts serve as well as five."""
REVISION = 5
"""Raised whenever the same settings train other agents, so that earlier ones do not stand for them."""

Recipe = tuple[float, float, float, float]
"""Ridges on the models' outputs slot by slot, the question's surface, its words, and on how much its words
shift the models' weights; 0 leaves that part out."""


@dataclass(frozen=True)
class SequentialConfig:
    """Raises InputError for a value that cannot work."""

    mean_pool: float = 6.0
    """Models asked per document, at most, on the average over train."""
    size_penalty: float = 0.0
    """What asking the whole pool costs, where being right earns 1; raised until `mean_pool` is met."""
    folds: int = 5
    """Parts of train; what decides about a part is fitted on the others."""
    shared_ridge: float = 5.0
    """Ridge on the weights that Fusion shares among slots, one per model."""
    task_ridge: float = 30.0
    """Ridge on what is particular to a task; a task that train did not have gets none of it."""
    recipes: tuple[Recipe, ...] = (
        (100, 0, 0, 0), (30, 0, 0, 0), (300, 0, 0, 0), (100, 30, 0, 0), (100, 3, 0, 0), (100, 0, 3, 0),
        (100, 0, 0.5, 0), (100, 30, 1, 0), (100, 0, 0, 500), (100, 30, 0, 500), (100, 0, 3, 500),
    )  # fmt: skip
    """Regularisations that Fusion mixes, by how well each does on the held-out parts of train."""
    word_directions: int = 60
    """Principal directions of the questions' words."""
    gate_directions: int = 4
    """The first of them, along which the models' weights may shift."""

    def __post_init__(self) -> None:
        at_least = {"mean_pool": 1, "size_penalty": 0, "folds": 2, "word_directions": 0, "gate_directions": 0}
        for name, least in at_least.items():
            if getattr(self, name) < least:
                raise InputError(
                    f"SequentialConfig.{name} is {getattr(self, name)}; it must be at least {least}"
                )
        for name in ("shared_ridge", "task_ridge"):
            if not getattr(self, name) > 0:
                raise InputError(f"SequentialConfig.{name} is {getattr(self, name)}; it must be positive")
        if not self.recipes or any(len(r) != 4 or r[0] <= 0 or min(r) < 0 for r in self.recipes):
            raise InputError(
                f"SequentialConfig.recipes is {self.recipes}; give quadruples of ridges, the first positive"
            )

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> SequentialConfig:
        """The inverse of `to_dict`. Raises InputError for a field that does not exist."""
        known = [field.name for field in fields(cls)]
        for name in values:
            if name not in known:
                raise unknown("setting", name, known, "SequentialConfig")
        plain: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in values.items()}
        if "recipes" in plain:
            plain["recipes"] = tuple(tuple(recipe) for recipe in plain["recipes"])
        return cls(**plain)


def sequential_config(n_train: int) -> SequentialConfig:
    """`rl_focal_sequential` on as many train rows: fewer, larger parts of a long stream are held out."""
    return SequentialConfig(folds=5 if n_train < _LONG else 3)
