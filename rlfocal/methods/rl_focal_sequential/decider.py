"""The sequential Decider: the order in which models are asked, and after each stage whether to ask on.

The rewards of all actions are known on train. So the value function is fitted by regression from the last
stage back to the first (fitted Q-iteration), without sampling.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from rlfocal.base.arrays import Bools, Floats, Ints
from rlfocal.base.errors import InputError
from rlfocal.data.dataset import Dataset
from rlfocal.data.folds import folds
from rlfocal.data.policy import least_enough
from rlfocal.methods.rl_focal_sequential.config import SequentialConfig
from rlfocal.methods.rl_focal_sequential.observations import QuestionFeatures, fit_scales, outputs, stage_rows
from rlfocal.methods.rl_focal_sequential.softmax_regression import (
    MIN_PROBABILITY,
    Priors,
    RegressionRows,
    fit_many,
    select_comparison_rows,
)

N_FEATURES = 5
_DECIDER_RIDGE = 10.0


class StageView(NamedTuple):
    """The Decider's view of T documents after one stage."""

    features: Floats
    """(T, 5) a constant, Fusion's confidence and the models' agreement, as `view` makes them"""
    size: int
    """The number of models asked so far."""
    paid: float = 0.0
    """The penalty of prices and rounds so far, where a right answer has a reward of 1."""
    least: float = 0.0
    """The reward of an abstention, where a right answer has a reward of 1; 0 where nobody abstains."""

    @property
    def expected_reward(self) -> Floats:
        """(T,) the expected reward of stopping here: Fusion's out-of-fold probability of being right, or that
        of an abstention.

        Whether the answer was right says the same with more noise: with that as the reward, half a point was
        lost on train.
        """
        return np.maximum(self.features[:, 1], self.least)

    def outcome(self, right: Bools) -> Floats:
        """(T,) the reward of stopping here, from whether the answers were `right` (T,)."""
        return outcome(right, self.features[:, 1], self.least)

    def stop_reward(self, penalty: float) -> Floats:
        """(T,) the expected reward of stopping here, at `penalty` per model asked."""
        return self.expected_reward - penalty * self.size - self.paid


def outcome(right: Bools, probability: Floats, least: float) -> Floats:
    """(T,) rewards: 1 for a right answer, 0 for a wrong one, and `least` for answers less probable than that,
    which are abstentions."""
    return np.where(probability < least, least, right)


def view(probabilities: Floats, answers: Ints, votes: Ints, n_slots: int) -> Floats:
    """(T, 5) the Decider's observation from Fusion's distribution (T, C) and its `answers` (T,).

    It is a constant, the top probability, its lead over the second, the entropy, and the agreement. The
    entropy is a share of its maximum over `n_slots` slots. The agreement is the share of the asked models'
    `votes` (T, m) for Fusion's answer.
    """
    ranked = np.sort(probabilities, axis=1)[:, ::-1]
    second = ranked[:, 1] if ranked.shape[1] > 1 else np.zeros(len(ranked))
    entropy = -(probabilities * np.log(np.maximum(probabilities, 1e-12))).sum(axis=1)
    agree = (votes == answers[:, None]).mean(axis=1)
    features = [
        np.ones(len(ranked)),
        ranked[:, 0],
        ranked[:, 0] - second,
        entropy / np.log(max(n_slots, 2)),
        agree,
    ]
    return np.stack(features, axis=1)


def fit_decider(stages: Sequence[StageView], penalty: float) -> Floats:
    """(K-1, 5) weights of the value of asking on less that of stopping, at each stage but the last.

    The reward is 1 for a right answer, or that of an abstention, minus `penalty` per model asked and the cost
    of prices and rounds.
    """
    value = stages[-1].stop_reward(penalty)
    weights = np.zeros((len(stages) - 1, N_FEATURES))
    for number in range(len(stages) - 2, -1, -1):
        stop = stages[number].stop_reward(penalty)
        x = stages[number].features
        ridge = _DECIDER_RIDGE * np.eye(N_FEATURES)
        ridge[0, 0] = 1e-6
        weights[number] = np.linalg.solve(x.T @ x + ridge, x.T @ (value - stop))
        value = np.where(asks_more(weights[number], x), value, stop)
    return weights


def asks_more(weights: Floats, features: Floats) -> Bools:
    """(T,) whether the next models are asked, by the weights (5,) of this stage."""
    return features @ weights > 0


def stop_stages(weights: Floats, features: Sequence[Floats]) -> Ints:
    """(T,) the stage at which each document is answered."""
    n = len(features[0])
    stage = np.full(n, len(features) - 1)
    for number in range(len(features) - 2, -1, -1):
        stage = np.where(asks_more(weights[number], features[number]), stage, number)
    return stage


def fit_within(
    stages: Sequence[StageView], deployed: Sequence[Floats], mean_pool: float, least_penalty: float
) -> tuple[Floats, float]:
    """The Decider's weights and the penalty per model: the smallest one at which train asks at most
    `mean_pool` models on average.

    Penalties are tried from `least_penalty` up. The limit holds both for out-of-fold Fusion, as in `stages`,
    and for the final Fusion, whose features (T, 5) at each stage are `deployed`. Where few outputs are
    possible, a tiny difference moves many documents.
    """
    features, sizes = [s.features for s in stages], np.array([s.size for s in stages])

    def fit_at(penalty: float) -> tuple[Floats, float]:
        weights = fit_decider(stages, penalty)
        return weights, max(float(sizes[stop_stages(weights, f)].mean()) for f in (features, deployed))

    weights, mean = fit_at(least_penalty)
    if mean <= mean_pool:
        return weights, least_penalty
    penalty = least_enough(lambda tried: fit_at(tried)[1] <= mean_pool, least_penalty, 1.0, 20)
    return fit_at(penalty)[0], penalty


class Ledger(NamedTuple):
    """The data that a Decider is fitted on, stage after stage."""

    views: list[StageView]
    deployed: list[Floats]

    def select_stages(self, stages: Sequence[int], paid: Sequence[float]) -> Ledger:
        """The ledger of some of the stages; `paid` is the cost of prices and rounds at each of them."""
        views = [self.views[number]._replace(paid=cost) for number, cost in zip(stages, paid, strict=True)]
        return Ledger(views, [self.deployed[number] for number in stages])

    def decider(self, config: SequentialConfig, n_models: int) -> tuple[Floats, float]:
        """The Decider's weights, and the penalty per model."""
        return fit_within(self.views, self.deployed, config.budget(n_models), config.size_penalty / n_models)

    def outcomes(self, right: Bools, weights: Floats, penalty: float) -> Floats:
        """(K, T) the reward if stages up to each may be asked, at `penalty` per model asked.

        `right` (K, T) says whether out-of-fold Fusion was right, and `weights` are the Decider's.
        """
        earned = np.stack([view.outcome(is_right) for view, is_right in zip(self.views, right, strict=True)])
        costs = np.array([penalty * view.size + view.paid for view in self.views])
        stop = stop_stages(weights, [view.features for view in self.views])
        up_to = np.minimum(stop, np.arange(len(right))[:, None])
        return np.asarray(np.take_along_axis(earned, up_to, axis=0) - costs[up_to])

    def mean_reward(self, config: SequentialConfig, n_models: int) -> float:
        """The mean reward of a train document where the Decider stops, by out-of-fold Fusion."""
        stop = stop_stages(self.decider(config, n_models)[0], [view.features for view in self.views])
        earned = np.stack([view.stop_reward(config.size_penalty / n_models) for view in self.views])
        return float(earned[stop, np.arange(len(stop))].mean())


def worthwhile_stages(
    ledger: Ledger,
    sizes: Sequence[int],
    paid: Callable[[Sequence[int]], list[float]],
    config: SequentialConfig,
    n_models: int,
) -> list[int]:
    """The stages that are worth a round of their own: stages are left out one by one while that pays.

    `paid` maps stages' sizes to the cost of prices and rounds by each. All stages are kept where rounds are
    free, because one more stage never hurts. The first stage never exceeds the mean pool.
    """
    kept = list(range(len(sizes)))
    if not config.round_penalty:
        return kept

    def reward_stages(stages: Sequence[int]) -> float:
        costs = paid([sizes[number] for number in stages])
        return ledger.select_stages(stages, costs).mean_reward(config, n_models)

    best = reward_stages(kept)
    while len(kept) > 1:
        fewer = [[*kept[:number], *kept[number + 1 :]] for number in range(len(kept))]
        worth = [
            reward_stages(tried) if sizes[tried[0]] <= config.budget(n_models) else -np.inf for tried in fewer
        ]
        if max(worth) <= best:
            break
        best, kept = max(worth), fewer[int(np.argmax(worth))]
    return kept


# ---- in which order and stages the models are asked, and what a stage costs


Order = tuple[int, ...]
"""Positions of the models, in the order in which they are asked."""

_COPY_ERROR_OVERLAP = 0.75
"""A copy makes the same errors on more than this share of the documents where either model errs; unrelated
LLMs on 0.4."""
_MIN_SHARED_ERRORS = 2
"""Added to the number of errors, so that a few shared errors do not make a copy."""
_MAX_WEIGHED_MODELS = 20
"""The most models, by accuracy, that are ordered by their gain."""
_N_FOLDS = 5
_FIT_TOLERANCE = 0.5
_MAX_STARTS = 4
"""The most models of the price-accuracy front from which an order may start."""


def asking_order(train_rows: Dataset, config: SequentialConfig, places: int | None = None) -> Order:
    """The asking order: by falling train accuracy, ties by `rank_models`.

    With choices, the best models after the first are ordered by what each adds to those before it. Copies of
    another model come last. `places`: only so many first places are needed, and later ones go by accuracy.
    """
    firsts: list[int] = []
    copies: list[int] = []
    for model in train_rows.rank_models().tolist():
        (copies if _copies_one_of(train_rows, model, firsts) else firsts).append(model)
    if train_rows.kind == "choices":
        some = train_rows.take(select_comparison_rows(len(train_rows)))
        firsts = [
            *order_by_gain(some, firsts[:_MAX_WEIGHED_MODELS], config, places),
            *firsts[_MAX_WEIGHED_MODELS:],
        ]
    return (*firsts, *copies)


def order_by_gain(
    rows: Dataset, models: Sequence[int], config: SequentialConfig, places: int | None = None
) -> list[int]:
    """`models` by greedy forward selection after the first of them, the only one that most documents ask.

    The ensemble of the next model and those before it is log-linear. It gives held-out labels the highest
    log-likelihood, or one within a standard error of it; of several such models, the first is next.
    Otherwise the choice of folds would decide. Once `places` are filled, the other models follow as given.
    """
    order, ahead = list(models[:1]), list(models[1:])
    blank = QuestionFeatures(*[np.zeros((len(rows), 0))] * 2)
    seen = outputs(rows, blank, fit_scales(rows), range(len(rows.models)), rows.probs.shape[2])
    of_slots = stage_rows(seen._replace(own=seen.own[..., :0]), len(rows.models), rows.kind)
    part = torch.from_numpy(folds(rows, _N_FOLDS))
    while len(ahead) > 1 and (places is None or len(order) < places):
        teams = [[*order, model] for model in ahead]
        gives = _score_held_out(of_slots, teams, part, config.shared_ridge)
        short = (gives[gives.sum(1).argmax()] - gives).numpy()
        is_best = short.mean(axis=1) <= short.std(axis=1) / len(rows) ** 0.5
        order.append(ahead.pop(int(is_best.argmax())))
    return order + ahead


def _score_held_out(
    rows: RegressionRows, teams: Sequence[Sequence[int]], part: Tensor, ridge: float
) -> Tensor:
    """(B, T) the out-of-fold log-likelihood of each document's label by the log-linear ensemble of each of B
    teams."""
    n_teams, n_folds = len(teams), int(part.max()) + 1
    deviations = rows.shared.new_zeros((n_teams, rows.shared.shape[2]))
    for number, team in enumerate(teams):
        deviations[number, list(team)] = ridge**-0.5
    fitted = fit_many(
        rows,
        (part != torch.arange(n_folds)[:, None]).to(rows.shared.dtype).repeat_interleave(n_teams, 0),
        Priors(deviations.repeat(n_folds, 1), rows.shared.new_zeros((n_teams * n_folds, rows.own.shape[1]))),
        biased=False,
        tolerance=_FIT_TOLERANCE,
    )
    scores = rows.shared.new_zeros((n_teams, len(part)))
    for fold in range(n_folds):
        held_out = torch.nonzero((part == fold) & (rows.labels >= 0))[:, 0]
        some = rows.take(held_out)
        probabilities = fitted.select(slice(fold * n_teams, (fold + 1) * n_teams)).probabilities(some)
        scores[:, held_out] = (
            probabilities[:, torch.arange(len(held_out)), some.labels].clamp(min=MIN_PROBABILITY).log()
        )
    return scores


def _copies_one_of(train_rows: Dataset, model: int, others: Sequence[int]) -> bool:
    """Whether the model answers like one of the others, errors included, as a quantised version does."""
    own, theirs = train_rows.predictions[:, [model]], train_rows.predictions[:, others]
    err = (own != train_rows.labels[:, None]) | (theirs != train_rows.labels[:, None])
    shared = (err & (own == theirs)).sum(axis=0) / (err.sum(axis=0) + _MIN_SHARED_ERRORS)
    same = (train_rows.probs[:, [model]] == train_rows.probs[:, others]).all(axis=(0, 2))
    return bool((same | (shared > _COPY_ERROR_OVERLAP)).any())


def priced_orders(train_rows: Dataset, config: SequentialConfig, shares: Floats) -> Iterator[Order]:
    """Yields orders that may be worth their price; the first is the one without regard to prices.

    The others follow the front of models that are right more often than every cheaper one, from one of its
    members to the dearest. The rest follow as without prices. `shares` (N,) are shares of all prices.
    """
    plain = asking_order(train_rows, config)
    yield plain
    accuracy = train_rows.correct.mean(axis=0)
    front: list[int] = []
    for model in sorted(plain, key=lambda model: (shares[model], plain.index(model))):
        if not front or accuracy[model] > accuracy[front[-1]]:
            front.append(model)
    starts = np.linspace(0, len(front) - 1, min(len(front), _MAX_STARTS)).round().astype(np.int64)
    for start in starts.tolist():
        climb = front[start:]
        order = (*climb, *(model for model in plain if model not in climb))
        if order != plain:
            yield order


def price_shares(train_rows: Dataset, config: SequentialConfig) -> Floats:
    """(N,) each model's share of the cost of asking all models; zeros where prices do not count or are 0.

    Raises InputError if they count and one is unknown.
    """
    if not config.price_penalty:
        return np.zeros(len(train_rows.models))
    prices = train_rows.mean_costs
    if np.isnan(prices).any():
        missing = train_rows.models[int(np.isnan(prices).argmax())]
        raise InputError(
            f"rl_focal_sequential: price_penalty={config.price_penalty:g} weighs prices, and that of "
            f"{missing!r} is unknown; give its price in the pool, or leave price_penalty at 0"
        )
    return np.asarray(prices / max(prices.sum(), np.finfo(np.float64).tiny))


def paid_by_stage(
    order: Order, sizes: Sequence[int], shares: Floats, config: SequentialConfig
) -> list[float]:
    """The penalty of prices and rounds once each stage has answered, where a right answer has a reward of 1.

    A model costs `price_penalty` times its share of all prices, `shares` (N,). Each stage is one round.
    """
    money = config.price_penalty * np.cumsum(shares[list(order)])
    return [float(money[size - 1]) + config.round_penalty * number for number, size in enumerate(sizes, 1)]


def stage_sizes(n_models: int, mean_pool: float) -> tuple[int, ...]:
    """How many models have answered at each stage: each about 1.5 times the one before, up to four times
    `mean_pool`."""
    most = min(n_models, max(int(4 * mean_pool), 2))
    sizes = [1]
    while sizes[-1] < most:
        sizes.append(min(most, max(sizes[-1] + 1, sizes[-1] * 3 // 2)))
    return tuple(sizes)
