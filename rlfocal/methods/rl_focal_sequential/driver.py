"""The sequential agents for a Router, one query at a time."""

from __future__ import annotations

import numpy as np

from rlfocal.base.arrays import Bools
from rlfocal.data.outputs import NOTHING, Fused, Given
from rlfocal.methods.agents.tracking import Tracker
from rlfocal.methods.rl_focal_sequential.agents import Look, SequentialAgents


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
