"""RouterBench's learned routers: one regression per model, by a network or a support vector machine."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt

from rlfocal.base.arrays import Floats
from rlfocal.data.dataset import Dataset
from rlfocal.data.text import TFIDF, Encoder, fit_encoder
from rlfocal.methods._routing import Scorer, ScoreRouter, check_prices, question_router
from rlfocal.methods._text import questions_of
from rlfocal.methods.checking import Range, Worth, checked
from rlfocal.methods.neighbours import vectors_of
from rlfocal.methods.registry import MethodBase

DIFFERS = (
    "TF-IDF instead of a sentence encoder unless one is named; prices do not count unless a willingness to "
    "pay or a budget in cents is given"
)


class Regressor(Protocol):
    """A regression of scikit-learn."""

    def fit(self, X: Floats, y: Floats) -> Regressor: ...

    def predict(self, X: Floats) -> Floats: ...


@question_router(
    "mlp",
    "the model whose own network (100 hidden units) expects it to be right most",
    source="RouterBench's MLP router (arXiv 2403.12031)",
    differs=f"{DIFFERS}; at most 50 passes over train, not 200, which take long and overfit",
    space={
        "hidden": Range(25, 200, log=True),
        "rate": Range(1e-4, 1e-2, log=True),
        "decay": Range(1e-6, 1e-2, log=True),
    },
)
@checked
class MLPRegressors(MethodBase):
    """Asks argmax_m W · f_m(e(x)) - price_m, f_m scikit-learn's network fitted to m's correctness."""

    hidden: PositiveInt = 100
    """units of the hidden layer"""
    rate: PositiveFloat = 1e-3
    epochs: PositiveInt = 50
    """at most; fitting ends when the loss stops falling"""
    decay: NonNegativeFloat = 1e-4
    """L2 penalty on the weights"""
    willingness: Worth = math.inf
    """W"""
    encoder: str = TFIDF
    seeded = True

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[ScoreRouter]:
        # scikit-learn takes a second to import, and listing the methods must not.
        from sklearn.neural_network import MLPRegressor

        made = {"learning_rate_init": self.rate, "max_iter": self.epochs, "alpha": self.decay}
        return [
            _route(
                "mlp", MLPRegressor(hidden_layer_sizes=(self.hidden,), random_state=seed, **made), train, self
            )
            for seed in seeds
        ]


@question_router(
    "svm",
    "the model whose own support vector machine scores highest",
    source="RouterBench's SVM router (arXiv 2403.12031)",
    differs=DIFFERS,
    space={
        "cost": Range(0.01, 100.0, log=True),
        "epsilon": Range(0.0, 0.3),
    },
)
@checked
class SupportVectors(MethodBase):
    """Asks argmax_m W · f_m(e(x)) - price_m, f_m a linear support vector regression of m's correctness."""

    cost: PositiveFloat = 1.0
    """C, the weight of errors against that of the weights' length"""
    epsilon: NonNegativeFloat = 0.0
    """errors that count as none"""
    willingness: Worth = math.inf
    """W"""
    encoder: str = TFIDF

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[ScoreRouter]:
        from sklearn.svm import LinearSVR

        machine = LinearSVR(C=self.cost, epsilon=self.epsilon, random_state=1234)
        return [_route("svm", machine, train, self, is_probability=False)]


@dataclass(frozen=True)
class Regressions(Scorer):
    """What each model's regression predicts."""

    encoder: Encoder
    fitted: tuple[Regressor, ...]
    """one per model"""
    questions: tuple[str, ...]

    def scores(self, questions: tuple[str, ...]) -> Floats:
        vectors = vectors_of(self.encoder, questions)
        return np.stack([one.predict(vectors) for one in self.fitted], axis=1)


def _route(
    name: str,
    regressor: Regressor,
    train: Dataset,
    settings: MLPRegressors | SupportVectors,
    is_probability: bool = True,
) -> ScoreRouter:
    from sklearn.base import clone
    from sklearn.exceptions import ConvergenceWarning

    from rlfocal.methods.learning.stacked import one_thread

    weight = 1 / settings.willingness
    if weight:
        check_prices(name, "willingness", settings.willingness, train)
    questions = questions_of(train)
    encoder = fit_encoder(settings.encoder, questions)
    vectors = vectors_of(encoder, questions)
    with one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the originals stop after as many steps
        fitted = tuple(clone(regressor).fit(vectors, right) for right in train.correct.T.astype(float))
    return ScoreRouter(Regressions(encoder, fitted, questions), train.prices, weight, is_probability)
