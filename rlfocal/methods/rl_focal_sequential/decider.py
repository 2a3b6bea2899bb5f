"""The sequential Decider: after each stage of asking, stop and answer, or ask the next models.

The rewards of all actions are known on train, so its value function is fitted by regression from the last
stage back to the first (fitted Q-iteration), without sampling.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from rlfocal.base.arrays import Bools, Floats, Ints
from rlfocal.methods.bisection import least_enough
from rlfocal.methods.rl_focal_sequential.config import SequentialConfig

N_FEATURES = 5
_RIDGE = 10.0


class StageView(NamedTuple):
    """What is known about T documents after one stage."""

    features: Floats
    """(T, 5) a constant, then how sure Fusion is and how far the models agree"""
    size: int
    """Models asked so far."""
    paid: float = 0.0
    """The cost of their prices and of the rounds so far, where being right earns 1."""
    least: float = 0.0
    """What an abstention earns, where being right earns 1; 0 where nobody abstains."""

    @property
    def expected_reward(self) -> Floats:
        """(T,) what stopping here earns: Fusion's out-of-fold probability of being right, or an abstention.

        Whether the answer was right tells the same with more noise: on train, using that cost half a point.
        """
        return np.maximum(self.features[:, 1], self.least)

    def outcome(self, right: Bools) -> Floats:
        """(T,) what stopping here earned, from whether the answers were `right` (T,)."""
        return outcome(right, self.features[:, 1], self.least)

    def earned(self, penalty: float) -> Floats:
        """(T,) what stopping here earns, at `penalty` per model asked."""
        return self.expected_reward - penalty * self.size - self.paid


def outcome(right: Bools, probability: Floats, least: float) -> Floats:
    """(T,) 1 for a right answer, 0 for a wrong one; less probable ones than `least` are abstentions, which
    earn that."""
    return np.where(probability < least, least, right)


def view(probabilities: Floats, said: Ints, votes: Ints, n_slots: int) -> Floats:
    """(T, 5) the Decider's observation from Fusion's distribution (T, C), the slot it `said` (T,) and the
    slots of the asked models' votes (T, m).

    A constant, the top probability, its lead over the second, the entropy as a share of its maximum over
    `n_slots` slots, and the share of asked models that say what Fusion says.
    """
    ranked = np.sort(probabilities, axis=1)[:, ::-1]
    second = ranked[:, 1] if ranked.shape[1] > 1 else np.zeros(len(ranked))
    entropy = -(probabilities * np.log(np.maximum(probabilities, 1e-12))).sum(axis=1)
    agree = (votes == said[:, None]).mean(axis=1)
    features = [
        np.ones(len(ranked)),
        ranked[:, 0],
        ranked[:, 0] - second,
        entropy / np.log(max(n_slots, 2)),
        agree,
    ]
    return np.stack(features, axis=1)


def fit_decider(stages: Sequence[StageView], penalty: float) -> Floats:
    """(K-1, 5) weights of the value of going on less that of stopping, at each stage but the last.

    The reward is 1 for a right answer, or that of an abstention, minus `penalty` per model asked and the cost
    of prices and rounds.
    """
    value = stages[-1].earned(penalty)
    weights = np.zeros((len(stages) - 1, N_FEATURES))
    for at in range(len(stages) - 2, -1, -1):
        stop = stages[at].earned(penalty)
        x = stages[at].features
        ridge = _RIDGE * np.eye(N_FEATURES)
        ridge[0, 0] = 1e-6
        weights[at] = np.linalg.solve(x.T @ x + ridge, x.T @ (value - stop))
        value = np.where(goes_on(weights[at], x), value, stop)
    return weights


def goes_on(weights: Floats, features: Floats) -> Bools:
    """(T,) whether the next models are asked, by the weights (5,) of this stage."""
    return features @ weights > 0


def stop_stages(weights: Floats, features: Sequence[Floats]) -> Ints:
    """(T,) the stage at which each document is answered."""
    n = len(features[0])
    stage = np.full(n, len(features) - 1)
    for at in range(len(features) - 2, -1, -1):
        stage = np.where(goes_on(weights[at], features[at]), stage, at)
    return stage


def fit_within(
    stages: Sequence[StageView], deployed: Sequence[Floats], mean_pool: float, least_penalty: float
) -> tuple[Floats, float]:
    """Weights, and the penalty per model: the smallest from `least_penalty` up at which train asks at most
    `mean_pool` models on average.

    The limit holds both for out-of-fold Fusion, as in `stages`, and for the final Fusion, whose features (T,
    5) at each stage are `deployed`: where few outputs are possible, a tiny difference moves many documents.
    """
    features, sizes = [s.features for s in stages], np.array([s.size for s in stages])

    def fitted(penalty: float) -> tuple[Floats, float]:
        weights = fit_decider(stages, penalty)
        return weights, max(float(sizes[stop_stages(weights, f)].mean()) for f in (features, deployed))

    weights, mean = fitted(least_penalty)
    if mean <= mean_pool:
        return weights, least_penalty
    penalty = least_enough(lambda tried: fitted(tried)[1] <= mean_pool, least_penalty, 1.0, 20)
    return fitted(penalty)[0], penalty


class Ledger(NamedTuple):
    """What a Decider is fitted on, stage after stage."""

    views: list[StageView]
    deployed: list[Floats]

    def at(self, stages: Sequence[int], paid: Sequence[float]) -> Ledger:
        """The ledger of some of the stages, with what prices and rounds have cost at each."""
        views = [self.views[at]._replace(paid=cost) for at, cost in zip(stages, paid, strict=True)]
        return Ledger(views, [self.deployed[at] for at in stages])

    def decider(self, config: SequentialConfig, n_models: int) -> tuple[Floats, float]:
        """Its weights, and the penalty per model."""
        return fit_within(self.views, self.deployed, config.budget(n_models), config.size_penalty / n_models)

    def outcomes(self, right: Bools, weights: Floats, penalty: float) -> Floats:
        """(K, T) what asking on up to each stage earned, from whether out-of-fold Fusion was `right` (K, T)
        and the Decider's weights, at `penalty` per model asked."""
        earned = np.stack([view.outcome(one) for view, one in zip(self.views, right, strict=True)])
        costs = np.array([penalty * view.size + view.paid for view in self.views])
        stop = stop_stages(weights, [view.features for view in self.views])
        up_to = np.minimum(stop, np.arange(len(right))[:, None])
        return np.asarray(np.take_along_axis(earned, up_to, axis=0) - costs[up_to])

    def earned(self, config: SequentialConfig, n_models: int) -> float:
        """What a train document earns on average where the Decider stops, by out-of-fold Fusion."""
        stop = stop_stages(self.decider(config, n_models)[0], [view.features for view in self.views])
        earned = np.stack([view.earned(config.size_penalty / n_models) for view in self.views])
        return float(earned[stop, np.arange(len(stop))].mean())


def worthwhile_stages(
    ledger: Ledger,
    sizes: Sequence[int],
    paid: Callable[[Sequence[int]], list[float]],
    config: SequentialConfig,
    n_models: int,
) -> list[int]:
    """The stages worth a round of their own: stages are left out one by one while that pays.

    `paid` gives what prices and rounds have cost by each stage, from the stages' sizes. All stages are kept
    where rounds are free, as one more look never hurts. The first stage never exceeds the mean pool.
    """
    kept = list(range(len(sizes)))
    if not config.round_penalty:
        return kept

    def earned(stages: Sequence[int]) -> float:
        costs = paid([sizes[at] for at in stages])
        return ledger.at(stages, costs).earned(config, n_models)

    best = earned(kept)
    while len(kept) > 1:
        fewer = [[*kept[:at], *kept[at + 1 :]] for at in range(len(kept))]
        worth = [earned(one) if sizes[one[0]] <= config.budget(n_models) else -np.inf for one in fewer]
        if max(worth) <= best:
            break
        best, kept = max(worth), fewer[int(np.argmax(worth))]
    return kept
