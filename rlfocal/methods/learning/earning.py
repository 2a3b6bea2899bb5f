"""Never worse than doing nothing: what was learned is kept where it was better on held-out train rows."""

from __future__ import annotations

import numpy as np

from rlfocal.base.arrays import Floats, Ints

MARGIN = 1.645
"""Standard errors by which a policy has to be ahead of a simpler one to take its place (95 %, one-sided)."""
FEWEST = 10
"""Train documents below which nothing can be held out that tells anything."""
PARTS = 3


def has_earned(challenger: Floats, kept: Floats) -> bool:
    """Whether a policy is clearly better than a simpler one, from what both earned on the same held-out
    documents (T,). One more document of either kind is assumed: on a few, all can agree by chance."""
    gain = challenger - kept
    return bool(gain.sum() > MARGIN * np.sqrt(np.square(gain).sum() + 1))


def held_out_parts(n_train: int, seed: int) -> list[Ints]:
    """Positions of the documents that each trial holds out, all of them in turn, drawn by the seed; none of a
    very short train."""
    if n_train < FEWEST:
        return []
    drawn = np.random.default_rng(seed).permutation(n_train)
    return [np.sort(part) for part in np.array_split(drawn, PARTS)]


def most_accurate(accuracy: Floats) -> int:
    """The model that decides alone where nothing else has earned its place; ties: the first."""
    return int(accuracy.argmax())
