"""Trained agents for a Router: one query at a time, by what `decide` calls."""

from __future__ import annotations

import numpy as np
import torch

from rlfocal.base.arrays import Bools, Singles
from rlfocal.data.outputs import NOTHING, Fused, Given
from rlfocal.methods.agents.tracking import Tracker
from rlfocal.methods.rl_focal.agents import PoolAgents, chosen_pool, stand_ins
from rlfocal.methods.rl_focal_sequential.agents import Look, SequentialAgents


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


class StageDriver:
    """Stage after stage. A model that is down counts as asked; the next stage replaces it with others."""

    def __init__(self, agents: SequentialAgents) -> None:
        self._agents = agents
        self._looks: dict[int, Look] = {}
        self.begin("", "")

    def tracker(self) -> Tracker:
        return self._agents.tracker()

    def begin(self, question: str, task: str) -> None:
        self.forget()
        self._question, self._task = question, task
        self._about = self._agents.about(self._agents.document(question, task))

    def forget(self) -> None:
        self._looks = {}

    def wanted(self, given: Given) -> Bools:
        stage = self._stage(given)
        nobody = not given.probs[list(self._agents.order[: self._agents.sizes[stage]])].any()
        if stage < 0 or (stage < len(self._agents.sizes) - 1 and (nobody or self._goes_on(stage, given))):
            stage += 1
        mask = np.zeros(len(self._agents.models), dtype=np.bool_)
        mask[list(self._agents.order[: self._agents.sizes[stage]])] = True
        return mask

    def fuse(self, given: Given) -> Fused:
        stage = self._stage(given)
        if not given.probs.any():
            return NOTHING
        if stage < 0:  # not even the first was asked
            return Fused(int(given.probs.sum(axis=0).argmax()), None)
        # Models asked only for a comparison do not count as a stage that the Decider has reached.
        for at in range(stage):
            if self._look(at, given).slots[0] >= 0 and not self._goes_on(at, given):
                stage = at
                break
        look = self._look(stage, given)
        slot = int(look.slots[0])
        return Fused(slot, float(look.distribution[0, slot])) if slot >= 0 else NOTHING

    def _goes_on(self, stage: int, given: Given) -> bool:
        """Whether the Decider would go on, or this stage added a model that is down."""
        return bool(self._look(stage, given).goes_on[0] or given.is_down[self._agents.brought(stage)].any())

    def _look(self, stage: int, given: Given) -> Look:
        if stage not in self._looks:
            document = self._agents.document(self._question, self._task, given)
            self._looks[stage] = self._agents.look(stage, document, self._about)
        return self._looks[stage]

    def _stage(self, given: Given) -> int:
        """The last stage all of whose models were asked; -1 if none."""
        asked = given.asked[list(self._agents.order)]
        whole = len(asked) if asked.all() else int(asked.argmin())
        return int(np.searchsorted(self._agents.sizes, whole, side="right")) - 1
