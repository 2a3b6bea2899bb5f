"""The sequential Decider: the order in which models are asked, and after each stage whether to go on.

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
from rlfocal.methods.rl_focal_sequential.observations import (
    QuestionFeatures,
    fit_scales,
    make_outputs,
    stage_rows,
)
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
    """The Decider's observation of T documents after one stage, with the costs so far."""

    features: Floats
    """(T, 5) a constant, Fusion's confidence and the models' agreement, as `view` computes them"""
    size: int
    """The number of models asked so far."""
    cost: float = 0.0
    """The penalty of prices and rounds so far, where a right answer has a reward of 1."""
    abstention_reward: float = 0.0
    """The reward of an abstention, where a right answer has a reward of 1; 0 where nobody abstains."""

    @property
    def expected_reward(self) -> Floats:
        """(T,) the expected reward of stopping here, without costs.

        It is Fusion's out-of-fold probability of being right, or the reward of an abstention if that is
        higher. The outcome itself as the reward is noisier, and lost half a point on train.
        """
        return np.maximum(self.features[:, 1], self.abstention_reward)

    def outcome(self, right: Bools) -> Floats:
        """(T,) the reward of stopping here, without costs, from whether answers were `right` (T,)."""
        return outcome(right, self.features[:, 1], self.abstention_reward)

    def stop_reward(self, penalty: float) -> Floats:
        """(T,) the expected reward of stopping here, at `penalty` per model asked."""
        return self.expected_reward - penalty * self.size - self.cost


def outcome(right: Bools, probability: Floats, least: float) -> Floats:
    """(T,) rewards: 1 for a right answer, 0 for a wrong one, `least` for an abstention.

    Answers of a `probability` below `least` are abstentions.
    """
    return np.where(probability < least, least, right)


def view(probabilities: Floats, answers: Ints, votes: Ints, n_slots: int) -> Floats:
    """(T, 5) the Decider's observation, from Fusion's distribution (T, C) and answers (T,).

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
    """(K-1, 5) weights of the value of going on minus that of stopping, at each stage but the last.

    The value is the expected reward, minus `penalty` per model asked and the cost of prices and rounds.
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
    """(T,) whether the Decider goes on, by features (T, 5) and the weights (5,) of a stage."""
    return features @ weights > 0


def stop_stages(weights: Floats, features: Sequence[Floats]) -> Ints:
    """(T,) the stage of each document's answer, by weights (K-1, 5) and features (T, 5) of all stages."""
    n = len(features[0])
    stage = np.full(n, len(features) - 1)
    for number in range(len(features) - 2, -1, -1):
        stage = np.where(asks_more(weights[number], features[number]), stage, number)
    return stage


def fit_within(
    stages: Sequence[StageView], final_features: Sequence[Floats], mean_pool: float, least_penalty: float
) -> tuple[Floats, float]:
    """The Decider's weights at the smallest penalty that asks at most `mean_pool` models, and that penalty.

    The penalty per model is `least_penalty` or more, and the mean is over train. The limit holds both for
    out-of-fold Fusion, as in `stages`, and for the final Fusion, with `final_features` (T, 5) at each stage.
    If outputs have few distinct values, the two may differ on many documents.
    """
    features, sizes = [s.features for s in stages], np.array([s.size for s in stages])

    def fit_at(penalty: float) -> tuple[Floats, float]:
        weights = fit_decider(stages, penalty)
        return weights, max(float(sizes[stop_stages(weights, f)].mean()) for f in (features, final_features))

    weights, mean = fit_at(least_penalty)
    if mean <= mean_pool:
        return weights, least_penalty
    penalty = least_enough(lambda tried: fit_at(tried)[1] <= mean_pool, least_penalty, 1.0, 20)
    return fit_at(penalty)[0], penalty


class Ledger(NamedTuple):
    """The data that a Decider is fitted to, with an item for each stage."""

    views: list[StageView]
    final_features: list[Floats]

    def select_stages(self, stages: Sequence[int], costs: Sequence[float]) -> Ledger:
        """The ledger of some of the stages; `costs`: the penalty of prices and rounds at each of these."""
        views = [self.views[number]._replace(cost=cost) for number, cost in zip(stages, costs, strict=True)]
        return Ledger(views, [self.final_features[number] for number in stages])

    def decider(self, config: SequentialConfig, n_models: int) -> tuple[Floats, float]:
        """The Decider's weights, and the penalty per model."""
        return fit_within(
            self.views, self.final_features, config.budget(n_models), config.size_penalty / n_models
        )

    def outcomes(self, right: Bools, weights: Floats, penalty: float) -> Floats:
        """(K, T) the reward on each document if only stages up to each one may be asked.

        `right` (K, T): whether out-of-fold Fusion was right. `weights`: the Decider's. `penalty`: per model
        asked.
        """
        earned = np.stack([view.outcome(is_right) for view, is_right in zip(self.views, right, strict=True)])
        costs = np.array([penalty * view.size + view.cost for view in self.views])
        stop = stop_stages(weights, [view.features for view in self.views])
        up_to = np.minimum(stop, np.arange(len(right))[:, None])
        return np.asarray(np.take_along_axis(earned, up_to, axis=0) - costs[up_to])

    def mean_reward(self, config: SequentialConfig, n_models: int) -> float:
        """The mean expected reward of a train document at the stage where the Decider stops."""
        stop = stop_stages(self.decider(config, n_models)[0], [view.features for view in self.views])
        earned = np.stack([view.stop_reward(config.size_penalty / n_models) for view in self.views])
        return float(earned[stop, np.arange(len(stop))].mean())


def worthwhile_stages(
    ledger: Ledger,
    sizes: Sequence[int],
    list_costs: Callable[[Sequence[int]], list[float]],
    config: SequentialConfig,
    n_models: int,
) -> list[int]:
    """The positions of the stages that are worth a round; others are left out one by one while that pays.

    `list_costs` maps stages' sizes to the penalty of prices and rounds at each. If rounds are free, no stage
    is left out, because one more stage never hurts. The first stage never exceeds the mean pool.
    """
    chosen = list(range(len(sizes)))
    if not config.round_penalty:
        return chosen

    def reward_stages(stages: Sequence[int]) -> float:
        costs = list_costs([sizes[number] for number in stages])
        return ledger.select_stages(stages, costs).mean_reward(config, n_models)

    best = reward_stages(chosen)
    while len(chosen) > 1:
        fewer = [[*chosen[:number], *chosen[number + 1 :]] for number in range(len(chosen))]
        worth = [
            reward_stages(tried) if sizes[tried[0]] <= config.budget(n_models) else -np.inf for tried in fewer
        ]
        if max(worth) <= best:
            break
        best, chosen = max(worth), fewer[int(np.argmax(worth))]
    return chosen


# ---- in which order and stages the models are asked, and what a stage costs


Order = tuple[int, ...]
"""Positions of the models, in the order in which they are asked."""

_COPY_ERROR_OVERLAP = 0.75
"""The least share of equal errors, of the documents where either of two models errs, that shows a copy.

Unrelated LLMs have a share of 0.4.
"""
_MIN_SHARED_ERRORS = 2
"""A constant in the number of errors, so that a few shared errors do not show a copy."""
_MAX_WEIGHED_MODELS = 20
"""The number of the most accurate models that are ordered by what they add to each other."""
_N_FOLDS = 5
_FIT_TOLERANCE = 0.5
_MAX_STARTS = 4
"""The most models of the price-accuracy front from which an order may start."""


def asking_order(train_rows: Dataset, config: SequentialConfig, places: int | None = None) -> Order:
    """The asking order: models by falling train accuracy, as `rank_models` sorts them.

    With choices, the best models after the first are ordered by what each adds to those before it. Copies of
    another model come last. `places`: the number of first places that are needed; later ones go by accuracy.
    """
    firsts: list[int] = []
    copies: list[int] = []
    for model in train_rows.rank_models().tolist():
        (copies if _copies_one_of(train_rows, model, firsts) else firsts).append(model)
    if train_rows.kind == "choices":
        some = train_rows.take(select_comparison_rows(len(train_rows)))
        firsts = [
            *_order_by_gain(some, firsts[:_MAX_WEIGHED_MODELS], config, places),
            *firsts[_MAX_WEIGHED_MODELS:],
        ]
    return (*firsts, *copies)


def _order_by_gain(
    rows: Dataset, models: Sequence[int], config: SequentialConfig, places: int | None = None
) -> list[int]:
    """`models` by greedy forward selection after the first of them, which most documents ask alone.

    Each model is judged by the held-out log-likelihood of its log-linear ensemble with those before it. The
    next one is the first model within a standard error of the best, or the choice of folds would decide.
    After `places` models, the others follow as given.
    """
    order, ahead = list(models[:1]), list(models[1:])
    blank = QuestionFeatures(*[np.zeros((len(rows), 0))] * 2)
    outputs = make_outputs(rows, blank, fit_scales(rows), range(len(rows.models)), rows.probs.shape[2])
    of_slots = stage_rows(outputs._replace(own=outputs.own[..., :0]), len(rows.models), rows.kind)
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
    """(B, T) the out-of-fold log-likelihood of labels by the log-linear ensemble of each of B teams.

    `part` (T,): the fold of each document.
    """
    n_teams, n_folds = len(teams), int(part.max()) + 1
    deviations = rows.shared.new_zeros((n_teams, rows.shared.shape[2]))
    for number, team in enumerate(teams):
        deviations[number, list(team)] = ridge**-0.5
    fitted = fit_many(
        rows,
        (part != torch.arange(n_folds)[:, None]).to(rows.shared.dtype).repeat_interleave(n_teams, 0),
        Priors(deviations.repeat(n_folds, 1), rows.shared.new_zeros((n_teams * n_folds, rows.own.shape[1]))),
        has_biases=False,
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


def _copies_one_of(train_rows: Dataset, model: int, other_models: Sequence[int]) -> bool:
    """Whether the model answers and errs like one of the other models, as a quantised version does."""
    own, theirs = train_rows.predictions[:, [model]], train_rows.predictions[:, other_models]
    err = (own != train_rows.labels[:, None]) | (theirs != train_rows.labels[:, None])
    shared = (err & (own == theirs)).sum(axis=0) / (err.sum(axis=0) + _MIN_SHARED_ERRORS)
    same = (train_rows.probs[:, [model]] == train_rows.probs[:, other_models]).all(axis=(0, 2))
    return bool((same | (shared > _COPY_ERROR_OVERLAP)).any())


def priced_orders(train_rows: Dataset, config: SequentialConfig, shares: Floats) -> Iterator[Order]:
    """Yields asking orders that may be worth their price; the first ignores prices.

    The others begin with models that are more accurate than every cheaper one, from one of these to the
    dearest. Other models follow as without prices. `shares` (N,): each model's share of all prices.
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
    """(N,) each model's share of the cost of asking all models; zeros if prices do not count or are all 0.

    Raises InputError if prices count and one is unknown.
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


def list_stage_costs(
    order: Order, sizes: Sequence[int], shares: Floats, config: SequentialConfig
) -> list[float]:
    """The penalty of prices and rounds after each stage, where a right answer has a reward of 1.

    `sizes`: the number of models that each stage has asked. A model costs `price_penalty` times its share of
    all prices, `shares` (N,). Each stage is one round.
    """
    money = config.price_penalty * np.cumsum(shares[list(order)])
    return [float(money[size - 1]) + config.round_penalty * number for number, size in enumerate(sizes, 1)]


def stage_sizes(n_models: int, mean_pool: float) -> tuple[int, ...]:
    """(K,) the number of models that have answered at each stage, up to four times `mean_pool`.

    Each is about 1.5 times the one before.
    """
    most = min(n_models, max(int(4 * mean_pool), 2))
    sizes = [1]
    while sizes[-1] < most:
        sizes.append(min(most, max(sizes[-1] + 1, sizes[-1] * 3 // 2)))
    return tuple(sizes)
