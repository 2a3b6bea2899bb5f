"""The study of unnamed choices: can a policy learn when all models are wrong, and answer a choice none named?

On train, log-linear ensembles are cross-fitted: a document's logits come from one that did not see it. From
logits and the models' distributions, a regression estimates how likely two answers are right: the pool's, and
the likeliest choice that no model named. On test, the unnamed choice is answered where it is likelier right.
A control learns the same from shuffled labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from scipy.special import softmax

from benchmarks.studies.study import Conditions, StudyResult, point
from rlfocal.base.arrays import Bools, Floats, Ints
from rlfocal.base.errors import InputError
from rlfocal.base.wording import count_noun, decimal, percent, points
from rlfocal.data.dataset import Dataset
from rlfocal.data.folds import folds, split_folds
from rlfocal.methods.log_linear import answer_highest, evidence, fit_log_linear
from rlfocal.methods.stacking import INVERSE_RIDGE
from rlfocal.statistics.ceiling import find_unnamed, likeliest_unnamed
from rlfocal.statistics.intervals import Difference, paired_difference

N_FOLDS, SHUFFLES = 5, 20
POOL, UNNAMED_RIGHT, NONE_RIGHT = range(3)
"""The classes of a document: the pool's answer is right, the likeliest unnamed choice is, or neither is."""
ORACLE_LABEL = "told when all are wrong"
MIN_PROBABILITY = 1e-6


@dataclass(frozen=True)
class Cases:
    """T documents with the two answers between which a policy chooses, and features to choose by."""

    data: Dataset
    pool_answers: Ints
    """(T,) the pool's answers, as slots"""
    unnamed_choices: Ints
    """(T,) the likeliest choice that no model named; -1 if every choice was named"""
    features: Floats
    """(T, F) the inputs of the regression"""

    @property
    def right(self) -> Ints:
        """(T,) the class of each document: POOL, UNNAMED_RIGHT or NONE_RIGHT."""
        is_unnamed = np.where(self.data.is_right(self.unnamed_choices), UNNAMED_RIGHT, NONE_RIGHT)
        return np.where(self.data.is_right(self.pool_answers), POOL, is_unnamed)

    @property
    def none_right(self) -> Bools:
        return np.asarray(~self.data.correct.any(axis=1))

    def hits(self, switches: Bools) -> Floats:
        """(T,) 1 where the answer is right: the unnamed choice on documents in `switches` (T,), else the
        pool's."""
        slots = np.where(switches & (self.unnamed_choices >= 0), self.unnamed_choices, self.pool_answers)
        return self.data.is_right(slots).astype(np.float64)


class Estimates(NamedTuple):
    """Estimated probabilities that answers are right, on T documents."""

    right: Floats
    """(T, 3) the probabilities of the classes POOL, UNNAMED_RIGHT and NONE_RIGHT."""
    none_right: Floats
    """(T,) the probability that all models are wrong."""

    @property
    def switches(self) -> Bools:
        """(T,) whether the unnamed choice is likelier right than the pool's answer."""
        return np.asarray(self.right[:, UNNAMED_RIGHT] > self.right[:, POOL])


def unnamed(conditions: Conditions, values: Sequence[Any]) -> StudyResult:
    """Points of the log-linear ensemble, of switching to unnamed choices, of a control, and of an oracle."""
    data = conditions.setup.dataset
    if not len(data.logprobs) or min(len(data.train), len(data.test)) < N_FOLDS:
        raise InputError(
            f"{data.benchmark!r}: unnamed choices need log-probs of choices, and {N_FOLDS} documents or more "
            "in train and in test"
        )
    train, test = find_cases(data.train, data.test)
    learned = estimate(train, test, np.arange(len(data.train)))
    rng = np.random.default_rng(0)
    shuffled = [estimate(train, test, rng.permutation(len(data.train))) for _ in range(SHUFFLES)]
    pool_hits = test.hits(np.zeros(len(data.test), dtype=np.bool_))[None]
    answers = {
        "switches where it is likelier": test.hits(learned.switches)[None],
        "the same, labels shuffled": np.stack([test.hits(of.switches) for of in shuffled]),
        ORACLE_LABEL: test.hits(test.none_right)[None],
    }
    points = [point("log_linear", "log_linear", None, len(data.test), [float(pool_hits.mean())])]
    gains = {label: paired_difference(hits, pool_hits) for label, hits in answers.items()}
    for label, gain in gains.items():
        more = {"gain": (gain.mean, gain.low, gain.high), "p_value": gain.p_value}
        points.append(point(label, label, None, len(data.test), answers[label].mean(axis=1).tolist(), **more))
    return StudyResult(points, _summarise_switches(test, learned, shuffled, gains[ORACLE_LABEL]))


def find_cases(train: Dataset, test: Dataset) -> tuple[Cases, Cases]:
    """The cases of train, by ensembles fitted on the other folds, and of test, by one fitted on train."""
    logits = np.empty((len(train), train.probs.shape[2]))
    for rest, out in split_folds(folds(train, N_FOLDS)):
        logits[out] = _compute_logits(train.take(rest), train.take(out))
    return describe(train, logits), describe(test, _compute_logits(train, test))


def _compute_logits(train: Dataset, documents: Dataset) -> Floats:
    """(T, C) the logits of the log-linear ensemble of all models, fitted on `train`."""
    pool = fit_log_linear(train, np.ones(len(train.models), dtype=np.bool_))
    return np.asarray(
        np.einsum("tmc,m->tc", evidence(documents, pool.members)[0], pool.weights) + pool.biases
    )


def describe(documents: Dataset, logits: Floats) -> Cases:
    """The cases of documents, from the ensemble's `logits` (T, C) and the models' outputs. Features do not
    depend on the order of choices."""
    x, exists = evidence(documents, np.ones(len(documents.models), dtype=np.bool_))
    p, probs = softmax(np.where(exists, logits, -np.inf), axis=1), documents.probs
    is_unnamed = find_unnamed(documents.predictions, documents.n_choices, probs.shape[2])
    pooled, best = (
        answer_highest(logits, x, exists, documents.kind).slots,
        likeliest_unnamed(logits, is_unnamed),
    )
    of_best = np.where(best[:, None] >= 0, _take_slot(probs, best), 0.0)
    p_best = np.where(best >= 0, _take_slot(p[:, None], best)[:, 0], 0.0)
    features = [
        np.log(np.maximum(_take_slot(p[:, None], pooled)[:, 0], MIN_PROBABILITY)),
        np.log(np.maximum(p_best, MIN_PROBABILITY)),
        _entropy(p),
        _entropy(probs).mean(axis=1),
        probs.max(axis=2).mean(axis=1),
        (exists & ~is_unnamed).sum(axis=1),
        is_unnamed.sum(axis=1),
        (documents.predictions == pooled[:, None]).mean(axis=1),
        _take_slot(probs, pooled).std(axis=1),
        of_best.mean(axis=1),
        of_best.max(axis=1),
    ]
    return Cases(documents, pooled, best, np.column_stack(features))


def estimate(train: Cases, test: Cases, order: Ints) -> Estimates:
    """Estimates for test, learned from train; for controls, `order` (T,) shuffles train's labels."""
    right = _regress(train.features, train.right[order], test.features, NONE_RIGHT + 1)
    none_right = _regress(train.features, train.none_right[order].astype(np.int64), test.features, 2)
    return Estimates(right, none_right[:, 1])


def _regress(features: Floats, targets: Ints, test_features: Floats, n_classes: int) -> Floats:
    """(T, n_classes) the classes' probabilities by logistic regression; 0 for a class not in `targets`."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    classes, chances = np.unique(targets), np.zeros((len(test_features), n_classes))
    if len(classes) == 1:
        chances[:, classes] = 1.0
    else:
        model = make_pipeline(StandardScaler(), LogisticRegression(C=INVERSE_RIDGE, max_iter=10_000))
        chances[:, classes] = model.fit(features, targets).predict_proba(test_features)
    return chances


def _take_slot(probs: Floats, slots: Ints) -> Floats:
    """(T, N) the models' probabilities of one slot per document, from (T, N, C); -1: the last slot."""
    return np.asarray(np.take_along_axis(probs, slots[:, None, None], axis=2)[:, :, 0])


def _entropy(p: Floats) -> Floats:
    """(...,) the entropy of distributions (..., C), in nats."""
    return np.asarray(-(p * np.log(np.maximum(p, MIN_PROBABILITY))).sum(axis=-1))


def _summarise_switches(
    test: Cases, learned: Estimates, shuffled: Sequence[Estimates], room: Difference
) -> list[str]:
    none, is_pool = test.none_right, test.right == POOL
    right, switches = test.data.is_right(test.unnamed_choices), learned.switches
    likelier = np.argsort(learned.right[:, POOL] - learned.right[:, UNNAMED_RIGHT], kind="stable")
    tenth = likelier[: max(len(likelier) // 10, 1)]
    return [
        f"It switches on {int(switches.sum())} of {count_noun(len(none), 'document')}: right on "
        f"{int(right[switches].sum())}, where log_linear is on {int(is_pool[switches].sum())}; from shuffled "
        f"labels, on {decimal(fmean(of.switches.sum() for of in shuffled), 1)}. On the tenth where switching "
        f"looks best, the unnamed choice is right on {_share(right[tenth])} %, log_linear on "
        f"{_share(is_pool[tenth])} %.",
        f"On {_share(none)} % no model is right, and there the likeliest unnamed choice is on "
        f"{_share(right[none])} %: told when, log_linear would gain {points(room.mean)} points. AUC of "
        f"knowing when: {decimal(_compute_auc(learned.none_right, none), 2)}; from shuffled labels "
        f"{decimal(fmean(_compute_auc(of.none_right, none) for of in shuffled), 2)}.",
    ]


def _share(is_so: Bools) -> str:
    return percent(float(is_so.mean()) if len(is_so) else None, 1)


def _compute_auc(scores: Floats, is_true: Bools) -> float:
    """The area under the ROC curve; NaN if all documents are of one class."""
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(is_true, scores)) if 0 < is_true.sum() < len(is_true) else float("nan")
