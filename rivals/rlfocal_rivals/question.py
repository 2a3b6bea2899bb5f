"""Routers that ask the model whose answer an estimator expects to be right, from the question's vector.

The estimator is fitted to which models were right on train. `QuestionRouter.learn` returns a function such as
scikit-learn's `fit(X, Y).predict`.
"""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from rlfocal.base.arrays import Floats
from rlfocal.data.dataset import Dataset
from rlfocal.data.text import TFIDF, Encoder, fit_encoder, questions_of
from rlfocal.methods.checking import Range, Worth, checked
from rlfocal.methods.knn import NeighbourScores, cosines, find_nearest, mean_over, vectors_of
from rlfocal.methods.registry import MethodBase
from rlfocal.methods.routing import ModelScorer, ScoreRouter, check_prices, question_router

if TYPE_CHECKING:
    from torch import Generator, Tensor

Predict = Callable[[Floats], Floats]
"""A function from questions' vectors (T, D) to the expected score of every model (T, N)."""


@dataclass(frozen=True)
class QuestionRouter(MethodBase):
    """Asks argmax_m f_m(e(x)) - price_weight · price_m, for a question's vector e(x); subclasses learn f."""

    encoder: str = TFIDF

    @abstractmethod
    def learn(self, X: Floats, right: Floats, seed: int) -> Predict:
        """The function f, fitted to train questions' vectors (n, D) and to which models were right (n, N)."""

    @property
    def is_probability(self) -> bool:
        """Whether an expected score f_m is the probability that model m is right."""
        return True

    def weigh_price(self, train: Dataset) -> float:
        """The score that a cent per 1,000 queries is worth; 0: prices do not count.

        Raises InputError if prices count and a model's price is unknown.
        """
        return 0.0

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[ScoreRouter]:
        weight, questions = self.weigh_price(train), questions_of(train)
        encoder = fit_encoder(self.encoder, questions)
        X, right = vectors_of(encoder, questions), train.correct.astype(float)
        return [
            ScoreRouter(
                PredictedScorer(encoder, self.learn(X, right, seed), questions),
                train.prices,
                weight,
                self.is_probability,
            )
            for seed in (seeds if self.seeded else seeds[:1])
        ]


@dataclass(frozen=True)
class PredictedScorer(ModelScorer):
    """A scorer whose scores are the estimator's predictions for each model."""

    encoder: Encoder
    predict: Predict
    questions: tuple[str, ...]

    def scores(self, questions: tuple[str, ...]) -> Floats:
        return self.predict(vectors_of(self.encoder, questions))


# ---- RouterBench's learned routers


_DIFFERENCES = (
    "TF-IDF instead of a sentence encoder unless one is named; prices do not count unless a willingness to "
    "pay or a budget in cents is given"
)


@dataclass(frozen=True)
class PricedRegression(QuestionRouter):
    """A router by one scikit-learn regression per model, whose scores are traded against prices."""

    willingness: Worth = math.inf
    """W, the worth of a right answer, in cents per 1,000 queries; inf: prices do not count."""

    def weigh_price(self, train: Dataset) -> float:
        if math.isfinite(self.willingness):
            check_prices(self.registered_name, "willingness", self.willingness, train)
        return 1 / self.willingness

    @abstractmethod
    def regressor(self, seed: int) -> object:
        """An unfitted regression of scikit-learn."""

    def learn(self, X: Floats, right: Floats, seed: int) -> Predict:
        # scikit-learn takes a second to import, and listing the methods must not.
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.multioutput import MultiOutputRegressor

        from rlfocal_rivals.networks import use_one_thread

        with use_one_thread(), warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the originals stop after as many steps
            predict: Predict = MultiOutputRegressor(self.regressor(seed)).fit(X, right).predict
        return predict


@question_router(
    "mlp",
    "the model whose own network (100 hidden units) expects it to be right most",
    source="RouterBench's MLP router (arXiv 2403.12031)",
    differs=f"{_DIFFERENCES}; at most 50 passes over train, not 200, which take long and overfit",
)
@checked
class MLPRegressors(PricedRegression):
    """Asks argmax_m W · f_m(e(x)) - price_m; the network f_m is fitted to where model m was right."""

    hidden: Annotated[PositiveInt, Range(25, 200, log=True)] = 100
    """The number of units of the hidden layer."""
    rate: Annotated[PositiveFloat, Range(1e-4, 1e-2, log=True)] = 1e-3
    epochs: PositiveInt = 50
    """The most epochs; fitting ends earlier when the loss stops falling."""
    decay: Annotated[NonNegativeFloat, Range(1e-6, 1e-2, log=True)] = 1e-4
    """The L2 penalty on the weights."""
    seeded = True

    def regressor(self, seed: int) -> object:
        from sklearn.neural_network import MLPRegressor

        made = {"learning_rate_init": self.rate, "max_iter": self.epochs, "alpha": self.decay}
        return MLPRegressor(hidden_layer_sizes=(self.hidden,), random_state=seed, **made)


@question_router(
    "svm",
    "the model whose own support vector machine scores highest",
    source="RouterBench's SVM router (arXiv 2403.12031)",
    differs=_DIFFERENCES,
)
@checked
class SupportVectors(PricedRegression):
    """Asks argmax_m W · f_m(e(x)) - price_m; f_m is a linear support vector regression of m's correctness."""

    cost: Annotated[PositiveFloat, Range(0.01, 100.0, log=True)] = 1.0
    """C of scikit-learn's LinearSVR: the weight of errors, against the penalty on the weights"""
    epsilon: Annotated[NonNegativeFloat, Range(0.0, 0.3)] = 0.0
    """The largest error that costs nothing, LinearSVR's epsilon."""
    is_probability = False

    def regressor(self, seed: int) -> object:
        from sklearn.svm import LinearSVR

        return LinearSVR(C=self.cost, epsilon=self.epsilon, random_state=1234)


# ---- what is learned by gradients


MIN_STEPS = 600
"""The minimum number of gradient steps, so that learning on few documents does not stop too early."""


@dataclass(frozen=True)
class Descent:
    """Settings of Adam on mini-batches of documents: how long and how fast a network learns."""

    epochs: Annotated[int, Range(3, 30, log=True)] = 10
    batch: int = 128
    """The number of documents in a gradient step."""
    rate: Annotated[float, Range(3e-4, 3e-2, log=True)] = 3e-3
    decay: float = 1e-4
    """The weight decay of Adam."""


def descend(
    how: Descent,
    parameters: Sequence[Tensor],
    loss: Callable[[Tensor], Tensor],
    n: int,
    generator: Generator,
    *,
    batch: int = 0,
    anneals: bool = True,
) -> None:
    """Minimises the mean `loss` over n documents by Adam, changing the parameters in place.

    `loss` gets the positions of a batch of documents. `anneals`: the learning rate falls linearly to 0. It
    runs on one thread, so that results are the same everywhere.
    """
    import torch

    from rlfocal_rivals.networks import use_one_thread

    batch = batch or how.batch
    optimiser = torch.optim.Adam(list(parameters), lr=how.rate, weight_decay=how.decay)
    steps = max(how.epochs * math.ceil(n / batch), MIN_STEPS) if n else 0
    order = torch.empty(0, dtype=torch.int64)
    with use_one_thread():
        for step in range(steps):
            if not len(order):
                order = torch.randperm(n, generator=generator)
            rows, order = order[:batch], order[batch:]
            if anneals:
                optimiser.param_groups[0]["lr"] = how.rate * (1 - step / steps)
            optimiser.zero_grad()
            loss(rows).backward()  # type: ignore[no-untyped-call]
            optimiser.step()


def uniform(*shape: int, generator: Generator, fan_in: int = 0) -> Tensor:
    """Initial weights, uniform between ±1 / √fan_in; by default, fan_in is the first dimension."""
    import torch

    drawn = torch.empty(shape).uniform_(-1, 1, generator=generator)
    return drawn.div_(max(fan_in or shape[0], 1) ** 0.5).requires_grad_()


def to_numpy(*parts: Tensor) -> list[Floats]:
    return [part.detach().double().numpy() for part in parts]


def logistic(x: Floats) -> Floats:
    chance: Floats = 1 / (1 + np.exp(-np.clip(x, -500, 500)))
    return chance


# ---- CARROT: accuracy and cost of every model are predicted, and the best trade-off is asked


@dataclass(frozen=True)
class Carrot(MethodBase):
    """Asks argmin_m (1 - μ) · error_m + μ · cost_m, both estimated from the question as a subclass says. A
    cost is a share of the dearest model's mean cost."""

    mu: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """μ, the weight of cost against error"""
    encoder: str = TFIDF

    @abstractmethod
    def estimate(self, encoder: Encoder, train: Dataset) -> tuple[ModelScorer, ModelScorer]:
        """Scorers that estimate accuracies, and costs in cents per 1,000 queries, from a question."""

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[ScoreRouter]:
        accuracy, costs = self.estimate(fit_encoder(self.encoder, questions_of(train)), train)
        weight = self.mu / (1 - self.mu) / train.mean_costs.max() if self.mu else 0.0
        return [ScoreRouter(accuracy, train.mean_costs, weight, costs=costs)]


_CARROT = "CARROT (arXiv 2502.03261)"
_CARROT_DIFFERENCES = (
    "costs are shares of the dearest model's, and do not count unless μ or a budget in cents is given; a "
    "query without known tokens costs its model's flat price; TF-IDF instead of a sentence encoder unless "
    "one is named"
)


@question_router(
    "carrot_knn",
    "the model with the best trade-off of accuracy and cost, both predicted from similar questions",
    needs=("questions", "prices"),
    source=_CARROT,
    differs=_CARROT_DIFFERENCES,
)
@checked
class CarrotKNN(Carrot):
    """Predicts accuracies and costs by means over the k nearest train questions.

    All models' accuracies share one k, and all costs another. k is the power of 2, up to `most` and 512, with
    the highest R² on five unshuffled folds of train.
    """

    most: Annotated[int, Field(ge=2), Range(32, 1024, log=True)] = 512
    """The upper limit on k."""
    revision = "2"

    def estimate(self, encoder: Encoder, train: Dataset) -> tuple[ModelScorer, ModelScorer]:
        X = vectors_of(encoder, questions_of(train))
        accuracy, costs = (
            NeighbourScores(encoder, X, values, best_k(X, values, self.most))
            for values in (train.correct.astype(float), train.costs.astype(float))
        )
        return accuracy, costs


def best_k(X: Floats, values: Floats, most: int) -> int:
    """The number of neighbours that best predict values (n, N) from vectors X (n, D): a power of 2.

    It is at most `most` and 512, and has the highest R², averaged over models and five unshuffled folds.
    Ties: the smallest.
    """
    # scikit-learn takes a second to import, and listing the methods must not.
    from sklearn.metrics import r2_score
    from sklearn.model_selection import KFold

    if len(X) < 10:  # a fold of one document has no R²
        return 2
    ks = [2**power for power in range(1, min(most, len(X) * 4 // 5).bit_length())]
    quality = np.zeros(len(ks))
    for rest, fold in KFold(5).split(X):
        places = find_nearest(cosines(X[rest], X[fold]), ks[-1]).positions
        quality += [r2_score(values[fold], mean_over(values[rest], places[:, :k])) for k in ks]
    best: int = ks[int(quality.round(9).argmax())]
    return best


@question_router(
    "carrot_linear",
    "the model with the best trade-off of accuracy and cost, both predicted by linear regressions",
    needs=("questions", "prices"),
    source=_CARROT,
    differs=f"{_CARROT_DIFFERENCES}; regressions on fixed vectors, not a fine-tuned RoBERTa",
)
@checked
class CarrotLinear(Carrot):
    """Predicts accuracy by a logistic regression per model, and cost by ridge regressions."""

    penalty: Annotated[PositiveFloat, Range(0.01, 100.0, log=True)] = 1.0
    """The penalty on squared weights in both regressions."""

    def estimate(self, encoder: Encoder, train: Dataset) -> tuple[ModelScorer, ModelScorer]:
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
            PredictedScorer(encoder, lambda e: logistic(e @ weights + bases), questions),
            PredictedScorer(encoder, lambda e: costs.predict(e).reshape(len(e), -1), questions),
        )
