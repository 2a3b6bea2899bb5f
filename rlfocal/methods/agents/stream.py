"""The train stream: the metrics, slots and correctness of any pool at any document."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from rlfocal.data.dataset import Dataset
from rlfocal.methods.agents.slots import Slots, build_slots, slot_inputs
from rlfocal.statistics.outcomes import Outcomes
from rlfocal.statistics.windows import Window

MODELS_TABULATED = 8
"""The most models for which every pool's metrics are computed beforehand."""
TABLE_ENTRIES = 1 << 22
"""The most positions × pools for which they are (32 MB with two metrics)."""
_CHUNK = 1 << 22
"""Rows × pools processed together while the table is made (some 16 MB)."""


class Memory(NamedTuple):
    """The state of one seed's stream at the end of train: all of it that a frozen agent keeps."""

    predictions: Tensor
    """(w, N) what the models answered to the last documents, int64"""
    labels: Tensor
    """(w,) int64"""
    past_rewards: Tensor
    """(k,)"""
    pool: Tensor
    """(N,) 0 or 1"""


class Stream:
    """Documents in order, without any agent's state. Positions are documents, 0 .. T-1.

    `measure` turns windows and pools (E, P, N) into metrics (E, P, K).
    """

    def __init__(
        self,
        train: Dataset,
        measure: Callable[[Window], Tensor],
        *,
        n_slots: int,
        window: int,
        questions: Tensor | None = None,
    ) -> None:
        self.kind, self.window, self.n_slots = train.kind, window, n_slots
        self.n_documents, self.n_models = len(train), len(train.models)
        self.probs, self.n_choices = slot_inputs(train, n_slots)
        self.questions = torch.zeros(len(train), 0) if questions is None else questions
        """(T, G) features of each question, known before any model is asked"""
        self.labels = torch.tensor(train.labels)
        self.predictions = torch.tensor(train.predictions)
        self._outcomes = Outcomes(self.predictions, self.labels, self.probs.shape[2], train.kind, window)
        self.measure = measure
        self._table: Tensor | None = None
        if self.n_models <= MODELS_TABULATED and len(train) << self.n_models <= TABLE_ENTRIES:
            self._bits = 2.0 ** torch.arange(self.n_models)
            self._table = self._tabulate()

    def metrics(self, pools: Tensor, end: int, stride: int = 1) -> Tensor:
        """(G, P, K) of the pools (G, P, N), over the windows before `end + g * stride`."""
        if self._table is None:
            return self.measure(self._outcomes.window(pools, end, self.window, stride))
        ends = self._table[end : end + (len(pools) - 1) * stride + 1 : stride]
        at = (pools @ self._bits).long()[..., None].expand(-1, -1, ends.shape[-1])
        return ends.gather(1, at)

    def note(self, rows: Tensor, pools: Tensor) -> None:
        """Called once pools (S, B, N) are chosen for the documents `rows` (B,)."""

    def slots(self, pools: Tensor, rows: Tensor) -> Slots:
        """What Fusion chooses among: `pools` (P, D, N) asked about the documents `rows` (D,)."""
        return build_slots(self.probs[rows], self.n_choices[rows], pools, self.kind, self.n_slots)

    def right(self, pools: Tensor, rows: Tensor) -> Tensor:
        """(D, P) whether the plurality of `pools` (D, P, N) is right about their document, `rows` (D,)."""
        return self._outcomes.right_on(pools, rows)

    def outputs(self) -> Slots:
        """The slots if every model were asked about every document: P = 1."""
        everyone = self.probs.new_ones((1, *self.probs.shape[:2]))
        return self.slots(everyone, torch.arange(self.n_documents))

    def _tabulate(self) -> Tensor:
        """(T+1, 2^N, K) the metrics of every pool over the window before every position."""
        codes = torch.arange(2**self.n_models)
        pools = (codes[:, None] // self._bits.long() % 2).to(self._bits.dtype)
        parts: list[Tensor] = []
        together = max(1, _CHUNK // (len(pools) * self.window))
        for end in range(1, self.n_documents + 1, together):
            stacked = pools.expand(min(together, self.n_documents + 1 - end), -1, -1)
            looked_back = self._outcomes.window(stacked, end, self.window, 1)
            parts.append(self.measure(looked_back))
        nothing_yet = torch.zeros_like(parts[0][:1])
        return torch.cat([nothing_yet, *parts])


def slots_kept(documents: Dataset, answer_slots: int) -> int:
    """C: the most choices of a document, or the answers kept."""
    return answer_slots if documents.kind == "answers" else int(documents.n_choices.max())
