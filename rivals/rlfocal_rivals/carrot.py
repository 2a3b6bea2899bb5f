"""CARROT: every model's accuracy and cost on a question are predicted, and the best trade-off is asked."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field, PositiveFloat

from rlfocal.base.arrays import Floats
from rlfocal.data.dataset import Dataset
from rlfocal.data.text import TFIDF, Encoder, fit_encoder
from rlfocal.methods.checking import Range, checked
from rlfocal.methods.knn import NeighbourScores
from rlfocal.methods.neighbours import cosines, mean_over, nearest, vectors_of
from rlfocal.methods.registry import MethodBase
from rlfocal.methods.routing import Scorer, ScoreRouter, question_router
from rlfocal.methods.text import questions_of
from rlfocal_rivals.question import Predicted, logistic


@dataclass(frozen=True)
class Carrot(MethodBase):
    """Asks argmin (1 - μ) · error + μ · cost; a subclass says how accuracies and costs are estimated."""

    mu: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """μ, the weight of cost"""
    encoder: str = TFIDF

    @abstractmethod
    def estimate(self, encoder: Encoder, train: Dataset) -> tuple[Scorer, Scorer]:
        """Of accuracies and of costs, in cents per 1,000 queries, from the questions."""

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[ScoreRouter]:
        accuracy, costs = self.estimate(fit_encoder(self.encoder, questions_of(train)), train)
        weight = self.mu / (1 - self.mu) / train.mean_costs.max() if self.mu else 0.0
        return [ScoreRouter(accuracy, train.mean_costs, weight, costs=costs)]


_SOURCE = "CARROT (arXiv 2502.03261)"
_DIFFERS = (
    "costs are shares of the dearest model's, and do not count unless μ or a budget in cents is given; a "
    "query without known tokens costs its model's flat price; TF-IDF instead of a sentence encoder unless "
    "one is named"
)


@question_router(
    "carrot_knn",
    "the model with the best trade-off of accuracy and cost, both predicted from similar questions",
    needs=("questions", "prices"),
    source=_SOURCE,
    differs=_DIFFERS,
)
@checked
class CarrotKNN(Carrot):
    """Predicts by the mean over k nearest questions: one k for the accuracies of all models, one for costs.

    k is one of 2, 4, 8, ... up to `most`: that with the highest R² on five folds of train, taken in order.
    """

    most: Annotated[int, Field(ge=2), Range(32, 1024, log=True)] = 512
    """largest k"""
    revision = "2"

    def estimate(self, encoder: Encoder, train: Dataset) -> tuple[Scorer, Scorer]:
        X = vectors_of(encoder, questions_of(train))
        accuracy, costs = (
            NeighbourScores(encoder, X, values, best_k(X, values, self.most))
            for values in (train.correct.astype(float), train.costs.astype(float))
        )
        return accuracy, costs


def best_k(X: Floats, values: Floats, most: int) -> int:
    """The power of 2 up to `most` with the highest R² of values (n, N) on five folds.

    Of train documents (n, D) in order, not shuffled; R² is averaged over models and folds. Ties: the least.
    """
    # scikit-learn takes a second to import, and listing the methods must not.
    from sklearn.metrics import r2_score
    from sklearn.model_selection import KFold

    if len(X) < 10:  # a fold of one document has no R²
        return 2
    ks = [2**power for power in range(1, 10) if 2**power <= min(most, len(X) * 4 // 5)]
    quality = np.zeros(len(ks))
    for learnt, held in KFold(5).split(X):
        at = nearest(cosines(X[learnt], X[held]), ks[-1]).at
        quality += [r2_score(values[held], mean_over(values[learnt], at[:, :k])) for k in ks]
    best: int = ks[int(quality.round(9).argmax())]
    return best


@question_router(
    "carrot_linear",
    "the model with the best trade-off of accuracy and cost, both predicted by linear regressions",
    needs=("questions", "prices"),
    source=_SOURCE,
    differs=f"{_DIFFERS}; regressions on fixed vectors, not a fine-tuned RoBERTa",
)
@checked
class CarrotLinear(Carrot):
    """Predicts accuracy by a logistic regression per model, and cost by ridge regressions."""

    penalty: Annotated[PositiveFloat, Range(0.01, 100.0, log=True)] = 1.0
    """on squared weights, of either regression"""

    def estimate(self, encoder: Encoder, train: Dataset) -> tuple[Scorer, Scorer]:
        # scikit-learn takes a second to import, and listing the methods must not.
        from sklearn.linear_model import LogisticRegression, Ridge

        questions = questions_of(train)
        X, right = vectors_of(encoder, questions), train.correct
        weights, bases = np.zeros((X.shape[1], right.shape[1])), np.zeros(right.shape[1])
        for model, of_model in enumerate(right.T):
            if len(np.unique(of_model)) < 2:
                bases[model] = 30.0 if of_model.all() else -30.0
            else:
                fitted = LogisticRegression(C=1 / self.penalty, max_iter=1000).fit(X, of_model)
                weights[:, model], bases[model] = fitted.coef_[0], fitted.intercept_[0]
        costs = Ridge(self.penalty).fit(X, train.costs.astype(float))
        return (
            Predicted(encoder, lambda e: logistic(e @ weights + bases), questions),
            Predicted(encoder, lambda e: costs.predict(e).reshape(len(e), -1), questions),
        )
