"""Agents of the variant `sequential` on one query at a time, in numpy: torch's calls would cost most."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from rlfocal.agents.sequential.agents import SequentialAgents
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
        self._decider: list[list[float]] = agents.decider.tolist()
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
        self._about: dict[int, Floats] = {}
        """Per stage, what the question adds to the logits."""
        self._affine: dict[int, tuple[Floats, Floats]] = {}

    def begin(self, question: str, task: str) -> None:
        """The next query. Without a question, nothing is known about its surface and words."""
        agents, self._about = self.agents, {}
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
        shares, shared = self._stages[stage][:2]
        if logprobs is None:
            given = probs[self._order[: self.agents.sizes[stage]]]
            # One more slot: nobody asked is right.
            logits = np.hstack([shared[:, :-1] @ given, shared[:, -1:]])
            is_open = np.append(given.any(axis=0), True)
        else:
            logits = self._logits(stage, logprobs)
            is_open = np.arange(logits.shape[1]) < logprobs.shape[1]
        if not is_open.any():
            return np.zeros(logits.shape[1])
        logits = np.where(is_open, logits, -np.inf)
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        mixed: Floats = shares @ (weights / weights.sum(axis=1, keepdims=True))
        return mixed if logprobs is not None else mixed[:-1]

    def _logits(self, stage: int, logprobs: Floats) -> Floats:
        """(R, C) of every recipe. Where all models answered all slots, they are affine in the log-probs."""
        at = self._order[: self.agents.sizes[stage]]
        raw = logprobs[at]
        if stage not in self._about:
            of_context = self._stages[stage][3][:, len(at) * self.agents.n_slots :]
            about: Floats = np.tensordot(of_context, self._context, (1, 0))
            self._about[stage] = about
        whole = raw.shape[1] == self.agents.n_slots and bool(raw[:, 0].all())
        if not whole:
            return self._any_logits(stage, raw) + self._about[stage]
        if stage not in self._affine:
            zero = self._any_logits(stage, np.full(raw.shape, -1.0))
            columns = [self._any_logits(stage, unit - 1.0) - zero for unit in _units(raw.shape)]
            self._affine[stage] = np.stack([c.ravel() for c in columns], 1), zero
        matrix, zero = self._affine[stage]
        moved: Floats = matrix @ (np.maximum(raw, -50.0).ravel() + 1.0)
        return moved.reshape(zero.shape) + zero + self._about[stage]

    def _any_logits(self, stage: int, raw: Floats) -> Floats:
        """(R, C) without what the question adds; `raw` (m, W) has rows of zeros for models that are down."""
        at = self._order[: self.agents.sizes[stage]]
        _, shared, bias, own = self._stages[stage]
        n_slots, scales = self.agents.n_slots, self.agents.scales
        answered = raw.any(axis=1, keepdims=True)
        width = min(raw.shape[1], n_slots)
        values = np.zeros((len(at), n_slots))
        clipped = np.maximum(raw[:, :width], -50.0)
        values[:, :width] = (clipped - clipped.mean(axis=1, keepdims=True)) * answered
        standard = (values - scales.mean[at]) * scales.own[at] * answered
        standard[:, width:] = 0.0
        logits: Floats = shared @ (values / scales.shared[at, None]) + bias
        return logits + np.tensordot(own[:, : standard.size], standard.ravel(), (1, 0))

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
        votes = slots[self._order[: self.agents.sizes[stage]]].tolist()
        features = _view(distribution.tolist(), said, votes, self.agents.n_slots)
        weighed = (w * feature for w, feature in zip(self._decider[stage], features, strict=True))
        return sum(weighed) > 0.0


def _view(probabilities: list[float], said: int, votes: list[int], n_slots: int) -> list[float]:
    """`decider.view` of one document, in plain Python."""
    first, *others = sorted(probabilities, reverse=True)
    entropy = -sum(p * math.log(max(p, 1e-12)) for p in probabilities)
    agree = sum(vote == said for vote in votes) / len(votes)
    return [1.0, first, first - (others[0] if others else 0.0), entropy / math.log(max(n_slots, 2)), agree]


def _units(shape: tuple[int, ...]) -> Iterator[Floats]:
    """Arrays of zeros with a single 1, one for each place."""
    for at in range(math.prod(shape)):
        unit = np.zeros(math.prod(shape))
        unit[at] = 1.0
        yield unit.reshape(shape)
