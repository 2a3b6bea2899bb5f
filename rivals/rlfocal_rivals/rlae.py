"""RLAE: for each document, Gaussian policies trained by PPO set the weights with which models are fused.

The paper's process, a step per span of the answer, is reduced to one step. The state is the question and each
model's entropy. The action is a logit per model, whose softmax gives the weights w. The answer is argmax_c
Σ_k w_k q_k(c), where q_k are model k's probabilities, and the reward is ±1. With a single step, GAE is r -
V(s), whatever γ and λ. Stored outputs do not show how models would go on after a different first span.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np

from rlfocal.base.arrays import Floats
from rlfocal.data.calls import Answers, Calls
from rlfocal.data.dataset import Dataset
from rlfocal.data.text import TFIDF, questions_of
from rlfocal.methods.checking import Range
from rlfocal.methods.registry import MethodBase, answer_policy
from rlfocal.statistics.votes import soft_vote
from rlfocal_rivals.directions import Directions, fit_directions

if TYPE_CHECKING:
    from rlfocal_rivals.networks import WeightPolicies


@dataclass(frozen=True)
class Rlae(MethodBase):
    """RLAE's settings, for one agent or for an agent per model."""

    has_agent_per_model: ClassVar[bool]
    """Whether each model has its own agent; if not, one agent sets all weights."""
    encoder: str = TFIDF
    directions: Annotated[int, Range(4, 64, log=True)] = 16
    """The number of principal directions of the questions that the policies see."""
    hidden: Annotated[int, Range(16, 128, log=True)] = 64
    iterations: int = 300
    batch: int = 512
    """The number of documents in an iteration."""
    draws: int = 8
    """The number of actions drawn per document."""
    epochs: Annotated[int, Range(1, 10)] = 4
    """The number of gradient steps on the actions drawn in an iteration."""
    clip: float = 0.2
    learning_rate: Annotated[float, Range(3e-4, 3e-2, log=True)] = 3e-3
    spread: Annotated[float, Range(0.1, 3.0, log=True)] = 1.0
    """The policies' initial standard deviation, in logits; training changes it."""
    seeded = True

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[WeightedPolicy]:
        # torch takes seconds to import, and listing the methods must not.
        from rlfocal_rivals.networks import learn_weights

        directions = fit_directions(self.encoder, questions_of(train), self.directions)
        states = states_of(train, directions)
        middle, spread = states.mean(axis=0), states.std(axis=0)
        scale = np.where(spread > 1e-9, spread, 1.0)
        learned = learn_weights((states - middle) / scale, train.probs, train.labels, seeds, self)
        return [WeightedPolicy(directions, middle, scale, weighers) for weighers in learned]


@dataclass(frozen=True)
class WeightedPolicy:
    """Asks all models, and answers the slot with the highest weighted mean probability. The weights are the
    softmax of the policies' mean logits."""

    directions: Directions
    middle: Floats
    """(K + N,) the mean state on train, subtracted from each state"""
    scale: Floats
    """(K + N,) the standard deviations of states on train, by which each state is divided"""
    weighers: WeightPolicies

    def decide(self, calls: Calls) -> Answers:
        documents = calls.call_all()
        weights = self.weighers.weights((states_of(documents, self.directions) - self.middle) / self.scale)
        weighed = weights[:, :, None] * documents.probs
        slots = soft_vote(weighed, calls.called, calls.kind)
        return Answers(slots, weighed.sum(axis=1).max(axis=1, initial=0.0))


def states_of(documents: Dataset, directions: Directions) -> Floats:
    """(T, K + N) the states: questions' coordinates along `directions`, and each model's entropy in nats."""
    p = documents.probs
    entropies = -(p * np.log(np.where(p > 0, p, 1.0))).sum(axis=2)
    return np.hstack([directions.encode(questions_of(documents)), entropies])


@answer_policy(
    "rlae_ppo",
    "all",
    "the highest mean probability, with weights that one agent sets for each document (PPO)",
    fewest_models=2,
    source="RLAE, arXiv 2506.00439",
    differs="one span: stored outputs cannot be reweighted within an answer; a small network on text "
    "features and the models' entropies in place of a language model",
)
@dataclass(frozen=True)
class RlaePpo(Rlae):
    """RLAE with one agent, which sets all weights by the question and all models' entropies."""

    has_agent_per_model: ClassVar[bool] = False


@answer_policy(
    "rlae_mappo",
    "all",
    "the highest mean probability, with weights, each set by its model's own agent (MAPPO)",
    fewest_models=2,
    source="RLAE, arXiv 2506.00439",
    differs="one span, as in `rlae_ppo`; an agent sees the question and its own model's entropy, the "
    "critic all of them",
)
@dataclass(frozen=True)
class RlaeMappo(Rlae):
    """RLAE with an agent per model, which sets its weight; they share a reward and a central critic."""

    has_agent_per_model: ClassVar[bool] = True
