"""What Fusion chooses among: the document's choices, or the answers that the selected models gave."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from rlfocal.base.errors import InputError
from rlfocal.data.dataset import Dataset, Kind


class Slots(NamedTuple):
    """The slots of P pools at each of G documents."""

    distributions: Tensor
    """(P, G, N, C) the selected models' probabilities, 0 for the others."""
    open: Tensor
    """(P, G, C) whether the slot exists."""
    at: Tensor
    """(P, G, C) the dataset's slot that each slot stands for; -1 where it does not exist."""


def slot_inputs(documents: Dataset, n_slots: int) -> tuple[Tensor, Tensor]:
    """Probabilities (T, N, C) and how many slots exist (T,); for choices, C is cut or filled to `n_slots`.

    Raises InputError for a probability that is not a finite number.
    """
    refuse_broken(documents)
    probs = torch.tensor(documents.probs, dtype=torch.float32)
    if documents.kind == "choices":
        probs = pad(probs[..., :n_slots], (0, max(0, n_slots - probs.shape[2])))
    return probs, torch.tensor(documents.n_choices)


def refuse_broken(documents: Dataset) -> None:
    """Raises InputError for a probability that is not a finite number."""
    broken = np.argwhere(~np.isfinite(documents.probs).all(-1))
    if len(broken):
        row, model = broken[0]
        raise InputError(
            f"{documents.models[model]!r} has NaN or infinite probabilities on document "
            f"{documents.doc_ids[row]} of task {str(documents.tasks[row])!r} of {documents.benchmark!r}; "
            "import or extract it again, or leave the model out"
        )


def build_slots(probs: Tensor, n_choices: Tensor, pools: Tensor, kind: Kind, keep: int) -> Slots:
    """Mask by the pool; for answers, also order by the selected models' total probability and keep the first
    `keep`.

    `probs` (G, N, C), `n_choices` (G,), `pools` (P, G, N) of 0 and 1. Ties between answers go to the one that
    the alphabetically first selected model gave. `keep` concerns answers only.
    """
    masked = probs * pools[..., None]
    index = torch.arange(probs.shape[2])
    if kind == "choices":
        exists = (index < n_choices[:, None]).expand(*pools.shape[:2], -1)
        return Slots(masked, exists, torch.where(exists, index, -1))
    order = _answer_order(masked)[..., :keep]
    ranked = masked.gather(3, order[:, :, None].expand(*masked.shape[:3], -1))
    exists = ranked.sum(2) > 0
    missing = keep - order.shape[-1]
    return Slots(
        pad(ranked, (0, missing)),
        pad(exists, (0, missing)),
        pad(torch.where(exists, order, -1), (0, missing), value=-1),
    )


def _answer_order(masked: Tensor) -> Tensor:
    """(P, G, C) the dataset's slots by falling total probability, then by first giver, then by index."""
    n_models, n_slots = masked.shape[2:]
    # Shares are inexact in binary; whole millionths make equal totals equal, whatever the order of the sum.
    total = (masked.sum(2, dtype=torch.float64) * 1e6).round().long()
    first_giver = (masked > 0).float().argmax(2)
    key = (total * n_models + (n_models - 1 - first_giver)) * n_slots
    key += n_slots - 1 - torch.arange(n_slots)
    return key.argsort(-1, descending=True)
