"""What a router gains over the best single model, and what it leaves to the oracle (arXiv 2601.07206)."""

from __future__ import annotations

import numpy as np

from rlfocal.base.arrays import Floats
from rlfocal.base.errors import InputError

TIE = 1e-9
"""Accuracies that differ by less are equal: means over the same documents differ by float error."""


def perf_gain(accuracies: Floats, best_single: Floats) -> float:
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
