"""What `rl_focal_sequential` learns from outputs, texts and few or worthless labels, and what it must not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from support.datasets import make_dataset
from support.sequential_data import right

from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import decide
from rlfocal.methods import make_method
from rlfocal.methods.rl_focal_sequential.config import Recipe, SequentialConfig
from rlfocal.methods.rl_focal_sequential.softmax_regression import Priors, Rows, fit_stage
from rlfocal.methods.rl_focal_sequential.training import train


def test_nothing_of_a_held_out_row_reaches_what_is_fitted_without_it() -> None:
    """Numbers enough to learn labels by heart, which are random: held out, they are not guessed."""
    rng = np.random.default_rng(0)
    T, F = 200, 150
    rows = Rows(
        torch.from_numpy(rng.normal(size=(T, 2, 1))),
        torch.from_numpy(rng.normal(size=(T, F))),
        torch.ones((T, 2), dtype=torch.bool),
        torch.from_numpy(rng.integers(0, 2, size=T)),
    )
    priors = Priors(torch.ones((1, 1)).double(), torch.full((1, F), 5.0).double())
    part = np.arange(T)[None] % 5
    stage = fit_stage(rows, priors, part, biased=True)
    known = rows.labels.numpy()
    assert (stage.weights.probabilities(rows)[0].numpy().argmax(axis=1) == known).mean() > 0.95
    assert abs((stage.out_of_fold[0].argmax(axis=1) == known).mean() - 0.5) < 0.1
    other = rows.labels.clone()
    other[part[0] == 2] = 1 - other[part[0] == 2]
    flipped = fit_stage(Rows(rows.shared, rows.own, rows.open, other), priors, part, biased=True)
    assert (flipped.out_of_fold[0][part[0] == 2] == stage.out_of_fold[0][part[0] == 2]).all()


def test_what_a_model_says_of_one_choice_tells_about_another() -> None:
    """It always says the choice before the right one."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, size=500)
    before, guess = (labels - 1) % 4, rng.integers(0, 4, size=500)
    says = np.stack([before, guess], axis=1)
    probs = np.where(np.arange(4) == says[..., None], 0.7, 0.1)
    data = make_dataset(probs, labels, n_train=350)
    [agents] = train(data.train, SequentialConfig(), [0])
    assert right(agents, data.test).mean() > 0.95
    alone = replace(SequentialConfig(), recipes=(Recipe(0, shared=0.2),))
    assert right(train(data.train, alone, [0])[0], data.test).mean() < 0.5


def test_curves_see_what_is_neither_more_nor_less() -> None:
    """Questions of middling length have one answer, short and long ones the other; nobody knows."""
    rng = np.random.default_rng(0)
    words = rng.integers(2, 40, size=600)
    labels = ((words > 8) & (words < 20)).astype(np.int64)
    data = make_dataset(rng.dirichlet([1, 1], size=(600, 2)), labels, n_train=400)
    data = replace(data, questions=tuple(" ".join(["word"] * n) for n in words))
    blind, seeing = (
        train(data.train, SequentialConfig(recipes=(Recipe(100, surface=30, curves=c),)), [0])[0]
        for c in (0.0, 0.3)
    )
    assert right(seeing, data.test).mean() > 0.9 > right(blind, data.test).mean() + 0.05


def noisy(skills: list[float], T: int, n_train: int, seed: int) -> Dataset:
    """Four choices; wrong answers are as confident as right ones."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 4, size=T)
    wrong = (labels[:, None] + rng.integers(1, 4, size=(T, len(skills)))) % 4
    says = np.where(rng.random((T, len(skills))) < skills, labels[:, None], wrong)
    top = rng.uniform(0.4, 0.99, size=(T, len(skills), 1))
    return make_dataset(
        np.where(np.arange(4) == says[..., None], top, (1 - top) / 3), labels, n_train=n_train
    )


@pytest.mark.slow
@pytest.mark.parametrize("n_train", [10, *(pytest.param(n, marks=pytest.mark.slow) for n in (30, 100))])
def test_with_few_labels_it_is_no_worse_than_the_best_model_by_them(n_train: int) -> None:
    gains = []
    for seed in range(8):
        data = noisy([0.8, 0.7, 0.65, 0.5, 0.45, 0.4], T=n_train + 600, n_train=n_train, seed=seed)
        [agents] = train(data.train, SequentialConfig(), [0])
        [single] = make_method("best_single").fit(data.train, [0])
        best = decide(single, data.test).predictions == data.test.labels
        gains.append(right(agents, data.test).mean() - best.mean())
    assert np.mean(gains) > -0.02
