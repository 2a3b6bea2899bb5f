"""What a router gains over the best single model, and what it leaves to the oracle (arXiv 2601.07206)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlfocal.base.errors import InputError

TIE = 1e-9
"""Accuracies that differ by less are equal: means over the same documents differ by float error."""


class OracleWithCost(NamedTuple):
    """The cheapest way to be right wherever any model is."""

    pick: NDArray[np.int64]
    """(T,) the model asked: the cheapest right one, the cheapest of all where none is right."""
    accuracy: float
    """Share of documents on which some model is right."""
    cost: float
    """Mean cost a document; NaN where, on some document, a model of unknown cost may be the cheapest."""


def perf_gain(accuracies: NDArray[np.float64], best_single: NDArray[np.float64]) -> float:
    """PerfGain: the mean over D data sets of accuracy / best single - 1.

    `best_single` (D,) are the accuracies of the best single model, on the same data sets as `accuracies`
    (D,). NaN where it is right on nothing in one of them.
    """
    accuracies, best_single = np.asarray(accuracies, float), np.asarray(best_single, float)
    if accuracies.shape != best_single.shape or not accuracies.size:
        raise InputError(
            f"{accuracies.size} data sets of the method and {best_single.size} of the best single model: "
            "give the same ones, in the same order"
        )
    if not (best_single > 0).all():
        return float("nan")
    return float((accuracies / best_single - 1).mean())


def cost_save(accuracy: float, cost: float, single_accuracy: float, single_cost: float) -> float:
    """CostSave: 1 - cost / cost of the best single model, for methods no less accurate than it.

    NaN if the accuracy is lower, a cost is unknown, or the best single model costs nothing.
    """
    if accuracy < single_accuracy - TIE or not single_cost > 0:
        return float("nan")
    return 1 - cost / single_cost


def gap_to_oracle(accuracy: float, oracle: float) -> float:
    """(oracle - accuracy) / oracle: the share of what some model knows that is not answered right.

    NaN where no model is ever right.
    """
    return (oracle - accuracy) / oracle if oracle > 0 else float("nan")


def oracle_with_cost(correct: NDArray[np.bool_], costs: NDArray[np.float64]) -> OracleWithCost:
    """The oracle: for each document it asks the cheapest right model, or the cheapest model if none is right.

    `correct` (T, N); `costs` (T, N) of every answer, or (N,) of every model. Ties go to the first model. One
    of unknown cost is picked only where no candidate's cost is known; leave such models out to know the mean
    cost.
    """
    if correct.ndim != 2 or not correct.size or np.shape(costs) not in (correct.shape, correct.shape[1:]):
        raise InputError(
            f"costs of shape {np.shape(costs)} for answers of shape {correct.shape}: give whether each model "
            "is right on each document, and a cost per answer or per model"
        )
    some_right = np.any(correct, axis=1)
    candidate: NDArray[np.bool_] = correct | ~some_right[:, None]
    price = np.broadcast_to(np.asarray(costs, dtype=np.float64), correct.shape)
    unknown = np.isnan(price)
    # Known costs go first, then unknown ones, then models that are no candidates.
    rank = np.where(unknown, np.finfo(np.float64).max, price)
    pick: NDArray[np.int64] = np.where(candidate, rank, np.inf).argmin(axis=1)
    paid = np.where((candidate & unknown).any(axis=1), np.nan, price[np.arange(len(pick)), pick])
    return OracleWithCost(pick, float(some_right.mean()), float(paid.mean()))
