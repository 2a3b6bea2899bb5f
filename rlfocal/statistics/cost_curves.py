"""Figures of merit that relate accuracy to cost.

PGR, APGR and CPT are RouteLLM's, and AIQ is RouterBench's. ParetoDist, PerfGain, CostSave and the gap to the
oracle are LLMRouterBench's (arXiv 2601.07206).
"""

from __future__ import annotations

import numpy as np

from rlfocal.base.arrays import Bools, Floats, Ints
from rlfocal.base.errors import InputError


def pgr(accuracies: Floats, weak: float, strong: float) -> Floats:
    """The performance gap recovered, (accuracy - weak) / (strong - weak), of any shape (arXiv 2406.18665).

    `weak` and `strong` are the accuracies of the two models between which a router chooses. NaN if the strong
    model is no better, because there is no gap.
    """
    if not strong > weak:
        return np.full(np.shape(accuracies), np.nan)
    return (np.asarray(accuracies, dtype=np.float64) - weak) / (strong - weak)


def apgr(shares: Floats, accuracies: Floats, weak: float, strong: float) -> float:
    """The mean PGR over strong-call shares from 0 to 1, as the area under straight lines between the points.

    `shares` (P,) are the shares of documents that a router sends to the strong model, and `accuracies` (P,)
    the router's accuracies. There is a point per threshold, in any order. Between points PGR is linear, as it
    is when a coin decides between two thresholds. So the mean is the area by the trapezoid rule, as in
    RouteLLM's code. The ends, where all documents go to one model, are known: PGR 0 at share 0 and 1 at share
    1. A random router has 0.5. NaN if PGR is NaN.
    """
    share, recovered = _compute_recovered_shares(shares, accuracies, weak, strong)
    return float(np.trapezoid(recovered, share))


def cpt(shares: Floats, accuracies: Floats, weak: float, strong: float, target: float) -> float:
    """The call-performance threshold: the smallest strong-call share at which PGR reaches `target`.

    CPT(50 %) has the target 0.5. Points, ends and the lines between them are as in `apgr`. Because of the end
    at share 1, any target up to 1 is reached somewhere. NaN for a higher target, and if PGR is NaN.
    """
    share, reached = _compute_recovered_shares(shares, accuracies, weak, strong)
    # By a float error less, a threshold that just reaches it would pass for one that does not.
    enough = np.flatnonzero(reached >= target - 1e-9)
    if np.isnan(reached).any() or not len(enough):
        return float("nan")
    around = slice(max(enough[0] - 1, 0), enough[0] + 1)
    return float(np.interp(target, reached[around], share[around]))


def aiq(costs: Floats, accuracies: Floats) -> float:
    """RouterBench's AIQ: the mean of the non-decreasing convex hull of accuracy over cost (arXiv 2403.12031).

    `costs` and `accuracies` (P,) are a router's points. The hull runs from the cheapest point to the most
    accurate one, and is constant up to the highest cost. The area under it is divided by the range of costs.
    Routers are comparable only over the same range, so add the cheapest and the dearest model to the points
    of each. NaN if all points cost the same or a cost is unknown.
    """
    costs, accuracies = _check_points(costs, accuracies)
    low, high = costs.min(), costs.max()
    if not high > low:
        return float("nan")
    hull = non_decreasing_hull(costs, accuracies)
    x, y = np.append(costs[hull], high), np.append(accuracies[hull], accuracies[hull[-1]])
    return float(np.trapezoid(y, x) / (high - low))


def non_decreasing_hull(costs: Floats, accuracies: Floats) -> Ints:
    """(H,) the positions of points (P,) that are corners of the non-decreasing convex hull, by rising cost.

    The hull goes from the cheapest point (ties: the most accurate) to the most accurate (ties: the cheapest).
    Each step is less steep than the one before. Between two corners, a coin that decides between them can
    reach the hull. All costs are known.
    """
    hull: list[int] = []
    for i in np.lexsort((-accuracies, costs)):
        if hull and accuracies[i] <= accuracies[hull[-1]]:
            continue
        while len(hull) > 1 and not _turns_down(costs[[*hull[-2:], i]], accuracies[[*hull[-2:], i]]):
            hull.pop()
        hull.append(int(i))
    return np.array(hull, dtype=np.int64)


def pareto_front(costs: Floats, accuracies: Floats) -> Bools:
    """(P,) whether no other point is at least as cheap and as accurate, and better in one of the two.

    Equal points are all on the front, or none of them is. A point of unknown cost is not on the front, and
    keeps no other point off it.
    """
    costs, accuracies = _check_points(costs, accuracies)
    cheaper = costs[:, None] - costs
    better = accuracies - accuracies[:, None]
    beaten = (cheaper >= 0) & (better >= 0) & ((cheaper > 0) | (better > 0))
    front: Bools = ~beaten.any(axis=1) & ~np.isnan(costs)
    return front


def pareto_distance(costs: Floats, accuracies: Floats) -> Floats:
    """(P,) LLMRouterBench's ParetoDist: the distance of each point to the nearest point of the Pareto front.

    The front is that of all points given, so give all methods and all single models at once. The logarithm of
    cost and the accuracy are each scaled to run from 0 to 1 over all points of known cost. The distance is
    the sum of both differences (L1): 0 on the front, NaN for an unknown cost. A method with several points is
    rated by their mean (arXiv 2601.07206).

    Raises InputError if a cost is not above 0, because it has no logarithm.
    """
    costs, accuracies = _check_points(costs, accuracies)
    if (costs <= 0).any():
        raise InputError(
            f"cost {costs[costs <= 0][0]:g} has no logarithm: leave points without cost out of ParetoDist"
        )
    has_cost = ~np.isnan(costs)
    distance = np.full(costs.shape, np.nan)
    if has_cost.any():
        points = np.column_stack([_scale(np.log(costs[has_cost])), _scale(accuracies[has_cost])])
        front = points[pareto_front(costs[has_cost], accuracies[has_cost])]
        distance[has_cost] = np.abs(points[:, None] - front).sum(axis=2).min(axis=1)
    return distance


def _compute_recovered_shares(
    shares: Floats, accuracies: Floats, weak: float, strong: float
) -> tuple[Floats, Floats]:
    """The distinct strong-call shares from 0 to 1, and the mean PGR of the points that have each share."""
    shares, accuracies = _check_points(shares, accuracies)
    if not ((shares >= 0) & (shares <= 1)).all():
        bad = shares[~((shares >= 0) & (shares <= 1))][0]
        raise InputError(f"share of strong calls {bad:g}: give fractions from 0 to 1, not per cent")
    ends = [(share, value) for share, value in ((0.0, weak), (1.0, strong)) if share not in shares]
    x = np.append(shares, [share for share, _ in ends])
    y = pgr(np.append(accuracies, [value for _, value in ends]), weak, strong)
    share, group, n = np.unique(x, return_inverse=True, return_counts=True)
    return share, np.bincount(group, y) / n


def _turns_down(x: Floats, y: Floats) -> bool:
    """Whether the second of two steps between three points is the less steep one."""
    return bool((y[2] - y[1]) * (x[1] - x[0]) < (y[1] - y[0]) * (x[2] - x[1]))


def _scale(values: Floats) -> Floats:
    """The values, scaled to 0 for the lowest and 1 for the highest; 0 where all are equal."""
    spread = float(np.ptp(values)) or 1.0
    scaled: Floats = (values - values.min()) / spread
    return scaled


def _check_points(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Costs or shares, and accuracies, as float arrays of one length above 0."""
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if x.ndim != 1 or x.shape != y.shape or not len(x):
        raise InputError(f"points of shapes {x.shape} and {y.shape}: give one cost or share per accuracy")
    if not np.isfinite(y).all() or np.isinf(x).any():
        raise InputError(
            f"points {x.tolist()}, {y.tolist()}: give finite numbers, and NaN only for an unknown cost"
        )
    return x, y


ACCURACY_TOLERANCE = 1e-9
"""The difference below which accuracies count as equal, because of float error in means."""


def perf_gain(accuracies: Floats, best_single: Floats) -> float:
    """PerfGain: the mean over D data sets of accuracy / best single - 1.

    `best_single` (D,) are the accuracies of the best single model, on the same data sets as `accuracies`
    (D,). NaN if one of them is 0.
    """
    accuracies, best_single = np.asarray(accuracies, float), np.asarray(best_single, float)
    if accuracies.shape != best_single.shape or not accuracies.size:
        raise InputError(
            f"{accuracies.size} accuracies of the method and {best_single.size} of the best single model: "
            "give one of each per data set, in the same order"
        )
    if not (best_single > 0).all():
        return float("nan")
    return float((accuracies / best_single - 1).mean())


def cost_save(accuracy: float, cost: float, single_accuracy: float, single_cost: float) -> float:
    """CostSave: 1 - cost / cost of the best single model, for methods that are no less accurate than that.

    NaN if the accuracy is lower, a cost is unknown, or the best single model costs nothing.
    """
    if accuracy < single_accuracy - ACCURACY_TOLERANCE or not single_cost > 0:
        return float("nan")
    return 1 - cost / single_cost


def gap_to_oracle(accuracy: float, oracle: float) -> float:
    """The share of the oracle's accuracy that a method misses: (oracle - accuracy) / oracle.

    NaN if the oracle's accuracy is 0.
    """
    return (oracle - accuracy) / oracle if oracle > 0 else float("nan")
