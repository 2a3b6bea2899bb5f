"""A selector that asks one model first, whose output decides whether to ask another model, and which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from rlfocal.base.arrays import Bools, Floats, Ints
from rlfocal.data.calls import Answers, Calls
from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import Budget, decide, least_enough
from rlfocal.data.text import TFIDF
from rlfocal.methods.checking import Range
from rlfocal.methods.knn import NEIGHBOUR_SPACES, SimilarityEncoder, find_similar, fit_likeness, local_mean
from rlfocal.methods.log_linear import WEIGHT_RIDGE, LogLinearPool, fit_log_linear
from rlfocal.methods.reference import best_on_train
from rlfocal.methods.registry import MethodBase, answer_policy

TUNED_VALUE = "tuned"
MAX_NEXT_MODELS = 16
"""The most models that may be asked next: the most accurate on train, if there are more."""
NEIGHBOUR_COUNTS = (25, 50, 100, 200)
"""The numbers of neighbours that are tried."""


@answer_policy(
    "outputs_knn",
    "the best model on train, then the one that helps most on similar train documents, if any does",
    "the `log_linear` of those asked",
    has_budgets=True,
    fewest_models=2,
    source="ours, after k-nearest-neighbour routers (RouterBench; arXiv 2505.12601)",
    differs="neighbours by the log-probs of the model already asked, by text or by both, instead of by "
    "text alone; their kind and number by leave-one-out on train",
    needs=("log-probs",),
    with_task="fitted per task",
)
@dataclass(frozen=True)
class OutputsKnn(MethodBase):
    """Asks a few models, then at most one more, chosen by the nearest train documents.

    An action is to ask no more, or to ask model m. Its value is the accuracy on the k nearest train documents
    of the log-linear ensemble of all models then asked. Another model is asked where its gain in value is
    worth its price.
    """

    neighbours: str = TUNED_VALUE
    """The kind of similarity: "text", "outputs", "both", or "tuned": the best on train by leave-one-out."""
    probes: Annotated[int, Range(1, 3)] = 1
    """The number of models asked first."""
    ridge: Annotated[float, Range(1e-4, 100.0, log=True)] = WEIGHT_RIDGE
    """The ridge penalty of the log-linear ensembles."""
    encoder: str = TFIDF

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[Selector]:
        ranked = best_on_train(train, len(train.models)).tolist()
        probes, more = ranked[: self.probes], ranked[self.probes :][:MAX_NEXT_MODELS]
        pools = [
            fit_log_linear(train, _mask(asked, train), self.ridge)
            for asked in (probes, *([*probes, m] for m in more))
        ]
        right = np.stack([decide(pool, train).predictions == train.labels for pool in pools], axis=1)
        right = (right & (train.labels >= 0)[:, None]).astype(np.float64)
        outputs = Calls(train).call(_mask(probes, train))
        kinds: Sequence[str] = [self.neighbours]
        if self.neighbours == TUNED_VALUE:
            kinds = NEIGHBOUR_SPACES if any(train.questions) else ("outputs",)
        tried = [_fit_value(fit_likeness(by, self.encoder, train), outputs, probes, right) for by in kinds]
        best = max(tried, key=lambda value: value.n_right)
        return [Selector(tuple(probes), tuple(more), tuple(pools), best, train.prices)]


def _mask(models: Sequence[int], documents: Dataset) -> Bools:
    return np.isin(np.arange(len(documents.models)), models)


@dataclass(frozen=True)
class ActionValues:
    """The values of actions on a document, from their results on similar train documents."""

    encoder: SimilarityEncoder
    k: int
    train_vectors: Floats
    """(n, D) train documents as vectors."""
    right: Floats
    """(n, A) 1 where an action is right on train, else 0."""
    leave_one_out: Floats
    """(n, A) the value of each action on each train document, from the other train documents."""
    n_right: float

    def __call__(self, outputs: Dataset, probes: Sequence[int]) -> Floats:
        """(T, A) the value of each action on T documents, from the outputs of the models `probes`."""
        neighbours = find_similar(self.train_vectors, self.encoder.vectors(outputs, probes), self.k)
        return local_mean(neighbours, self.right, self.k)


def _fit_value(
    encoder: SimilarityEncoder, outputs: Dataset, probes: Sequence[int], right: Floats
) -> ActionValues:
    """Chooses the number of neighbours by which actions are right most often on train; ties: the smaller."""
    vectors = encoder.vectors(outputs, probes)
    nearest = find_similar(vectors, vectors, NEIGHBOUR_COUNTS[-1], excludes_self=True)
    tried = []
    for k in NEIGHBOUR_COUNTS:
        values = local_mean(nearest, right, k)
        n_right = right[np.arange(len(right)), _choose_actions(values, None)].sum()
        tried.append(ActionValues(encoder, k, vectors, right, values, float(n_right)))
    return max(tried, key=lambda value: value.n_right)


@dataclass(frozen=True)
class Selector:
    """Asks the models `probes`, and one more where its value less its toll exceeds that of asking no more."""

    probes: tuple[int, ...]
    next_models: tuple[int, ...]
    pools: tuple[LogLinearPool, ...]
    """The log-linear ensemble of the probes, and of the probes with each of `next_models`."""
    value: ActionValues
    prices: Floats
    tolls: Floats | None = None
    """(A,) λ · cost of each action, which is subtracted from its value; None: no tolls."""

    def decide(self, calls: Calls) -> Answers:
        models = np.arange(len(calls.models))
        value = self.value(calls.call(np.isin(models, self.probes)), self.probes)
        action = _choose_actions(value, self.tolls)
        asked = np.array([-1, *self.next_models])[action]
        outputs = calls.call(asked[:, None] == models)
        slots = np.full(len(calls), -1, dtype=np.int64)
        for number, pool in enumerate(self.pools):
            here = np.flatnonzero(action == number)
            slots[here] = decide(pool, outputs.take(here)).predictions
        return Answers(slots, np.take_along_axis(value, action[:, None], axis=1)[:, 0])

    def hold_to_budget(self, budget: Budget) -> Selector | None:
        """The selector with the smallest λ that keeps to the budget on train.

        None if the probes alone exceed the budget.
        """
        cost = budget.costs(self.prices)
        first, extra = cost[list(self.probes)].sum(), np.array([0.0, *cost[list(self.next_models)]])
        left = budget.amount - first + 1e-9
        if left < 0:
            return None

        def scale_costs(toll: float) -> Floats:
            return np.where(np.isfinite(extra), toll * np.where(np.isfinite(extra), extra, 0.0), np.inf)

        def keeps_budget(toll: float) -> bool:
            return bool(extra[_choose_actions(self.value.leave_one_out, scale_costs(toll))].mean() <= left)

        # No gain exceeds 1, so a model with a toll of 2 is never asked.
        most = 2 / min((c for c in extra if 0 < c < np.inf), default=1.0)
        toll = 0.0 if keeps_budget(0.0) else least_enough(keeps_budget, 0.0, most, 50)
        return replace(self, tolls=scale_costs(toll))


def _choose_actions(value: Floats, tolls: Floats | None) -> Ints:
    """(T,) the action with the highest value (T, A) less its toll (A,); ties: the first action."""
    action: Ints = (value if tolls is None else value - tolls).round(9).argmax(axis=1)
    return action
