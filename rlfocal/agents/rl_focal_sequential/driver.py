"""The sequential agents for a Router, one query at a time.

In numpy, separate from `SequentialAgents.decide`, which takes ten times the target of 60 us per document.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from rlfocal.agents.rl_focal_sequential.agents import SequentialAgents
from rlfocal.agents.rl_focal_sequential.fusion import LEAST_CHANCE
from rlfocal.agents.rl_focal_sequential.observations import TIE, Scales, n_task_gates, real_slots
from rlfocal.agents.rl_focal_sequential.softmax_regression import Weights
from rlfocal.agents.shared.tracking import Tracker
from rlfocal.routing.outputs import NOTHING, Fused, Given
from rlfocal.statistics.temperature import tempered

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


class Regressions:
    """R regressions of one stage, over the log-probs of m models, C slots each, and the question's features.

    Arranged for one query at a time.
    """

    opinion: Floats
    """(R,) the weight of Fusion's opinion in a task's own regressions"""

    def __init__(self, weights: Weights, scales: Scales, at: NDArray[np.int64], of_task: bool) -> None:
        """For the models at these positions, asked in this order."""
        shared, own = weights.shared.numpy(), weights.own.numpy()
        m, (r, _, c) = len(at), own.shape
        self.opinion = shared[:, 2 * m] if of_task else np.zeros(r)
        self._votes = np.ascontiguousarray(shared[:, m : 2 * m])
        self._polled = bool(self._votes.any())
        self._bias = weights.bias.numpy()
        self._shared = shared[:, :m] / scales.shared[at]
        self._mean, self._scale = scales.mean[at], scales.own[at]
        self._own = np.ascontiguousarray(own[:, : m * c].transpose(0, 2, 1).reshape(r * c, m * c))
        self._of_context = np.ascontiguousarray(own[:, m * c :].transpose(0, 2, 1).reshape(r * c, -1))
        gates = np.zeros((r, m, 0)) if of_task else shared[:, 2 * m :].reshape(r, -1, m).transpose(0, 2, 1)
        self._of_gates = (gates / scales.shared[at, None]).reshape(r * m, -1)
        # If all models answered in all slots, logits are affine in the values.
        same_slot = np.einsum("rm,cd->rcmd", self._shared, np.eye(c)).reshape(r * c, m * c)
        self._matrix = np.ascontiguousarray(same_slot + self._own * self._scale.ravel())
        self._zero = self._bias - (self._own @ (self._mean * self._scale).ravel()).reshape(r, c)

    def of_question(self, context: Floats, gates: Floats) -> tuple[Floats, Floats]:
        """What the question adds to the logits, (R, C), and to the models' weights, (R, m)."""
        about = (self._of_context @ context).reshape(self._bias.shape)
        shift = self._of_gates @ gates if self._of_gates.shape[1] else np.zeros(len(self._of_gates))
        return about, shift.reshape(self._shared.shape)

    def of_votes(self, values: Floats, answered: Mask, width: int) -> Floats | float:
        """(R, C) what the votes of the models that `answered` (m, 1) add, in the slots below `width`."""
        if not self._polled:
            return 0.0
        votes = np.zeros(values.shape)
        votes[np.arange(len(values)), values[:, :width].argmax(axis=1)] = 1.0
        return np.asarray(self._votes @ (votes * answered))

    def of_values(self, values: Floats, answered: Mask, width: int) -> Floats:
        """(R, C) what centred log-probs (m, C) add, where `answered` (m, 1), in the slots below `width`."""
        shape = self._bias.shape
        if width == shape[1] and answered.all():
            return np.asarray((self._matrix @ values.ravel()).reshape(shape) + self._zero)
        standard = (values - self._mean) * self._scale * answered
        standard[:, width:] = 0.0
        logits = self._shared @ values + self._bias
        return np.asarray(logits + (self._own @ standard.ravel()).reshape(shape))


class Stepwise:
    """The same decisions as `SequentialAgents.decide`, one stage after the other.

    `probs` (N, C) below are the distributions given so far, with rows of zeros for models that gave none.
    """

    def __init__(self, agents: SequentialAgents) -> None:
        self.agents = agents
        self._order = np.array(agents.order)
        self._deciders: list[list[list[float]]] = [agents.decider.tolist(), agents.task_decider.tolist()]
        self._stages = [fusion.weights for fusion in agents.fusions]
        self._shared_only = [stage.shared.numpy() for stage in self._stages]
        self._task = -1
        """The query's place among the tasks that have their own regressions; -1 if it has none."""
        self._fitted: dict[tuple[int, int], Regressions] = {}
        """By stage and task; task -1: the regressions of all tasks."""
        self._about: dict[tuple[int, int], tuple[Floats, Floats]] = {}
        """By stage and task: what the question adds to the logits and to the models' weights."""
        self._known: Floats = np.zeros(0)
        self._question: Floats = np.zeros(0)
        self._gates: Floats = np.zeros(0)
        self._particular: Floats = np.zeros(0)
        if agents.kind == "choices":
            self.begin("", "")
            for stage in range(len(agents.sizes)):
                self._regressions(stage, -1)

    def begin(self, question: str, task: str) -> None:
        """The next query. Without a question, nothing is known about its surface and words."""
        agents, self._about = self.agents, {}
        if agents.kind == "answers":
            return
        self._known = np.array([float(task == name) for name in agents.tasks])
        is_known = bool(agents.task_fusions) and task in agents.tasks
        self._task = agents.tasks.index(task) if is_known else -1
        queries = agents.queries
        surface, curves = np.zeros(len(queries.surface_mean)), np.zeros(queries.bends.shape[1])
        words = np.zeros(queries.directions.shape[1])
        if question:
            surface, words = queries.surface([question])[0], queries.words([question])[0]
            curves = queries.curves(surface[None])[0]
        self._question = np.concatenate([surface, curves, words])
        if is_known:
            of_task = agents.surfaces.numbers([question], np.array([self._task]))[0]
            self._particular = np.concatenate([of_task, words])
        self._gates = np.concatenate([queries.gates(words), self._known[: n_task_gates(len(self._known))]])

    def wanted(self, stage: int) -> Mask:
        """(N,) the models that have been asked once this stage is reached."""
        mask = np.zeros(len(self._order), dtype=np.bool_)
        mask[self._order[: self.agents.sizes[stage]]] = True
        return mask

    def distribution(self, stage: int, probs: Floats, logprobs: Floats | None) -> Floats:
        """(C,) Fusion's distribution; (C + 1,) for free answers, the last for "no asked model is right".

        `logprobs` (N, C) for choices, rows without an answer all 0.
        """
        fusion = self.agents.fusions[stage]
        if logprobs is None:
            shared = self._shared_only[stage]
            given = probs[self._order[: self.agents.sizes[stage]]]
            logits = np.hstack([shared[:, :-1] @ given, shared[:, -1:]])
            return _mixed(fusion.shares, logits, np.append(given.any(axis=0), True))
        is_open = np.arange(self.agents.n_slots) < logprobs.shape[1]
        raw = logprobs[self._order[: self.agents.sizes[stage]]]
        said = _mixed(fusion.shares, self._logits(stage, -1, raw), is_open)
        if self._task < 0:
            return said
        of_task = self.agents.task_fusions[stage]
        opinion = np.log(np.maximum(said, LEAST_CHANCE)) * is_open
        opinion -= opinion.sum() / max(is_open.sum(), 1)
        weight = self._regressions(stage, self._task).opinion
        logits = self._logits(stage, self._task, raw) + weight[:, None] * opinion
        share = of_task.shares[self._task]
        mixed: Floats = share[0] * said + _mixed(share[1:], logits, is_open)
        return mixed

    def _regressions(self, stage: int, task: int) -> Regressions:
        if (stage, task) not in self._fitted:
            agents = self.agents
            of_task = agents.task_fusions[stage].weights.at(task) if task >= 0 else None
            at = self._order[: agents.sizes[stage]]
            self._fitted[stage, task] = Regressions(
                of_task or self._stages[stage], agents.scales, at, task >= 0
            )
        return self._fitted[stage, task]

    def _logits(self, stage: int, task: int, raw: Floats) -> Floats:
        """(R, C) each recipe's logits, from the log-probs (m, W) of the models asked, 0 for no answer."""
        fitted = self._regressions(stage, task)
        answered: Mask = (raw != 0).any(axis=1)[:, None]
        values = self._values(raw) * answered
        if (stage, task) not in self._about:
            context = self._particular if task >= 0 else np.concatenate([self._known, self._question])
            self._about[stage, task] = fitted.of_question(context, self._gates)
        of_question, shift = self._about[stage, task]
        width = min(raw.shape[1], self.agents.n_slots)
        logits = of_question + fitted.of_values(values, answered, width)
        logits += fitted.of_votes(values, answered, width)
        return logits + shift @ values if task < 0 else logits

    def _values(self, raw: Floats) -> Floats:
        """(m, C) log-probs (m, W), centred over the slots that exist."""
        n_slots = self.agents.n_slots
        values = np.maximum(raw[:, :n_slots], -50.0)
        values -= values.sum(axis=1, keepdims=True) / values.shape[1]
        missing = n_slots - values.shape[1]
        return np.pad(values, ((0, 0), (0, missing))) if missing else values

    def chance(self, distribution: Floats, said: int) -> float:
        """How likely the slot is right, by the distribution of this query."""
        return float(tempered(distribution, 1.0 if self._task >= 0 else self.agents.temperature)[said])

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
        weighed = (
            w * feature for w, feature in zip(self._deciders[self._task >= 0][stage], features, strict=True)
        )
        return sum(weighed) > 0.0


class StageDriver:
    """Stage after stage. A model that is down counts as asked; the next stage replaces it with others."""

    def __init__(self, agents: SequentialAgents) -> None:
        self._agents, self._step = agents, Stepwise(agents)
        self._known: dict[int, tuple[int, Floats, bool]] = {}

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

    def fuse(self, given: Given) -> Fused:
        stage = self._stage(given)
        if not given.probs.any():
            return NOTHING
        if stage < 0:  # not even the first was asked
            return Fused(int(given.probs.sum(axis=0).argmax()), None)
        # Models asked only for a comparison do not count as a stage that the Decider has reached.
        for at in range(stage):
            if self._answer(at, given)[0] >= 0 and not self._goes_on(at, given):
                stage = at
                break
        slot, distribution, _ = self._answer(stage, given)
        return Fused(slot, self._step.chance(distribution, slot)) if slot >= 0 else NOTHING

    def _goes_on(self, stage: int, given: Given) -> bool:
        """Whether the Decider would go on, or this stage added a model that is down."""
        sizes = self._agents.sizes
        brought = self._agents.order[sizes[stage - 1] if stage else 0 : sizes[stage]]
        return self._answer(stage, given)[2] or any(at in brought for at in given.down)

    def _answer(self, stage: int, given: Given) -> tuple[int, Floats, bool]:
        """Fusion's slot after this stage, its distribution, and whether the Decider goes on."""
        if stage not in self._known:
            whole = self._step.distribution(stage, given.probs, given.logprobs)
            real = real_slots(whole, self._agents.kind)
            said = self._step.said(stage, real, given.probs)
            self._known[stage] = said, whole, self._step.goes_on(stage, real, said, given.slots)
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


def _mixed(shares: Floats, logits: Floats, is_open: Mask) -> Floats:
    """(C,) the mixture of the softmaxes of logits (R, C) over the open slots; without any, all 0."""
    if not is_open.any():
        return np.zeros(len(is_open))
    logits = np.where(is_open, logits, -np.inf)
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    mixed: Floats = shares @ (weights / weights.sum(axis=1, keepdims=True))
    return mixed
