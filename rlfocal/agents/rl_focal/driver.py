"""The paper's agents for a Router, one query at a time.

In numpy, separate from `RLFocalAgents.decide`: a document through torch takes ten times the 60 us allowed.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from rlfocal.agents.rl_focal.agents import RLFocalAgents, chosen_pool
from rlfocal.agents.rl_focal.log_linear import LEAST, LogLinear
from rlfocal.agents.shared.networks import StackedLinear
from rlfocal.agents.shared.slots import build_slots
from rlfocal.agents.shared.tracking import Tracker
from rlfocal.routing.outputs import NOTHING, Fused, Given

Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]
_TINY = np.finfo(np.float32).tiny


class OneQuery:
    """One seed's frozen agents: the same decisions as `RLFocalAgents.decide`, one by one."""

    def __init__(self, trained: RLFocalAgents) -> None:
        self.trained = trained
        self._shape = trained.sizes.models, trained.sizes.slots
        fusion = trained.networks.fusion
        self._core = None if fusion.core is None else Core(fusion.core)
        self._network = None if fusion.network is None else Network(trained)
        self._branches: Floats = trained.networks.decider.question[0].detach().numpy()
        self._after: dict[bytes, Floats] = {}
        self._known: Floats = np.zeros(trained.sizes.question, dtype=np.float32)
        self.pool: Floats = trained.memory.pool.numpy()
        """(N,) 0 or 1, the last pool"""

    def choose(self, question: str, task: str) -> NDArray[np.bool_]:
        """(N,) the models to ask next. The logits that follow from a pool are cached."""
        if self.trained.questions is not None:
            self._known = self.trained.questions.of((question,), [task])[0].numpy()
        key = self.pool.tobytes()
        if key not in self._after:
            self._after[key] = self.trained.branch_logits(torch.from_numpy(self.pool)).numpy()
        logits = self._after[key] + self._known @ self._branches
        self.pool = chosen_pool(logits, self.pool)
        return self.pool > 0

    def fuse(self, probs: NDArray[np.float64], n_choices: int) -> Fused:
        """The slot answered and its softmax probability, from the chosen models' distributions (N, C); the
        other rows are ignored.

        As in a dataset, `n_choices` of the slots exist; those of free answers are ordered by total
        probability.
        """
        n_models, n_slots = self._shape
        given = np.zeros((n_models, max(n_slots, probs.shape[1])), dtype=np.float32)
        given[:, : probs.shape[1]] = np.where(self.pool[:, None] > 0, probs, 0)
        at = None
        if self.trained.kind == "answers":
            given, at = self._answer_slots(given, n_choices)
            n_choices = int((at >= 0).sum())
        given, n_open = given[:, :n_slots], min(n_choices, n_slots)
        if n_open == 0:
            return NOTHING
        logits = np.zeros(n_slots, dtype=np.float32)
        if self._core is not None:
            logits += self._core.logits(given, n_open, self._known)
        if self._network is not None:
            logits += self._network.logits(given, with_vote=self._core is None)
        logits = logits[:n_open]
        slot = int(logits.argmax())
        chance = 1 / float(np.exp(logits - logits[slot]).sum())
        return Fused(slot if at is None else int(at[slot]), chance)

    def _answer_slots(self, given: Floats, n_choices: int) -> tuple[Floats, NDArray[np.int64]]:
        slots = build_slots(
            torch.from_numpy(given)[None],
            torch.tensor([n_choices]),
            torch.from_numpy(self.pool)[None, None],
            "answers",
            self._shape[1],
        )
        return slots.distributions[0, 0].numpy(), slots.at[0, 0].numpy()


class Core:
    """`LogLinear` for one document of one seed."""

    def __init__(self, core: LogLinear) -> None:
        n_slots = core.mean.shape[3]
        self.kind = core.kind
        self._weight, self._bias = (part[0].detach().numpy() for part in (core.weight, core.bias))
        self._slots = core.slots[0].detach().numpy().reshape(-1, n_slots)
        self._deviation = core.deviation[0, 0].numpy()
        self._mean, self._scale = core.mean[0, 0].numpy(), core.scale[0, 0].numpy()

    def logits(self, given: Floats, n_open: int, known: Floats) -> Floats:
        """(C,) from the distributions (N, C) of the models asked; only the first `n_open` slots exist."""
        weight = known @ self._weight
        if self.kind == "answers":
            of_answers: Floats = weight @ given
            return of_answers
        asked = given.sum(axis=1) > 0
        logs = np.maximum(np.log(np.maximum(given[:, :n_open], _TINY)), LEAST)
        centred = np.zeros_like(given)
        centred[:, :n_open] = logs - logs.mean(axis=1, keepdims=True)
        own = (centred - self._mean) * self._scale
        own[:, n_open:] = 0
        own[~asked] = 0
        shared = np.where(asked, weight / self._deviation[:, 0], 0) @ centred
        logits: Floats = shared + own.ravel() @ self._slots + known @ self._bias
        return logits


class Network:
    """Fusion's network for one document of one seed."""

    def __init__(self, trained: RLFocalAgents) -> None:
        fusion = trained.networks.fusion
        standardiser = fusion.standardiser
        self._mean, self._scale = (part[0, 0].numpy() for part in (standardiser.mean, standardiser.scale))
        assert fusion.network is not None
        self._layers = _layers(fusion.network)
        self._vote_weight = fusion.vote_weight
        # What past rewards add to the first layer is the same for every query.
        weight, bias = self._layers[0]
        past: Floats = trained.memory.past_rewards.numpy()
        n_outputs = fusion.n_outputs
        self._layers[0] = (np.ascontiguousarray(weight[:n_outputs]), bias + past @ weight[n_outputs:])

    def logits(self, given: Floats, *, with_vote: bool) -> Floats:
        """(C,) from the distributions (N, C) of the models that were asked."""
        asked = given.sum(axis=1) > 0
        standard = np.where(asked[:, None], (given - self._mean) * self._scale, 0)
        hidden = standard.ravel()
        for weight, bias in self._layers[:-1]:
            hidden = 1 / (1 + np.exp(-(hidden @ weight + bias)))
        weight, bias = self._layers[-1]
        logits: Floats = hidden @ weight + bias
        if with_vote:
            size = max(int(standard.any(axis=1).sum()), 1)
            logits = logits + standard.sum(axis=0) * (self._vote_weight / size)
        return logits


class PoolDriver:
    """The Decider picks one pool per query, from the question and the previous pool."""

    def __init__(self, agents: RLFocalAgents) -> None:
        self._agents, self._one_query = agents, OneQuery(agents)
        self._pool = np.zeros(len(agents.models), dtype=np.bool_)
        self._accuracy = agents.recent_accuracy
        self._best = np.argsort(-self._accuracy, kind="stable").tolist()

    def tracker(self) -> Tracker:
        promised = max((episode.accuracy for episode in self._agents.history), default=0.0)
        size = max(3, round(float(self._pool.sum())))
        return Tracker(self._accuracy, promised, min(size, len(self._best)), self._agents.seed)

    def begin(self, question: str, task: str) -> None:
        self._pool = self._one_query.choose(question, task)

    def forget(self) -> None:
        pass

    def wanted(self, given: Given) -> Mask:
        """The pool and, for each of its models that is down, the best other one that is not."""
        missing = int(self._pool[given.down].sum())
        if not missing:
            return self._pool
        others = [at for at in self._best if not self._pool[at] and at not in given.down]
        team = self._pool.copy()
        team[others[:missing]] = True
        return team

    def fuse(self, given: Given) -> Fused:
        if not given.probs.any():
            return NOTHING
        asked = self.wanted(given) & given.asked & ~given.is_down
        self._one_query.pool = (asked if asked.any() else given.asked & ~given.is_down).astype(np.float32)
        fused = self._one_query.fuse(given.probs, given.probs.shape[1])
        self._one_query.pool = self._pool.astype(np.float32)
        return fused


def _layers(network: nn.Sequential) -> list[tuple[Floats, Floats]]:
    """Weights (n_in, n_out) and biases (n_out,) of the one seed."""
    linear = [layer for layer in network if isinstance(layer, StackedLinear)]
    return [(layer.weight[0].detach().numpy(), layer.bias[0, 0].detach().numpy()) for layer in linear]
