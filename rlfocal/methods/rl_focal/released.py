"""What the released code observes and earns in another way than the paper, each artefact a switch."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from rlfocal.base.errors import InputError
from rlfocal.data.dataset import Dataset, Kind
from rlfocal.data.policy import Decisions
from rlfocal.methods.agents.slots import Slots, build_slots
from rlfocal.methods.agents.stream import Stream, slots_kept
from rlfocal.methods.rl_focal.artefacts import ReleasedConfig
from rlfocal.statistics.metrics import METRICS, focal_correlations
from rlfocal.statistics.windows import Window

FIRST_SCORED = 2
"""The first test document that the released code scores."""


class ReleasedStream(Stream):
    """The train stream as the released code sees it."""

    def __init__(self, *args: Any, config: ReleasedConfig, **named: Any) -> None:
        super().__init__(*args, **named)
        self.config = config

    def metrics(self, pools: Tensor, end: int, stride: int = 1) -> Tensor:
        return super().metrics(pools, max(end - self.config.artefacts.lagged_window, 0), stride)

    def slots(self, pools: Tensor, rows: Tensor) -> Slots:
        return slots(self.probs[rows], self.n_choices[rows], pools, self.kind, self.n_slots, self.config)


def slots(
    probs: Tensor, n_choices: Tensor, pools: Tensor, kind: Kind, keep: int, config: ReleasedConfig
) -> Slots:
    """What Fusion sees of the pools, as `build_slots` tells. It may answer slots that do not exist."""
    if kind == "answers" and not config.artefacts.slots_of_all_models:
        seen, _, at = build_slots(probs, n_choices, pools, kind, keep)
    else:
        seen = pad(probs[..., :keep], (0, max(0, keep - probs.shape[2]))) * pools[..., None]
        index = torch.arange(keep)
        at = torch.where(index < n_choices[:, None], index, -1).expand(*pools.shape[:2], -1)
    if config.artefacts.exp_of_probabilities:
        seen = seen.exp() * pools[..., None]
    return Slots(seen, torch.ones_like(at, dtype=torch.bool), at)


def metrics(window: Window, config: ReleasedConfig) -> Tensor:
    """(E, P, K) the pools' metrics as the Decider sees them; K is 1 for the weighted sum."""
    artefacts = config.artefacts
    columns = []
    for name in config.metrics:
        value = METRICS[name](window)
        if name == "focal_diversity" and artefacts.perfect_model_is_diverse:
            rho, fails = focal_correlations(window)
            value = (rho + window.members - fails).sum(-1) / window.size
        columns.append(value.nan_to_num(0, 0, 0))
    observed = torch.stack(columns, -1)
    if artefacts.metrics_as_one_scalar:
        observed = (observed * observed.new_tensor(config.weights)).sum(-1, keepdim=True)
    few = -99.0 if artefacts.minus_99_for_small_pools else 0.0
    return torch.where(window.size[..., None] < 2, few, observed)


def rewards(right: Tensor, pools: Tensor, config: ReleasedConfig, *, by_plurality: bool) -> Tensor:
    """(S, L, B, Q) as Eq (6) has them, but Fusion pays nothing for the pool's size."""
    penalty = config.size_penalty * pools.mean(-1)[..., None] * by_plurality
    paid = torch.where(right > 0, 0.0, penalty) if config.artefacts.size_penalty_only_when_wrong else penalty
    return 2 * right - 1 - paid


def bounds(n_documents: int, config: ReleasedConfig) -> tuple[int, int]:
    """The train documents that are learned from. Raises InputError if there are none."""
    artefacts, window = config.artefacts, config.window
    first = window + (2 if artefacts.first_rows_skipped else 0)
    last = n_documents - (window if artefacts.window_subtracted_twice else 0)
    if last <= first:
        raise InputError(
            f"{n_documents} train documents are too few for the released window of {window} twice; set a "
            "smaller window"
        )
    return first, last


def is_answerable(documents: Dataset, config: ReleasedConfig) -> Tensor:
    """(T,) whether the right answer is among the slots kept."""
    labels = torch.tensor(documents.labels)
    return (labels >= 0) & (labels < slots_kept(documents, config.answer_slots))


def released_accuracy(decisions: Decisions, test: Dataset, config: ReleasedConfig) -> float:
    """As the released code counts: unanswerable questions dropped, the first two of the rest not scored, and
    the right ones divided by the last index, one less than their number. NaN for fewer than two."""
    scored = np.flatnonzero(is_answerable(test, config).numpy())[FIRST_SCORED:]
    right = (decisions.predictions[scored] == test.labels[scored]).sum()
    return float(right / (len(scored) - 1)) if len(scored) > 1 else float("nan")
