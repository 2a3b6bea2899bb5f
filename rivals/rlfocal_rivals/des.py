"""Dynamic ensemble selection: weighs models by how often they were right on similar train documents."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np

from rlfocal.base.arrays import Floats, Ints
from rlfocal.data.calls import Answers, Calls
from rlfocal.data.dataset import Dataset
from rlfocal.data.text import TFIDF
from rlfocal.methods.checking import Range
from rlfocal.methods.knn import SimilarityEncoder, find_similar, fit_likeness, local_mean
from rlfocal.methods.registry import MethodBase, answer_policy
from rlfocal.statistics.votes import soft_vote

N_NEIGHBOURS = 50
"""The number of nearest train documents on which models' competence is judged, unless set."""
Weigh = Callable[[Floats], Floats]
"""A function from documents' vectors (T, D) to models' weights (T, N), which are not negative and sum to
1."""


class DesAlgorithm(NamedTuple):
    """An algorithm of dynamic ensemble selection, with its properties."""

    fit: Callable[[Floats, Dataset, int], Weigh]
    """A function of the vectors of the train documents (n, D), train, and the number of neighbours."""
    votes: bool
    """Whether models' weights apply to their votes; if not, to their probabilities."""


def _weigh_by_deskit(router: Any, n_models: int) -> Weigh:
    """The weights that a fitted `deskit.base.KNNBase` or `deskit.LWSEU` gives to models."""

    def weigh(vectors: Floats) -> Floats:
        weights = router.predict_weights(vectors)
        rows = [weights] if isinstance(weights, dict) else weights
        return np.array([[row[model] for model in range(n_models)] for row in rows])

    return weigh


def _weigh_by_scores(name: str) -> Callable[[Floats, Dataset, int], Weigh]:
    """The function that fits deskit's class `name` to models' scores on train documents. A score is 1 where a
    model is right, else 0; for DEWSU, it is the probability of the right slot."""

    def fit(train_vectors: Floats, train: Dataset, k: int) -> Weigh:
        import deskit

        score = train.chances if name == "DEWSU" else train.correct.astype(np.float64)
        router = getattr(deskit, name)(task="classification", metric=None, mode="max", k=k)
        router.fit(train_vectors, np.maximum(train.labels, 0), dict(enumerate(score.T)))
        return _weigh_by_deskit(router, len(train.models))

    return fit


def _lwse(train_vectors: Floats, train: Dataset, k: int) -> Weigh:
    from deskit import LWSEU

    classes = SlotClasses.from_dataset(train)
    probs = classes.probs(train)
    router = LWSEU(task="classification", k=k)
    router.fit(
        train_vectors, classes.labels(train), {model: probs[:, model] for model in range(len(train.models))}
    )
    return _weigh_by_deskit(router, len(train.models))


def _weigh_above_chance(train_vectors: Floats, train: Dataset, k: int) -> Weigh:
    """The weights of DES-P (Woloszynski et al., 2012): equal for models that beat chance among neighbours.
    Where no model beats chance, all have equal weights."""
    classes = SlotClasses.from_dataset(train)
    right, chance = train.correct.astype(np.float64), 1 / classes.n_classes
    k = max(min(k, len(train) - 2), 2)

    def weigh(vectors: Floats) -> Floats:
        selected = local_mean(find_similar(train_vectors, vectors, k), right, k) > chance
        if right.all() or not right.any() or len(train) < 3:
            selected[:] = False
        selected |= ~selected.any(axis=1, keepdims=True)
        return np.asarray(selected / selected.sum(axis=1, keepdims=True))

    return weigh


@dataclass(frozen=True)
class SlotClasses:
    """A classifier's classes: the slots, and two more if a document may lack a right slot or an answer."""

    n_slots: int
    more: bool
    """Whether there are classes for no answer and for no right slot."""

    @classmethod
    def from_dataset(cls, train: Dataset) -> SlotClasses:
        n_slots = train.probs.shape[2]
        return cls(n_slots, train.kind == "answers" or n_slots < 2 or bool((train.labels < 0).any()))

    @property
    def n_classes(self) -> int:
        return self.n_slots + 2 * self.more

    def probs(self, documents: Dataset) -> Floats:
        """(T, N, classes) the models' probabilities of the classes."""
        given = np.pad(documents.probs, ((0, 0), (0, 0), (0, self.n_slots)))[..., : self.n_slots]
        if not self.more:
            return given
        none = np.maximum(1 - given.sum(axis=2, keepdims=True), 0.0).round(9)
        return np.concatenate([given, none, np.zeros_like(none)], axis=2)

    def labels(self, train: Dataset) -> Ints:
        """(T,) the class of each train document's right slot; the last class if no slot is right."""
        return np.where(train.labels >= 0, train.labels, self.n_slots + 1)


COMPETENCES: Mapping[str, DesAlgorithm] = {
    "knora_e": DesAlgorithm(_weigh_by_scores("KNORAE"), votes=True),
    "knora_u": DesAlgorithm(_weigh_by_scores("KNORAU"), votes=True),
    "ola": DesAlgorithm(_weigh_by_scores("OLA"), votes=True),
    "dews": DesAlgorithm(_weigh_by_scores("DEWSU"), votes=False),
    "lwse": DesAlgorithm(_lwse, votes=False),
    "des_p": DesAlgorithm(_weigh_above_chance, votes=True),
}


@answer_policy(
    "des",
    "all; with `neighbours=text` the selected ones alone",
    "a vote of those selected on similar train documents; `dews`, `lwse`: their mean probability",
    fewest_models=2,
    source="KNORA-E, KNORA-U (Ko et al., 2008), OLA (Woods et al., 1997), DEWS-U, LWSE-U "
    "(all by deskit), DES-P (Woloszynski et al., 2012)",
    differs="similarity is measured on all models' outputs, on text, or on both, not on features; "
    f"the {N_NEIGHBOURS} nearest instead of 7 to 10",
    argument="name",
    names=tuple(COMPETENCES),
    needs_argument=True,
    make=lambda making: DynamicSelection(making.argument or ""),
)
@dataclass(frozen=True)
class DynamicSelection(MethodBase):
    """Weighs models by their competence on the nearest train documents, the neighbours.

    knora_e: the models right on all neighbours; if none is, on as many of the nearest as any model. knora_u:
    one vote per neighbour that a model is right on. ola: the model right on most neighbours. dews: a softmax
    of mean probabilities of the right slot, relative to the best model's; models below half of it are left
    out. lwse: non-negative least squares from probabilities to labels. des_p: the models that beat chance.
    """

    name: str
    neighbours: str = "outputs"
    """The kind of similarity: "text", with which only selected models are asked, "outputs" or "both"."""
    nearest: Annotated[int, Range(3, 200, log=True)] = N_NEIGHBOURS
    encoder: str = TFIDF

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[Selection]:
        likeness = fit_likeness(self.neighbours, self.encoder, train)
        train_vectors = likeness.vectors(train, range(len(train.models)))
        kind = COMPETENCES[self.name]
        fitted = kind.fit(train_vectors, train, min(self.nearest, len(train)))
        return [Selection(likeness, fitted, self.neighbours != "text", kind.votes)]


@dataclass(frozen=True)
class Selection:
    """Answers by a vote of the competent models, or by their weighted mean probability."""

    encoder: SimilarityEncoder
    weigh: Weigh
    asks_all: bool
    votes: bool

    def decide(self, calls: Calls) -> Answers:
        everybody = range(len(calls.models))
        outputs = calls.call_all() if self.asks_all else calls.outputs()
        weights = self.weigh(self.encoder.vectors(outputs, everybody))
        outputs = calls.call(weights > 0)
        voted = outputs.predictions[:, :, None] == np.arange(outputs.probs.shape[2])
        weighed = weights[:, :, None] * (voted if self.votes else outputs.probs)
        slots = soft_vote(weighed, weights > 0, calls.kind)
        return Answers(slots, None if self.votes else weighed.sum(axis=1).max(axis=1, initial=0.0))
