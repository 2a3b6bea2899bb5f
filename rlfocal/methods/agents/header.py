"""What a checkpoint of any variant stores beside its tensors; types and ranges are checked on reading."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from rlfocal.data.dataset import Kind
from rlfocal.data.policy import PHASES, Episode


def _happened(episode: Episode) -> Episode:
    if episode.phase not in PHASES or episode.episode < 0:
        raise ValueError(f"there is no episode {episode.episode} of the phase {episode.phase!r}")
    if not 0 <= episode.accuracy <= 1 or episode.mean_pool_size < 0:
        raise ValueError(f"accuracy {episode.accuracy}, models asked {episode.mean_pool_size}")
    return episode


Name = Annotated[str, Field(min_length=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0, lt=2**63)]
Some = Annotated[int, Field(gt=0, lt=2**31)]


class Header(BaseModel):
    """The fields that every variant stores."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)

    method: str
    benchmark: Name
    kind: Kind
    models: Annotated[tuple[Name, ...], Field(min_length=2)]
    seed: Count
    snapshot: Count
    history: tuple[Annotated[Episode, AfterValidator(_happened)], ...]

    @model_validator(mode="after")
    def _names_differ(self) -> Header:
        if len(set(self.models)) < len(self.models):
            raise ValueError("a model is named twice")
        return self

    @classmethod
    def about(cls, agents: Any) -> dict[str, Any]:
        """The fields to write for these agents."""
        fields = {name: getattr(agents, name) for name in cls.model_fields if name != "method"}
        return fields | {"method": cls.model_fields["method"].default, "config": asdict(agents.config)}

    def fields(self) -> dict[str, Any]:
        """The agents' fields that are not tensors."""
        return {name: value for name, value in self if name != "method"}
