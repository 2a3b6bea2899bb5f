"""What a regeneration can be asked for."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Annotated

from flows import REPORT
from rlfocal.base.request import Option, Seeds
from rlfocal.extraction.request import PoolRequest


@dataclass(frozen=True)
class RegenerationRequest(PoolRequest):
    """A pool to extract, to train and evaluate on, and to report."""

    _: KW_ONLY
    minutes_per_model: Annotated[
        int | None,
        Option(
            "The time limit of each try to extract a model, in minutes; one that takes longer is stopped, "
            "and what it committed stays.",
            1,
            default="none",
        ),
    ] = None
    seeds: Seeds = 3
    report: Annotated[str, Option("The HTML report to write.", flags=("--output", "-o"))] = str(REPORT)
