"""How the agents of each variant take part in one query of a Router."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from rlfocal.agents.checkpoint import AnyAgents
from rlfocal.agents.quick import QuickAgents
from rlfocal.agents.sequential.agents import SequentialAgents
from rlfocal.agents.sequential.online import tracker
from rlfocal.agents.sequential.stepwise import Stepwise
from rlfocal.agents.sequential.tracking import Tracker
from rlfocal.agents.trained import TrainedAgents
from rlfocal.errors import InputError
from rlfocal.routing.outputs import Given

Mask = NDArray[np.bool_]


class Driver(Protocol):
    """One seed's agents, asked one query at a time."""

    def tracker(self) -> Tracker: ...

    def begin(self, question: str, task: str) -> None:
        """The next query."""
        ...

    def forget(self) -> None:
        """What was said about this query has changed."""
        ...

    def wanted(self, given: Given) -> Mask:
        """(N,) the models that should have been asked by now."""
        ...

    def fuse(self, given: Given) -> int:
        """The slot; -1 for none."""
        ...


def driver_of(agents: AnyAgents) -> Driver:
    """Raises InputError for a variant that knows whole streams only."""
    if isinstance(agents, SequentialAgents):
        return _Sequential(agents)
    if isinstance(agents, TrainedAgents):
        return _Paper(agents)
    raise InputError("a Router needs agents of the variant sequential or paper; these are of another")


class _Sequential:
    """Stage after stage. A model that is down counts as asked; the next stage brings others in its place."""

    def __init__(self, agents: SequentialAgents) -> None:
        self._agents, self._step = agents, Stepwise(agents)
        self._known: dict[int, tuple[int, bool]] = {}

    def tracker(self) -> Tracker:
        return tracker(self._agents)

    def begin(self, question: str, task: str) -> None:
        self._known = {}
        self._step.begin(question, task)

    def forget(self) -> None:
        self._known = {}

    def wanted(self, given: Given) -> Mask:
        stage = self._stage(given)
        if stage < 0:
            return self._step.wanted(0)
        last = len(self._agents.sizes) - 1
        nobody = not given.probs[self._step.wanted(stage)].any()
        if stage < last and (nobody or self._goes_on(stage, given)):
            return self._step.wanted(stage + 1)
        return self._step.wanted(stage)

    def fuse(self, given: Given) -> int:
        stage = self._stage(given)
        if not given.probs.any():
            return -1
        if stage < 0:  # not even the first was asked
            return int(given.probs.sum(axis=0).argmax())
        # Models that were asked only for a comparison make no stage that the Decider would have reached.
        for at in range(stage):
            slot = self._answer(at, given)[0]
            if slot >= 0 and not self._goes_on(at, given):
                return slot
        return self._answer(stage, given)[0]

    def _goes_on(self, stage: int, given: Given) -> bool:
        """The Decider would go on, or this stage has brought a model that is down."""
        sizes = self._agents.sizes
        brought = self._agents.order[sizes[stage - 1] if stage else 0 : sizes[stage]]
        return self._answer(stage, given)[1] or any(at in brought for at in given.down)

    def _answer(self, stage: int, given: Given) -> tuple[int, bool]:
        """What Fusion says after this stage, and whether the Decider goes on."""
        if stage not in self._known:
            distribution = self._step.distribution(stage, given.probs, given.logprobs)
            said = self._step.said(stage, distribution, given.probs)
            self._known[stage] = said, self._step.goes_on(stage, distribution, said, given.slots)
        return self._known[stage]

    def _stage(self, given: Given) -> int:
        """The last stage all of whose models were asked; -1 if none."""
        asked = given.asked[list(self._agents.order)]
        whole = len(asked) if asked.all() else int(asked.argmin())
        return int(np.searchsorted(self._agents.sizes, whole, side="right")) - 1


class _Paper:
    """The Decider names one pool a query, which follows from the pool before."""

    def __init__(self, agents: TrainedAgents) -> None:
        self._agents, self._quick = agents, QuickAgents(agents)
        self._pool = np.zeros(len(agents.models), dtype=np.bool_)
        memory = agents.memory
        self._accuracy = (memory.predictions == memory.labels[:, None]).double().mean(0).numpy()
        self._best = np.argsort(-self._accuracy, kind="stable").tolist()

    def tracker(self) -> Tracker:
        promised = max(episode.accuracy for episode in self._agents.history)
        size = max(3, round(float(self._pool.sum())))
        return Tracker(self._accuracy, promised, min(size, len(self._best)), self._agents.seed)

    def begin(self, question: str, task: str) -> None:
        self._pool = self._quick.choose()

    def forget(self) -> None:
        pass

    def wanted(self, given: Given) -> Mask:
        """The pool; for every model of it that is down, the best one that is in neither."""
        missing = int(self._pool[given.down].sum())
        if not missing:
            return self._pool
        others = [at for at in self._best if not self._pool[at] and at not in given.down]
        team = self._pool.copy()
        team[others[:missing]] = True
        return team

    def fuse(self, given: Given) -> int:
        if not given.probs.any():
            return -1
        asked = self.wanted(given) & given.asked & ~given.is_down
        self._quick.pool = (asked if asked.any() else given.asked & ~given.is_down).astype(np.float32)
        slot = self._quick.fuse(given.probs, given.probs.shape[1])
        self._quick.pool = self._pool.astype(np.float32)
        return slot
