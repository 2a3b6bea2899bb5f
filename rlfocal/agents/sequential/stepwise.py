"""Agents of the variant `sequential` on one query at a time, in numpy: torch's calls would cost most."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rlfocal.agents.sequential.agents import SequentialAgents
from rlfocal.agents.sequential.decider import view
from rlfocal.agents.sequential.observations import TIE

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


class Stepwise:
    """The same decisions as `SequentialAgents.decide`, one stage after the other.

    `probs` (N, C) below are the distributions given so far, rows of zeros for models that gave none.
    """

    def __init__(self, agents: SequentialAgents) -> None:
        self.agents = agents
        self._order = np.array(agents.order)
        self._stages = [
            (
                fusion.shares,
                fusion.weights.shared.numpy(),
                fusion.weights.bias.numpy(),
                fusion.weights.own.numpy(),
            )
            for fusion in agents.fusions
        ]
        self._context: Floats = np.zeros(0)

    def begin(self, question: str, task: str) -> None:
        """The next query. Without a question, nothing is known about its surface and words."""
        agents = self.agents
        if agents.kind == "answers":
            return
        known = np.array([float(task == name) for name in agents.tasks])
        n_words = agents.queries.directions.shape[1]
        if question:
            text = [agents.queries.surface([question])[0], agents.queries.words([question])[0]]
        else:
            text = [np.zeros(len(agents.queries.surface_mean)), np.zeros(n_words)]
        self._context = np.concatenate([known, *text])

    def wanted(self, stage: int) -> Mask:
        """(N,) the models that have been asked once this stage is reached."""
        mask = np.zeros(len(self._order), dtype=np.bool_)
        mask[self._order[: self.agents.sizes[stage]]] = True
        return mask

    def distribution(self, stage: int, probs: Floats, logprobs: Floats | None) -> Floats:
        """(C,) Fusion's distribution; `logprobs` (N, C) for choices, rows without an answer all 0."""
        size = self.agents.sizes[stage]
        at = self._order[:size]
        shares, shared, bias, own = self._stages[stage]
        if logprobs is None:
            given = probs[at]
            # One more slot: nobody asked is right.
            logits = np.hstack([shared[:, :-1] @ given, shared[:, -1:]])
            is_open = np.append(given.any(axis=0), True)
        else:
            n_open, n_slots = logprobs.shape[1], self.agents.n_slots
            answered = logprobs[at].any(axis=1)
            values = np.zeros((size, n_slots))
            width = min(n_open, n_slots)
            raw = np.maximum(logprobs[at, :width], -50.0)
            values[:, :width] = (raw - raw.mean(axis=1, keepdims=True)) * answered[:, None]
            scales = self.agents.scales
            standard = (values - scales.mean[at]) * scales.own[at] * answered[:, None]
            standard[:, width:] = 0.0
            known = np.concatenate([standard.ravel(), self._context])
            logits = shared @ (values / scales.shared[at, None]) + bias + np.tensordot(own, known, (1, 0))
            is_open = np.arange(n_slots) < width
        if not is_open.any():
            return np.zeros(logits.shape[1])
        logits = np.where(is_open, logits, -np.inf)
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        mixed: Floats = shares @ (weights / weights.sum(axis=1, keepdims=True))
        return mixed if logprobs is not None else mixed[:-1]

    def said(self, stage: int, distribution: Floats, probs: Floats) -> int:
        """The likeliest slot, -1 where none is open; ties as in `best_slots`."""
        top = distribution.max(initial=0.0)
        if top <= 0:
            return -1
        tied = np.flatnonzero(distribution >= top - TIE)
        for model in self._order[: self.agents.sizes[stage]]:
            if len(tied) == 1:
                break
            given = probs[model][tied]
            tied = tied[given >= given.max() - TIE]
        return int(tied[0])

    def goes_on(self, stage: int, distribution: Floats, said: int, slots: NDArray[np.int64]) -> bool:
        """Whether the Decider asks the next models; `slots` (N,) are those of the models, -1 for none."""
        if stage == len(self.agents.sizes) - 1:
            return False
        votes = slots[self._order[: self.agents.sizes[stage]]]
        features = view(distribution[None], np.array([said]), votes[None], self.agents.n_slots)
        return bool((features @ self.agents.decider[stage])[0] > 0)
