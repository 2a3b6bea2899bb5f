"""The agents that ask in turn for a Router, one query at a time.

In numpy, beside `SequentialAgents.decide`: one document by that takes ten times the 60 us that a step may.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from rlfocal.agents.rl_focal_sequential.agents import SequentialAgents
from rlfocal.agents.rl_focal_sequential.observations import TIE, n_task_gates
from rlfocal.agents.shared.tracking import Tracker
from rlfocal.routing.outputs import Given

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
        self._gates: Floats = np.zeros(0)
        self._about: dict[int, tuple[Floats, Floats]] = {}
        """Per stage, what the question adds to the logits and to the models' weights."""
        self._questioned: list[tuple[Floats, Floats]] = []
        if agents.kind == "choices":
            self.begin("", "")
            self._questioned = [self._about_questions(stage) for stage in range(len(agents.sizes))]
        self._affine: dict[int, tuple[Floats, Floats]] = {}

    def begin(self, question: str, task: str) -> None:
        """The next query. Without a question, nothing is known about its surface and words."""
        agents, self._about = self.agents, {}
        if agents.kind == "answers":
            return
        known = np.array([float(task == name) for name in agents.tasks])
        surface = np.zeros(len(agents.queries.surface_mean))
        words = np.zeros(agents.queries.directions.shape[1])
        if question:
            surface, words = agents.queries.surface([question])[0], agents.queries.words([question])[0]
        self._context = np.concatenate([known, surface, words])
        self._gates = np.concatenate([agents.queries.gates(words), known[: n_task_gates(len(known))]])

    def wanted(self, stage: int) -> Mask:
        """(N,) the models that have been asked once this stage is reached."""
        mask = np.zeros(len(self._order), dtype=np.bool_)
        mask[self._order[: self.agents.sizes[stage]]] = True
        return mask

    def distribution(self, stage: int, probs: Floats, logprobs: Floats | None) -> Floats:
        """(C,) Fusion's distribution; `logprobs` (N, C) for choices, rows without an answer all 0."""
        if logprobs is None:
            shared = self._stages[stage][1]
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
        mixed: Floats = self._stages[stage][0] @ (weights / weights.sum(axis=1, keepdims=True))
        return mixed if logprobs is not None else mixed[:-1]

    def _logits(self, stage: int, logprobs: Floats) -> Floats:
        """(R, C) of every recipe."""
        raw = logprobs[self._order[: self.agents.sizes[stage]]]
        answered = raw.any(axis=1, keepdims=True)
        values = self._values(raw) * answered
        of_question, shift = self._of_question(stage, len(raw))
        logits: Floats = of_question + shift @ values
        if raw.shape[1] < self.agents.n_slots or not answered.all():
            return logits + self._of_values(stage, values, answered, raw.shape[1])
        if stage not in self._affine:  # every model answered every slot
            zero = self._of_values(stage, np.zeros(values.shape))
            columns = [self._of_values(stage, unit) - zero for unit in _units(values.shape)]
            self._affine[stage] = np.stack([c.ravel() for c in columns], 1), zero
        matrix, zero = self._affine[stage]
        logits += (matrix @ values.ravel()).reshape(zero.shape) + zero
        return logits

    def _values(self, raw: Floats) -> Floats:
        """(m, C) log-probs (m, W), centred over the slots there are."""
        n_slots = self.agents.n_slots
        values = np.maximum(raw[:, :n_slots], -50.0)
        values -= values.sum(axis=1, keepdims=True) / values.shape[1]
        missing = n_slots - values.shape[1]
        return np.pad(values, ((0, 0), (0, missing))) if missing else values

    def _of_question(self, stage: int, size: int) -> tuple[Floats, Floats]:
        """(R, C) what the question adds to the logits, (R, m) and to the models' weights."""
        if stage not in self._about:
            of_context, of_gates = self._questioned[stage]
            about = (of_context @ self._context).reshape(-1, self.agents.n_slots)
            self._about[stage] = about, (of_gates @ self._gates).reshape(-1, size)
        return self._about[stage]

    def _about_questions(self, stage: int) -> tuple[Floats, Floats]:
        """(R·C, F) weights on the question's numbers, and (R·m, K) on its gates for log-probs as they are."""
        size = self.agents.sizes[stage]
        _, shared, _, own = self._stages[stage]
        of_context = own[:, size * self.agents.n_slots :].transpose(0, 2, 1).reshape(-1, len(self._context))
        gates = shared[:, size:].reshape(len(shared), -1, size).transpose(0, 2, 1)
        gates = gates / self.agents.scales.shared[self._order[:size], None]
        return np.ascontiguousarray(of_context), gates.reshape(len(shared) * size, -1)

    def _of_values(
        self, stage: int, values: Floats, answered: Mask | float = 1.0, width: int | None = None
    ) -> Floats:
        """(R, C) what models add, with a mask (m, 1) of those that answered slots below `width`."""
        at = self._order[: self.agents.sizes[stage]]
        _, shared, bias, own = self._stages[stage]
        scales = self.agents.scales
        standard = (values - scales.mean[at]) * scales.own[at] * answered
        standard[:, width or values.shape[1] :] = 0.0
        logits: Floats = shared[:, : len(at)] @ (values / scales.shared[at, None]) + bias
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


class StageDriver:
    """Stage after stage. A model that is down counts as asked; the next stage brings others in its place."""

    def __init__(self, agents: SequentialAgents) -> None:
        self._agents, self._step = agents, Stepwise(agents)
        self._known: dict[int, tuple[int, bool]] = {}

    def tracker(self) -> Tracker:
        return self._agents.tracker()

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
