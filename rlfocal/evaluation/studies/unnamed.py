"""The study of unnamed choices: can a policy learn when all models are wrong, and answer what none named?

On train, the log-linear pool is cross-fitted: each document's distribution is of a pool that did not see it.
From these distributions and the models' own, a regression tells how likely the pool's answer is right, how
likely the likeliest choice that no model named is, and neither. On test, the latter is answered where it is
likelier. The control learns the same from labels that were shuffled over train's documents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from scipy.special import softmax

from rlfocal.base.arrays import Bools, Floats, Ints
from rlfocal.base.errors import InputError
from rlfocal.base.wording import counted, decimal, percent, points
from rlfocal.data.dataset import Dataset
from rlfocal.evaluation.studies.findings import Point, point
from rlfocal.evaluation.studies.study import Conditions, Found
from rlfocal.methods.log_linear import INVERSE_RIDGE, LogLinearPool, evidence, fit_log_linear, highest
from rlfocal.statistics.ceiling import find_unnamed, likeliest_unnamed
from rlfocal.statistics.intervals import Difference, paired_bootstrap

FOLDS, SHUFFLES = 5, 20
POOLED, UNNAMED, NEITHER = range(3)
"""What is right: the pool's answer, the likeliest unnamed choice, or neither."""
LEAST, TOLD = 1e-6, "told when all are wrong"


class Estimates(NamedTuple):
    """Of test documents: how likely each of POOLED, UNNAMED, NEITHER is (T, 3), and no model right (T,)."""

    right: Floats
    none_right: Floats


@dataclass(frozen=True)
class Cases:
    """T documents as the estimates see them, and what their labels say."""

    data: Dataset
    pooled: Ints
    """(T,) the pool's answer."""
    unnamed: Ints
    """(T,) the likeliest choice that no model named; -1 for none."""
    features: Floats
    """(T, F)"""

    @property
    def right(self) -> Ints:
        """(T,) POOLED, UNNAMED or NEITHER."""
        is_unnamed = np.where(self.data.is_right(self.unnamed), UNNAMED, NEITHER)
        return np.where(self.data.is_right(self.pooled), POOLED, is_unnamed)

    @property
    def none_right(self) -> Bools:
        return np.asarray(~self.data.correct.any(axis=1))

    def hits(self, switches: Bools) -> Floats:
        """(1, T) 1 where the answer is right, if that of the documents in `switches` (T,) is unnamed."""
        said = np.where(switches & (self.unnamed >= 0), self.unnamed, self.pooled)
        return self.data.is_right(said)[None].astype(np.float64)


def unnamed(conditions: Conditions, values: Sequence[Any]) -> Found:
    """The pool; switching where that is likelier right; the same with shuffled labels; and told when."""
    data = conditions.setup.dataset
    if not len(data.logprobs) or min(len(data.train), len(data.test)) < FOLDS:
        raise InputError(
            f"{data.benchmark!r}: unnamed choices need log-probs of choices, and {FOLDS} documents or more "
            "in train and in test"
        )
    train, test = find_cases(data.train, data.test)
    learned = estimate(train, test, np.arange(len(data.train)))
    rng = np.random.default_rng(0)
    shuffled = [estimate(train, test, rng.permutation(len(data.train))) for _ in range(SHUFFLES)]
    pooled = test.hits(np.zeros(len(test.pooled), dtype=np.bool_))
    told = {
        "switches where it is likelier": test.hits(switches(learned)),
        "the same, labels shuffled": np.vstack([test.hits(switches(of)) for of in shuffled]),
        TOLD: test.hits(test.none_right),
    }
    gains = {label: paired_bootstrap(hits, pooled) for label, hits in told.items()}
    found = [_point("log_linear", pooled, None)]
    found += [_point(label, hits, gains[label]) for label, hits in told.items()]
    return Found(found, _in_words(test, learned, shuffled, gains[TOLD]))


def find_cases(train: Dataset, test: Dataset) -> tuple[Cases, Cases]:
    """Train's by pools that were fitted on the other folds, test's by that of all of train."""
    everyone = np.ones(len(train.models), dtype=np.bool_)
    fold = np.random.default_rng(0).permutation(len(train)) % FOLDS
    parts = [
        describe(train.rows(fold == k), fit_log_linear(train.rows(fold != k), everyone)) for k in range(FOLDS)
    ]
    order = np.argsort(np.concatenate([np.flatnonzero(fold == k) for k in range(FOLDS)]))
    joined = (np.concatenate([getattr(part, name) for part in parts])[order] for name in _ARRAYS)
    return Cases(train, *joined), describe(test, fit_log_linear(train, everyone))


_ARRAYS = ("pooled", "unnamed", "features")


def describe(documents: Dataset, pool: LogLinearPool) -> Cases:
    """What the pool and its members say, in numbers that do not depend on which choice is which."""
    x, exists = evidence(documents, pool.members)
    logits = np.einsum("tmc,m->tc", x, pool.weights) + pool.biases
    p, probs = softmax(np.where(exists, logits, -np.inf), axis=1), documents.probs
    is_unnamed = find_unnamed(documents.predictions, documents.n_choices, probs.shape[2])
    pooled, best = highest(logits, x, exists, documents.kind).slots, likeliest_unnamed(logits, is_unnamed)
    of_unnamed = np.where((best >= 0)[:, None], _at(probs, best), 0.0)
    features = [
        np.log(np.maximum(_at(p[:, None], pooled)[:, 0], LEAST)),
        np.log(np.maximum(np.where(best >= 0, _at(p[:, None], best)[:, 0], 0.0), LEAST)),
        _entropy(p),
        _entropy(probs).mean(axis=1),
        (exists & ~is_unnamed).sum(axis=1),
        is_unnamed.sum(axis=1),
        (documents.predictions == pooled[:, None]).mean(axis=1),
        probs.max(axis=2).mean(axis=1),
        _at(probs, pooled).std(axis=1),
        of_unnamed.mean(axis=1),
        of_unnamed.max(axis=1),
    ]
    return Cases(documents, pooled, best, np.column_stack(features))


def estimate(train: Cases, test: Cases, order: Ints) -> Estimates:
    """Learned from train's documents, each with the label of the one in its place in `order` (T,)."""
    right = _regress(train.features, train.right[order], test.features, NEITHER + 1)
    none_right = _regress(train.features, train.none_right[order].astype(np.int64), test.features, 2)
    return Estimates(right, none_right[:, 1])


def switches(estimates: Estimates) -> Bools:
    """(T,) where the unnamed choice is likelier right than the pool's answer."""
    return np.asarray(estimates.right[:, UNNAMED] > estimates.right[:, POOLED])


def _regress(features: Floats, targets: Ints, asked: Floats, n_classes: int) -> Floats:
    """(T, n_classes) probabilities; 0 for classes that are no target."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    classes, found = np.unique(targets), np.zeros((len(asked), n_classes))
    if len(classes) == 1:
        found[:, classes] = 1.0
        return found
    model = make_pipeline(StandardScaler(), LogisticRegression(C=INVERSE_RIDGE, max_iter=10_000))
    found[:, classes] = model.fit(features, targets).predict_proba(asked)
    return found


def _at(probs: Floats, slots: Ints) -> Floats:
    """(T, N) the probabilities (T, N, C) of one slot (T,) a document; of -1, the last one's."""
    return np.asarray(np.take_along_axis(probs, slots[:, None, None], axis=2)[:, :, 0])


def _entropy(p: Floats) -> Floats:
    """(...,) of distributions (..., C), in nats."""
    return np.asarray(-(p * np.log(np.maximum(p, LEAST))).sum(axis=-1))


def _point(label: str, hits: Floats, gain: Difference | None) -> Point:
    more = {} if gain is None else {"gain": (gain.mean, gain.low, gain.high), "p_value": gain.p_value}
    return point(label, label, None, hits.shape[1], hits.mean(axis=1).tolist(), **more)


def _in_words(test: Cases, learned: Estimates, shuffled: Sequence[Estimates], room: Difference) -> list[str]:
    none, switched, right = test.none_right, switches(learned), test.data.is_right(test.unnamed)
    is_pooled = test.right == POOLED
    likelier = np.argsort(learned.right[:, POOLED] - learned.right[:, UNNAMED], kind="stable")
    tenth = likelier[: max(len(likelier) // 10, 1)]
    by_chance = decimal(float(np.mean([switches(of).sum() for of in shuffled])), 1)
    when, luck = _auc(learned.none_right, none), fmean(_auc(of.none_right, none) for of in shuffled)
    there = percent(float(right[none].mean()) if none.any() else None, 1)
    return [
        f"It switches on {int(switched.sum())} of {counted(len(none), 'document')}: right on "
        f"{int(right[switched].sum())}, where log_linear is on {int(is_pooled[switched].sum())}; from "
        f"shuffled labels, on {by_chance}. On the tenth where switching looks best, the unnamed choice is "
        f"right on {percent(float(right[tenth].mean()), 1)} %, log_linear on "
        f"{percent(float(is_pooled[tenth].mean()), 1)} %.",
        f"On {percent(float(none.mean()), 1)} % no model is right, and there the likeliest unnamed choice "
        f"is on {there} %: told when, log_linear would gain {points(room.mean)} points. AUC of knowing when: "
        f"{decimal(when, 2)}; from shuffled labels {decimal(luck, 2)}.",
    ]


def _auc(scores: Floats, is_true: Bools) -> float:
    """The area under the ROC curve; NaN where all are true or none is."""
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(is_true, scores)) if 0 < is_true.sum() < len(is_true) else float("nan")
