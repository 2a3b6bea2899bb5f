"""What each artefact of the released code is worth: trained and scored without one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from rlfocal.agents.released.config import ARTEFACTS, Artefacts, ReleasedConfig, released_config
from rlfocal.agents.released.stream import is_answerable
from rlfocal.agents.released.training import train
from rlfocal.dataset import Dataset
from rlfocal.methods.base import Decisions

FIRST_SCORED = 2
"""The first test document that the released code scores."""


class Worth(NamedTuple):
    """Test figures of one seed, frozen, with one artefact switched off."""

    without: str
    """The artefact that is off; "" for none, "all" for all."""
    seed: int
    accuracy: float
    """right answers / documents, whatever is switched on"""
    released_accuracy: float
    """as the released code would have counted"""
    mean_pool_size: float


def artefact_worth(
    dataset: Dataset,
    seeds: Sequence[int],
    config: ReleasedConfig | None = None,
    artefacts: Sequence[str] = ARTEFACTS,
    on_progress: Callable[[float], None] | None = None,
) -> list[Worth]:
    """A row per seed of the released behaviour, of it without each artefact in turn, and of none of them.

    Raises InputError for an artefact that does not exist, or train rows too few for the window.
    """
    train_rows, test = dataset.train, dataset.test
    settings = config or released_config(len(train_rows))
    switches = {"": Artefacts()} | {name: Artefacts.without(name) for name in artefacts}
    switches["all"] = Artefacts(**dict.fromkeys(ARTEFACTS, False))
    rows = []
    for done, (name, artefact) in enumerate(switches.items(), start=1):
        tried = replace(settings, artefacts=artefact)
        for policy in train(train_rows, tried, seeds):
            decisions = policy.decide(test)
            rows.append(
                Worth(
                    name,
                    policy.seed,
                    float(((decisions.predictions == test.labels) & (test.labels >= 0)).mean()),
                    released_accuracy(decisions, test, tried),
                    float(decisions.pools.sum(axis=1).mean()),
                )
            )
        if on_progress is not None:
            on_progress(done / len(switches))
    return rows


def released_accuracy(decisions: Decisions, test: Dataset, config: ReleasedConfig) -> float:
    """As the released code counts: unanswerable questions dropped, the first two of the rest not scored, and
    the right ones divided by the last index, one less than their number. NaN for fewer than two."""
    scored = np.flatnonzero(is_answerable(test, config).numpy())[FIRST_SCORED:]
    right = (decisions.predictions[scored] == test.labels[scored]).sum()
    return float(right / (len(scored) - 1)) if len(scored) > 1 else float("nan")
