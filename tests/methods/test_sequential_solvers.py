"""`rl_focal_sequential`: its regressions, recipes and stopping against independent solvers."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import minimize

from rlfocal.methods.rl_focal_sequential import softmax_regression
from rlfocal.methods.rl_focal_sequential.decider import (
    N_FEATURES,
    StageView,
    fit_decider,
    fit_within,
    stop_stages,
)
from rlfocal.methods.rl_focal_sequential.softmax_regression import (
    Priors,
    RegressionRows,
    fit_many,
    minimise,
    mixture,
)


def random_rows(T: int = 60, C: int = 4, G: int = 3, F: int = 5) -> RegressionRows:
    """Some slots closed, some rows without a right slot."""
    rng = np.random.default_rng(0)
    exists = np.arange(C) < rng.integers(2, C + 1, size=T)[:, None]
    labels = np.where(rng.random(T) < 0.1, -1, rng.integers(0, exists.sum(axis=1)))
    shared, own = rng.normal(size=(T, C, G)), rng.normal(size=(T, F))
    return RegressionRows(*(torch.from_numpy(part) for part in (shared, own, exists, labels)))


@pytest.mark.parametrize("biased", [True, False])
def test_regressions_side_by_side_equal_scipys_one_by_one(biased: bool) -> None:
    rows = random_rows(F=5 if biased else 0)
    T, C, G = rows.shared.shape
    F = rows.own.shape[1]
    rng = np.random.default_rng(1)
    taken = (rng.random((3, T)) < 0.7).astype(float)
    scales = np.array([[1.0] * 5, [0.3, 0, 1, 0, 0.1], [0.0] * 5])[:, :F]
    shared_scales = np.array([[0.7] * G, [1.0, 0.0, 0.5], [0.2, 1.0, 0.0]])
    priors = Priors(torch.from_numpy(shared_scales), torch.from_numpy(scales))
    found = fit_many(rows, torch.from_numpy(taken), priors, has_biases=biased, tolerance=1e-5)
    shared, own, exists, labels = (part.numpy() for part in (rows.shared, rows.own, rows.open, rows.labels))

    def distributions(x: NDArray[np.float64], problem: int) -> NDArray[np.float64]:
        a, b = x[:G] * shared_scales[problem], x[G : G + C] * biased
        w = x[G + C :].reshape(F, C) * scales[problem][:, None]
        logits = np.where(exists, shared @ a + b + own @ w, -np.inf)
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))

    for problem in range(3):
        keep = (taken[problem] > 0) & (labels >= 0)

        def loss(x: NDArray[np.float64], keep: NDArray[np.bool_] = keep, problem: int = problem) -> float:
            p = distributions(x, problem)[keep, labels[keep]]
            ridge = x[:G] @ x[:G] + 10 * x[G : G + C] @ x[G : G + C] + x[G + C :] @ x[G + C :]
            return float(-np.log(p).sum() + ridge / 2)

        solved = minimize(
            loss, np.zeros(G + C + F * C), method="L-BFGS-B", options={"ftol": 1e-15, "maxfun": 10**6}
        )
        got = found.probabilities(rows)[problem].numpy()
        np.testing.assert_allclose(got, distributions(solved.x, problem), atol=1e-4)
        assert (got[~exists] == 0).all()


def test_many_rows_are_read_in_blocks_and_their_distributions_are_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = random_rows(T=50)
    priors = Priors(torch.ones((2, 3)), torch.full((2, 5), 0.3))
    taken = torch.ones((2, 50), dtype=torch.float64)
    whole = fit_many(rows, taken, priors, has_biases=True, tolerance=1e-6).probabilities(rows)
    monkeypatch.setattr(softmax_regression, "_BLOCK_ROWS", 16)
    blocks = fit_many(rows, taken, priors, has_biases=True, tolerance=1e-6).probabilities(rows)
    np.testing.assert_allclose(blocks, whole, atol=1e-6)


def test_minimise_solves_each_problem_of_a_batch() -> None:
    """Rosenbrock's valley from three places, beside a badly scaled quadratic."""
    scale = torch.tensor([1.0, 300.0], dtype=torch.float64)

    def loss(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = x.detach().requires_grad_()
        valley = (1 - x[:3, 0]) ** 2 + 100 * (x[:3, 1] - x[:3, 0] ** 2) ** 2
        bowl = (scale * (x[3:] - 2) ** 2).sum(1)
        value = torch.cat([valley, bowl])
        return value.detach(), torch.autograd.grad(value.sum(), x)[0]

    start = torch.tensor([[-1.2, 1.0], [0.0, 0.0], [2.0, -1.0], [50.0, -7.0]], dtype=torch.float64)
    found = minimise(loss, start, tolerance=1e-7)
    expected = torch.tensor([[1.0, 1.0]] * 3 + [[2.0, 2.0]], dtype=torch.float64)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def test_shares_of_recipes_are_the_likeliest() -> None:
    at_label = np.random.default_rng(0).dirichlet([0.5, 1, 2], size=40)
    grid = np.array([(a, b, 100 - a - b) for a in range(1, 99) for b in range(1, 100 - a)]) / 100
    objective = np.log(at_label @ grid.T).sum(axis=0) + np.log(grid).sum(axis=1) / 3
    shares = mixture(at_label, iterations=2_000)
    np.testing.assert_allclose(shares, grid[objective.argmax()], atol=0.011)
    assert np.log(at_label @ shares).sum() + np.log(shares).sum() / 3 >= objective.max() - 1e-9


@given(st.lists(st.integers(0, 4), min_size=5, max_size=5), st.sampled_from([0.0, 0.02, 0.06, 0.3]))
def test_the_decider_is_the_best_of_all_ways_to_stop(chances: list[int], penalty: float) -> None:
    """Certainty walks between two levels through three stages: as dynamic programming would."""
    levels = np.array([(0.35, 0.7), (0.4, 0.8), (0.5, 0.95)])
    up = [quarters / 4 for quarters in chances]
    every = np.array(list(product((0, 1), repeat=3)))
    share = [
        np.prod([q if s else 1 - q for q, s in zip((up[0], up[1 + a], up[3 + b]), (a, b, c), strict=True)])
        for a, b, c in every
    ]
    walks = every.repeat(np.round(np.array(share) * 25_600).astype(int), axis=0)
    reward = levels[np.arange(3), walks]
    views = []
    for stage in range(3):
        features = np.zeros((len(walks), N_FEATURES))
        features[:, 0], features[:, 1] = 1, reward[:, stage]
        views.append(StageView(features, stage + 1))
    earned = reward - penalty * np.arange(1, 4)

    def worth(stage: NDArray[np.int64]) -> float:
        return float(earned[np.arange(len(walks)), stage].mean())

    best = -np.inf
    for go in product((False, True), repeat=4):
        goes = np.array(go).reshape(2, 2)
        best = max(best, worth(np.where(~goes[0][walks[:, 0]], 0, np.where(~goes[1][walks[:, 1]], 1, 2))))
    weights = fit_decider(views, penalty)
    assert worth(stop_stages(weights, [v.features for v in views])) >= best - 4e-3


@given(st.integers(0, 50), st.floats(1, 6))
def test_train_asks_no_more_than_the_mean_pool(seed: int, mean_pool: float) -> None:
    rng = np.random.default_rng(seed)
    views = []
    for at, size in enumerate((1, 2, 4, 6)):
        features = rng.random((80, N_FEATURES))
        features[:, 0] = 1
        features[:, 1] += 0.1 * at
        views.append(StageView(features, size))
    deployed = [v.features + 0.05 * rng.random(v.features.shape) for v in views]
    weights, penalty = fit_within(views, deployed, mean_pool, 0.0)

    def asked(weights: NDArray[np.float64]) -> float:
        sizes = np.array([1, 2, 4, 6])
        return max(
            float(sizes[stop_stages(weights, f)].mean()) for f in ([v.features for v in views], deployed)
        )

    assert asked(weights) <= mean_pool
    if penalty > 0:
        assert asked(fit_decider(views, penalty - 1e-5)) > mean_pool
