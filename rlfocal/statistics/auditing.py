"""The probability that a label is wrong: the models and the label are witnesses of the true slot.

A log-linear ensemble of the models gives each document a distribution of the true slot, fitted on the labels
of other documents. A label is the true slot with probability 1 - rate, else any other slot. Models err
together, so that counting them as independent witnesses would be overconfident. Therefore the ensemble's
weights are fitted, and its sharpness in each task. Wrong labels and hard tasks look alike where models know
little. So tasks' rates and sharpness have common prior distributions, and are averaged over their posterior.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import factorial, log
from typing import NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment, minimize
from scipy.special import expit, log_softmax, logit, logsumexp
from threadpoolctl import threadpool_limits

from rlfocal.base.arrays import Bools, Floats, Ints

AUDIT_FOLDS = 5
_WEIGHT_RIDGE = 1.0
_TASK_POOL_MARGIN = 0.05
"""The gain in log-likelihood, in nats a document, from which each task has its own ensemble.

Such ensembles gain something anyway, because they learn which labels are common in a task.
"""
_NOISE_RATES = np.geomspace(1e-4, 0.95, 40)
"""The grid of the share of wrong labels in a task."""
_SHARPNESS = np.linspace(-1.0, 1.0, 9)
"""The grid of a task's sharpness, the logarithm of a factor on the ensemble's log-probs."""
_SPREADS = (0.05, 0.1, 0.2, 0.4)
"""The grid of the standard deviation of sharpness over tasks."""
_BETA_STRENGTHS = (5, 10, 30, 100, 300, 1000)
"""The grid of the strength of the Beta distribution of rates over tasks; a high one makes tasks alike."""
_BETA_MEANS = np.geomspace(3e-4, 0.3, 20)
_NEGLIGIBLE_POSTERIOR, _MIN_PROBABILITY = 1e-4, 1e-300


class LogLinearFit(NamedTuple):
    """A fitted log-linear ensemble: slot c has the logit Σ_i w_i x_ic + b_c."""

    weights: Floats
    """(M,) the weight of each model"""
    biases: Floats
    """(C,) the bias of each slot"""

    def probabilities(self, x: Floats, exists: Bools) -> Floats:
        """(T, C) distributions over the slots that exist (T, C), from log-probs x (T, M, C)."""
        logits = np.einsum("tmc,m->tc", x, self.weights) + self.biases
        return np.asarray(np.exp(log_softmax(np.where(exists, logits, -np.inf), axis=1)))


def fit_pool(x: Floats, exists: Bools, labels: Ints, label_noise: Floats, has_bias: Bools) -> LogLinearFit:
    """Fits a log-linear ensemble to labels (T,), of which a share is wrong.

    x (T, M, C) are log-probs, 0 where the slot does not exist. `label_noise` (T,) is as in
    `label_noise_rates`, and `has_bias` (C,) says which slots have a bias. The share of wrong labels is fitted
    too, so that they do not make the ensemble less sharp.
    """
    n, M, C = x.shape
    rows, right = np.arange(n), np.eye(C)[labels]
    closed = np.where(exists, 0.0, -np.inf)
    flat = np.ascontiguousarray(x.transpose(1, 0, 2)).reshape(M, -1)

    def mean_loss(parameters: Floats) -> tuple[float, Floats]:
        w, b, rate = parameters[:M], parameters[M:-1], expit(parameters[-1])
        p = np.exp(log_softmax((w @ flat).reshape(n, C) + b + closed, axis=1))
        of_label = p[rows, labels]
        q = np.maximum((1 - rate) * of_label + rate * label_noise * (1 - of_label), _MIN_PROBABILITY)
        trust = (1 - rate - rate * label_noise) * of_label / q
        surplus = (p - right) * trust[:, None]
        of_rate = ((of_label - label_noise * (1 - of_label)) / q).sum() * rate * (1 - rate)
        slope = np.concatenate([flat @ surplus.ravel(), surplus.sum(axis=0) * has_bias, [of_rate]])
        pull = _WEIGHT_RIDGE * np.concatenate([w, b, [0.0]])
        return float(pull @ parameters / 2 - np.log(q).sum()) / n, (slope + pull) / n

    start = np.concatenate([np.full(M, 1 / M), np.zeros(C), [logit(0.1)]])
    limits = {"maxiter": 300, "ftol": 1e-9, "gtol": 1e-5}
    fitted = minimize(mean_loss, start, jac=True, method="L-BFGS-B", options=limits).x
    return LogLinearFit(fitted[:M], fitted[M:-1])


def cross_fit(
    x: Floats, exists: Bools, labels: Ints, label_noise: Floats, tasks: Ints, has_bias: Bools
) -> Floats:
    """(T, C) the distribution of each document's true slot, by ensembles fitted without the document's fold.

    One ensemble serves all documents, unless an ensemble for each of the `tasks` (T,) raises the likelihood
    of held-out labels by far, as it does if models' scores have another scale in each task.
    """
    fold = _draw_folds(tasks)

    def held_out(groups: Ints) -> tuple[float, Floats]:
        p = np.zeros(exists.shape)
        for k, group in product(range(AUDIT_FOLDS), np.unique(groups)):
            train, test = (np.flatnonzero((groups == group) & part) for part in (fold != k, fold == k))
            if len(test):
                pool = fit_pool(x[train], exists[train], labels[train], label_noise[train], has_bias)
                p[test] = pool.probabilities(x[test], exists[test])
        of_label = p[np.arange(len(labels)), labels]
        return float(np.log(0.99 * of_label + 0.01 * label_noise * (1 - of_label)).mean()), p

    with threadpool_limits(1, user_api="blas"):  # threads that wait for one another take three times the CPU
        together, p = held_out(np.zeros_like(tasks))
        if tasks.any():
            apart, by_task = held_out(tasks)
            p = by_task if apart > together + _TASK_POOL_MARGIN else p
    return p


def _draw_folds(tasks: Ints) -> Ints:
    """(T,) a fold for each document, spread evenly over every task."""
    shuffled = np.random.default_rng(0).permutation(len(tasks))
    ordered = shuffled[np.argsort(tasks[shuffled], kind="stable")]
    fold = np.empty(len(tasks), dtype=np.int64)
    fold[ordered] = np.arange(len(tasks)) % AUDIT_FOLDS
    return fold


def label_noise_rates(exists: Bools, labels: Ints, unnamed_slot: int | None = None) -> Floats:
    """(T,) the probability that a wrong label is the given label: 1 / (K - 1) with K slots.

    `unnamed_slot`: the slot that stands for all answers that no model gave, with half of the wrong labels.
    """
    others = np.maximum(exists.sum(axis=1) - 1.0, 1.0)
    if unnamed_slot is None:
        return np.asarray(1 / others)
    return np.where(
        (labels == unnamed_slot) & (others > 1), 0.5, np.where(labels == unnamed_slot, 1.0, 0.5 / others)
    )


def wrong_label_posterior(p: Floats, exists: Bools, labels: Ints, label_noise: Floats, tasks: Ints) -> Floats:
    """(T,) the probability that each label (T,) is wrong, from distributions p (T, C) of the true slots.

    `tasks` (T,): the task of each document, from 0.
    """
    n_tasks = int(tasks.max()) + 1
    logits = np.where(exists, np.log(np.maximum(p, _MIN_PROBABILITY)), -np.inf)
    sharper = (log_softmax(logits * np.exp(s), axis=1) for s in _SHARPNESS)
    of_label = [np.exp(each[np.arange(len(labels)), labels]) for each in sharper]

    def label_likelihoods(s: int, r: int) -> tuple[Floats, Floats]:
        """(T,) the likelihood of the label if it is right, and if it is wrong."""
        return (1 - _NOISE_RATES[r]) * of_label[s], _NOISE_RATES[r] * label_noise * (1 - of_label[s])

    grid = [*product(range(len(_SHARPNESS)), range(len(_NOISE_RATES)))]
    likelihood = np.zeros((n_tasks, len(_SHARPNESS), len(_NOISE_RATES)))
    for s, r in grid:
        right, wrong = label_likelihoods(s, r)
        likelihood[:, s, r] = np.bincount(tasks, np.log(np.maximum(right + wrong, _MIN_PROBABILITY)), n_tasks)
    weight = _average_posterior(likelihood)
    wrongs = np.zeros(len(labels))
    for s, r in grid:
        right, wrong = label_likelihoods(s, r)
        wrongs += weight[tasks, s, r] * wrong / np.maximum(right + wrong, _MIN_PROBABILITY)
    return wrongs


def _average_posterior(likelihood: Floats) -> Floats:
    """(K, S, R) the posterior of each task's sharpness and rate, as a mean over all priors.

    `likelihood` (K, S, R): the log-likelihood of each task's labels.
    """
    by_prior = []
    for prior in _list_priors():
        joint = likelihood + prior
        evidence = logsumexp(joint, axis=(1, 2), keepdims=True)
        by_prior.append((float(evidence.sum()), prior, evidence))
    total = logsumexp([evidence for evidence, _, _ in by_prior])
    posterior = np.zeros(likelihood.shape)
    for evidence, prior, of_task in by_prior:
        if (share := np.exp(evidence - total)) > _NEGLIGIBLE_POSTERIOR:
            posterior += share * np.exp(likelihood + prior - of_task)
    return np.asarray(posterior / posterior.sum(axis=(1, 2), keepdims=True))


def _list_priors() -> Iterator[Floats]:
    """Yields (S, R) log-priors of a task's sharpness and rate, one for each setting of the common priors."""
    width = np.log(np.gradient(_NOISE_RATES))
    for spread, strength, mean in product(_SPREADS, _BETA_STRENGTHS, _BETA_MEANS):
        sharpness = -0.5 * (_SHARPNESS / spread) ** 2
        rate = (
            (mean * strength - 1) * np.log(_NOISE_RATES)
            + ((1 - mean) * strength - 1) * np.log1p(-_NOISE_RATES)
            + width
        )
        yield (sharpness - logsumexp(sharpness))[:, None] + rate - logsumexp(rate)


def true_slots(p: Floats, labels: Ints, wrong: Floats) -> Floats:
    """(T, C) the distribution of the true slot, given the models' p (T, C) and the label.

    `wrong` (T,): the probability that the label is wrong.
    """
    rows = np.arange(len(labels))
    rest = p.copy()
    rest[rows, labels] = 0.0
    rest *= (wrong / np.maximum(rest.sum(axis=1), _MIN_PROBABILITY))[:, None]
    rest[rows, labels] = 1 - wrong
    return rest


_ORDER_SCALES = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0)
_ORDER_MARGIN_NATS = log(1000)
"""The gain in log-likelihood, in nats, from which a changed order of choices is reported."""


def find_order(mean_x: Floats, exists: Bools, labels: Ints) -> Ints | None:
    """(T,) the labels of one task in another order of choices, if models find that far likelier; else None.

    `mean_x` (T, C): the models' mean log-probs, which no label has influenced. Labels (T,) are all shifted by
    one number of places around the document's choices, or permuted as suits the models best.
    """
    n, C = exists.shape
    count = exists.sum(axis=1)
    # The models' mean log-prob of a slot over all documents is their bias.
    bias = np.where(exists, mean_x, 0.0).sum(axis=0) / np.maximum(exists.sum(axis=0), 1)
    z = np.where(exists, mean_x - bias, 0.0)
    seen = np.array([z[labels == label].sum(axis=0) for label in range(C)])
    best = linear_sum_assignment(-seen)[1]
    permuted = np.where(exists[np.arange(n), best[labels]], best[labels], labels)
    tried = [((labels + shift) % count, log(C)) for shift in range(1, int(count.max()))]
    tried.append((permuted, log(factorial(C))))
    gains = [_log_likelihood(z, exists, order) - penalty for order, penalty in tried]
    top = int(np.argmax(gains))
    return tried[top][0] if gains[top] - _log_likelihood(z, exists, labels) > _ORDER_MARGIN_NATS else None


def _log_likelihood(z: Floats, exists: Bools, labels: Ints) -> float:
    """The log-likelihood of labels (T,) by scores z (T, C) at the best scale, with label frequencies."""
    shares = np.log(np.bincount(labels, minlength=exists.shape[1]) + 1.0)
    rows = np.arange(len(labels))
    return max(
        float(log_softmax(np.where(exists, scale * z + shares, -np.inf), axis=1)[rows, labels].sum())
        for scale in _ORDER_SCALES
    )
