"""How competent models are on a document, judged on nearby train documents, by deskit and DESlib."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from rlfocal.base.arrays import Floats, Ints
from rlfocal.base.errors import InputError
from rlfocal.data.dataset import Dataset
from rlfocal.methods.neighbours._likeness import alike


class Competence(Protocol):
    """Gives the models' weights on documents."""

    def __call__(self, vectors: Floats, said: Dataset) -> Floats:
        """(T, N) non-negative weights that sum to 1, from vectors (T, D) and the models' outputs."""
        ...


class Kind(NamedTuple):
    """An algorithm and its properties."""

    fit: Callable[[Floats, Dataset, int], Competence]
    """Takes the vectors of the train documents, train itself, and the number of neighbours."""
    votes: bool
    """Whether its weights apply to votes instead of probabilities."""
    sees_answers: bool = False
    """Whether it needs all answers, even if neighbours are found by text."""


@dataclass(frozen=True)
class Deskit:
    """A fitted deskit router."""

    router: Any
    """deskit.base.KNNBase or deskit.LWSEU"""
    n_models: int

    def __call__(self, vectors: Floats, said: Dataset) -> Floats:
        found = self.router.predict_weights(vectors)
        rows = [found] if isinstance(found, dict) else found
        return np.array([[row[model] for model in range(self.n_models)] for row in rows])


def _by_scores(name: str) -> Callable[[Floats, Dataset, int], Competence]:
    """A deskit router on scores: 1 where a model is right, or (DEWSU) its probability of the right slot."""

    def fit(known: Floats, train: Dataset, k: int) -> Competence:
        import deskit

        score = _of_right(train) if name == "DEWSU" else train.correct.astype(np.float64)
        router = getattr(deskit, name)(task="classification", metric=None, mode="max", k=k)
        router.fit(known, np.maximum(train.labels, 0), dict(enumerate(score.T)))
        return Deskit(router, len(train.models))

    return fit


def _lwse(known: Floats, train: Dataset, k: int) -> Competence:
    from deskit import LWSEU

    classes = Classes.of(train)
    probs = classes.probs(train)
    router = LWSEU(task="classification", k=k)
    router.fit(known, classes.labels(train), {model: probs[:, model] for model in range(len(train.models))})
    return Deskit(router, len(train.models))


@dataclass(frozen=True)
class Deslib:
    """A DESlib selector: the models that it finds competent vote."""

    selector: Any
    """deslib.des.base.BaseDES, fitted"""
    classes: Classes

    def __call__(self, vectors: Floats, said: Dataset) -> Floats:
        probs = self.classes.probs(said)
        _, near = self.selector.get_competence_region(np.hstack([vectors, probs.reshape(len(probs), -1)]))
        if self.selector.needs_proba:
            competences = self.selector.estimate_competence_from_proba(near, probs)
        else:
            competences = self.selector.estimate_competence(near)
        selected = self.selector.select(competences)
        weights: Floats = selected / selected.sum(axis=1, keepdims=True)
        return weights


@dataclass(frozen=True)
class Uniform:
    """Equal weights, for when nothing tells the models apart."""

    def __call__(self, vectors: Floats, said: Dataset) -> Floats:
        return np.full(said.predictions.shape, 1 / len(said.models))


def _by_deslib(module: str, name: str) -> Callable[[Floats, Dataset, int], Competence]:
    """A selector of DESlib 0.3.7, patched for scikit-learn 1.6 and later, which lack methods its fit calls.

    DESlib expects classifiers that it can call. It gets features that already contain every model's output,
    and per model a feature subspace with a classifier that returns those columns; neighbours are found by the
    columns before them. Its own prediction is not used: ties and missing answers are settled as elsewhere.
    """

    def fit(known: Floats, train: Dataset, k: int) -> Competence:
        base = _deslib_class(module, name)
        if train.correct.all() or not train.correct.any() or len(train) < 3:
            return Uniform()
        classes = Classes.of(train)
        probs = classes.probs(train)
        T, N, C = probs.shape
        X = np.hstack([known, probs.reshape(T, -1)])

        class Carried(base):  # type: ignore[misc, valid-type]
            def _check_base_classifier_fitted(self) -> None:
                """Nothing has to be fitted."""

            def _validate_data(self, X: Floats, y: Ints, **_: Any) -> Any:
                return X, y

            def _setup_label_encoder(self, y: Ints) -> None:
                # Train labels may lack slots that models answer.
                super()._setup_label_encoder(np.arange(C))

        pool = Spoken([Said(np.arange(C)) for _ in range(N)])
        pool.estimators_features_ = known.shape[1] + np.arange(N * C).reshape(N, C)
        k = max(min(k, T - 2), 2)
        finder = lambda n_neighbors: Leading(n_neighbors, known.shape[1], X.shape[1])  # noqa: E731
        selector = Carried(pool, k=k, knn_classifier=finder, n_jobs=1)
        if hasattr(selector, "Kp"):
            selector.Kp = min(selector.Kp, T - 2)
        return Deslib(selector.fit(X, classes.labels(train)), classes)

    return fit


def _deslib_class(module: str, name: str) -> Any:
    from importlib import import_module

    try:
        return getattr(import_module(module), name)
    except ImportError:
        raise InputError(
            f"des:{module.rpartition('.')[2]} needs DESlib; install it (pip install 'rlfocal[des]'), or "
            "leave the method out"
        ) from None


class Spoken(list["Said"]):
    """DESlib's pool of classifiers."""

    estimators_features_: Ints
    """(N, C) the columns that each classifier sees."""


@dataclass(frozen=True)
class Said:
    """A classifier that returns its features as its probabilities."""

    classes_: Ints

    def predict_proba(self, X: Floats) -> Floats:
        return X

    def predict(self, X: Floats) -> Ints:
        classes: Ints = X.argmax(axis=1)
        return classes


class Leading:
    """DESlib's neighbour search, on the leading columns; on all columns where it passes only outputs."""

    def __init__(self, n_neighbors: int, leading: int, width: int) -> None:
        self.n_neighbors, self.leading, self.width = n_neighbors, leading, width
        self.metric, self.metric_params = "minkowski", None  # DESlib sets both

    def fit(self, X: Floats, y: Ints) -> None:
        self._known = self._columns(X)

    def kneighbors(self, X: Floats, n_neighbors: int, return_distance: bool) -> tuple[Floats, Ints]:
        found = alike(self._known, self._columns(X), n_neighbors)
        return 1 / found.similarity - 1, found.at

    def _columns(self, X: Floats) -> Floats:
        return X[:, : self.leading] if X.shape[1] == self.width else X


def _of_right(train: Dataset) -> Floats:
    """(T, N) the probability that a model gives the right slot; 0 if no slot is right."""
    at = np.maximum(train.labels, 0)[:, None, None]
    return np.where(train.labels[:, None] >= 0, np.take_along_axis(train.probs, at, axis=2)[:, :, 0], 0.0)


@dataclass(frozen=True)
class Classes:
    """Slots as classes, plus two more if a document may lack a right slot or an answer."""

    n_slots: int
    more: bool
    """Adds a class for no answer, then one that no model gives: the label where no slot is right."""

    @classmethod
    def of(cls, train: Dataset) -> Classes:
        n_slots = train.probs.shape[2]
        return cls(n_slots, train.kind == "answers" or n_slots < 2 or bool((train.labels < 0).any()))

    def probs(self, documents: Dataset) -> Floats:
        """(T, N, classes)"""
        given = np.pad(documents.probs, ((0, 0), (0, 0), (0, self.n_slots)))[..., : self.n_slots]
        if not self.more:
            return given
        none = np.maximum(1 - given.sum(axis=2, keepdims=True), 0.0).round(9)
        return np.concatenate([given, none, np.zeros_like(none)], axis=2)

    def labels(self, train: Dataset) -> Ints:
        """(T,)"""
        return np.where(train.labels >= 0, train.labels, self.n_slots + 1)


COMPETENCES: Mapping[str, Kind] = {
    "knora_e": Kind(_by_scores("KNORAE"), votes=True),
    "knora_u": Kind(_by_scores("KNORAU"), votes=True),
    "ola": Kind(_by_scores("OLA"), votes=True),
    "dews": Kind(_by_scores("DEWSU"), votes=False),
    "lwse": Kind(_lwse, votes=False),
    "meta_des": Kind(_by_deslib("deslib.des.meta_des", "METADES"), votes=True, sees_answers=True),
    "des_p": Kind(_by_deslib("deslib.des.des_p", "DESP"), votes=True),
}
