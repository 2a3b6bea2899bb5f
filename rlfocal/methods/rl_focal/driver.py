"""Agents that choose one pool per document, for a Router: one query at a time, by what `decide` calls."""

from __future__ import annotations

import numpy as np
import torch

from rlfocal.base.arrays import Bools, Singles
from rlfocal.data.outputs import NOTHING, Fused, Given
from rlfocal.methods.agents.tracking import Tracker
from rlfocal.methods.rl_focal.agents import PoolAgents, chosen_pool, stand_ins


class PoolDriver:
    """The Decider picks one pool per query, from the question and the previous pool."""

    def __init__(self, agents: PoolAgents) -> None:
        self._agents, self._accuracy = agents, agents.recent_accuracy
        self._pool: Singles = agents.memory.pool.numpy()
        self._after: dict[bytes, Singles] = {}
        self._about = ("", "")
        self._known = torch.zeros(0)

    def tracker(self) -> Tracker:
        promised = max((episode.accuracy for episode in self._agents.history), default=0.0)
        return Tracker(self._accuracy, promised, min(3, len(self._accuracy)), self._agents.seed)

    def begin(self, question: str, task: str) -> None:
        self._about = (question, task)
        self._known = self._agents.known(self._agents.document(question, task))
        self._pool = self._agents.pools(self._known, chosen_pool, self._pool, self._after)[0]

    def forget(self) -> None:
        pass

    def wanted(self, given: Given) -> Bools:
        """The pool and, for each of its models that is down, the best other one that is not."""
        pool = self._pool > 0
        return np.asarray(pool | stand_ins(pool[None], given.is_down, self._accuracy)[0])

    def fuse(self, given: Given) -> Fused:
        if not given.probs.any():
            return NOTHING
        answered = given.asked & ~given.is_down
        asked = self.wanted(given) & answered
        pool = (asked if asked.any() else answered).astype(np.float32)
        heard = self._agents.heard(self._agents.document(*self._about, given), pool[None])
        slots, probability = self._agents.fuse(heard, self._known).said
        assert probability is not None
        return Fused(int(slots[0]), float(probability[0])) if slots[0] >= 0 else NOTHING
