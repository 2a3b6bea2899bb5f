"""In which order and stages `rl_focal_sequential` asks the models, and what a stage costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from rlfocal.base.arrays import Floats
from rlfocal.base.errors import InputError
from rlfocal.data.dataset import Dataset
from rlfocal.methods.learning.earning import draw_folds
from rlfocal.methods.rl_focal_sequential.config import SequentialConfig
from rlfocal.methods.rl_focal_sequential.fitting import telling
from rlfocal.methods.rl_focal_sequential.observations import About, fit_scales, outputs, stage_rows
from rlfocal.methods.rl_focal_sequential.softmax_regression import LEAST_CHANCE, Priors, Rows, fit_many

Order = tuple[int, ...]
"""Positions of the models, the first to be asked first."""

_COPY = 0.75
"""Copies err alike on more than this share of the documents where either errs; unrelated LLMs: 0.4."""
_FEW_ERRORS = 2
"""Added to the number of errors, so that a handful of them does not make a copy."""
_MOST_WEIGHED = 20
"""How many models, the most accurate, are ordered by what they add."""
_PARTS = 5
_TOLERANCE = 0.5
_MOST_STARTS = 4
"""How many models of the price-accuracy front an order may start from."""


def asking_order(train_rows: Dataset, config: SequentialConfig) -> Order:
    """By falling train accuracy, ties alphabetically; with choices, the best models after the first are
    ordered by what each adds to those before it. Copies of another model come last.
    """
    firsts: list[int] = []
    copies: list[int] = []
    for model in np.argsort(-train_rows.correct.sum(axis=0), kind="stable").tolist():
        (copies if _copies_one_of(train_rows, model, firsts) else firsts).append(model)
    if train_rows.kind == "choices":
        some = train_rows.take(telling(len(train_rows)))
        firsts = [*by_what_they_add(some, firsts[:_MOST_WEIGHED], config), *firsts[_MOST_WEIGHED:]]
    return (*firsts, *copies)


def by_what_they_add(rows: Dataset, models: Sequence[int], config: SequentialConfig) -> list[int]:
    """Greedy forward selection after the first of `models`, the only one that most documents ask: next is the
    first whose log-linear pool with those before gives held-out labels the highest log-likelihood, or one
    within a standard error of it; otherwise the choice of folds would decide.
    """
    order, ahead = list(models[:1]), list(models[1:])
    blank = About(*[np.zeros((len(rows), 0))] * 2)
    seen = outputs(rows, blank, fit_scales(rows), range(len(rows.models)), rows.probs.shape[2])
    of_slots = stage_rows(seen._replace(own=seen.own[..., :0]), len(rows.models), rows.kind)
    part = torch.from_numpy(draw_folds(len(rows), _PARTS))
    while ahead:
        teams = [[*order, model] for model in ahead]
        gives = _held_out_log_score(of_slots, teams, part, config.shared_ridge)
        short = (gives[gives.sum(1).argmax()] - gives).numpy()
        is_best = short.mean(axis=1) <= short.std(axis=1) / len(rows) ** 0.5
        order.append(ahead.pop(int(is_best.argmax())))
    return order


def _held_out_log_score(rows: Rows, teams: Sequence[Sequence[int]], part: Tensor, ridge: float) -> Tensor:
    """(B, T) out-of-fold log-likelihood of each document's label by the log-linear pool of each team."""
    n_teams, n_folds = len(teams), int(part.max()) + 1
    deviations = rows.shared.new_zeros((n_teams, rows.shared.shape[2]))
    for at, team in enumerate(teams):
        deviations[at, list(team)] = ridge**-0.5
    fitted = fit_many(
        rows,
        (part != torch.arange(n_folds)[:, None]).to(rows.shared.dtype).repeat_interleave(n_teams, 0),
        Priors(deviations.repeat(n_folds, 1), rows.shared.new_zeros((n_teams * n_folds, rows.own.shape[1]))),
        biased=False,
        tolerance=_TOLERANCE,
    )
    scores = rows.shared.new_zeros((n_teams, len(part)))
    for fold in range(n_folds):
        held_out = torch.nonzero((part == fold) & (rows.labels >= 0))[:, 0]
        some = rows.take(held_out)
        said = fitted.at(slice(fold * n_teams, (fold + 1) * n_teams)).probabilities(some)
        scores[:, held_out] = said[:, torch.arange(len(held_out)), some.labels].clamp(min=LEAST_CHANCE).log()
    return scores


def _copies_one_of(train_rows: Dataset, model: int, others: Sequence[int]) -> bool:
    """Whether the model answers as one of the others does, errors included, like a quantised version."""
    said, theirs = train_rows.predictions[:, [model]], train_rows.predictions[:, others]
    err = (said != train_rows.labels[:, None]) | (theirs != train_rows.labels[:, None])
    shared = (err & (said == theirs)).sum(axis=0) / (err.sum(axis=0) + _FEW_ERRORS)
    same = (train_rows.probs[:, [model]] == train_rows.probs[:, others]).all(axis=(0, 2))
    return bool((same | (shared > _COPY)).any())


def priced_orders(train_rows: Dataset, config: SequentialConfig, shares: Floats) -> Iterator[Order]:
    """Orders that may be worth their price, the one without regard to prices first.

    The others climb the front of models that are right more often than every cheaper one, from one of its
    members to the dearest; the rest follow as without prices. `shares` (N,) of all prices.
    """
    plain = asking_order(train_rows, config)
    yield plain
    accuracy = train_rows.correct.mean(axis=0)
    front: list[int] = []
    for model in sorted(plain, key=lambda model: (shares[model], plain.index(model))):
        if not front or accuracy[model] > accuracy[front[-1]]:
            front.append(model)
    starts = np.linspace(0, len(front) - 1, min(len(front), _MOST_STARTS)).round().astype(np.int64)
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
    """What prices and rounds have cost once each stage has answered, where being right earns 1.

    A model costs `price_penalty` times its share of all prices, `shares` (N,); each stage is one round.
    """
    money = config.price_penalty * np.cumsum(shares[list(order)])
    return [float(money[size - 1]) + config.round_penalty * at for at, size in enumerate(sizes, 1)]


def stage_sizes(n_models: int, mean_pool: float) -> tuple[int, ...]:
    """How many models have answered at each stage: about half as many again, up to four times `mean_pool`."""
    most = min(n_models, max(int(4 * mean_pool), 2))
    sizes = [1]
    while sizes[-1] < most:
        sizes.append(min(most, max(sizes[-1] + 1, sizes[-1] * 3 // 2)))
    return tuple(sizes)
