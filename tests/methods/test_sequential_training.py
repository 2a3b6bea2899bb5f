"""`rl_focal_sequential`: what is trained and stored, to the byte, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.agents_data import killed_after
from support.datasets import make_dataset, make_logits
from support.sequential_data import ANSWERS, CHOICES, SMALL, asked_in_words, of_models, right, trained
from threadpoolctl import threadpool_limits

from rlfocal.base.errors import InputError
from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import decide
from rlfocal.methods.rl_focal_sequential import training
from rlfocal.methods.rl_focal_sequential.config import Ridges, SequentialConfig
from rlfocal.methods.rl_focal_sequential.softmax_regression import Priors, RegressionRows, Stage, fit_stage
from rlfocal.methods.rl_focal_sequential.training import train
from rlfocal.methods.trained import save_checkpoint


@pytest.mark.slow
def test_the_number_of_threads_changes_no_bit(tmp_path: Path) -> None:
    """On train rows enough that products would be shared out, torch's and numpy's."""
    data = replace(
        asked_in_words(make_logits(0, T=2_300, N=4)),
        is_train=np.arange(2_300) < 2_200,
        labels=np.arange(2_300) % 3,
    )
    written = []
    before = torch.get_num_threads()
    for threads in (1, 3):
        torch.set_num_threads(threads)
        with threadpool_limits(threads, user_api="blas"):
            for agents in train(data.train, SMALL, [0, 1]):
                save_checkpoint(agents, tmp_path / "seed.safetensors")
                written.append((tmp_path / "seed.safetensors").read_bytes())
    torch.set_num_threads(before)
    assert written[:2] == written[2:]
    assert written[0] != written[1]


@pytest.mark.slow
@pytest.mark.parametrize("stages", [1, 3])
def test_a_killed_training_goes_on_after_the_last_stage_that_was_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stages: int
) -> None:
    rows = asked_in_words(make_logits(0, T=4_000, N=4)).train
    assert len(rows) >= 2_000
    save_checkpoint(train(rows, SMALL, [3])[0], tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        train(rows, SMALL, [3], killed_after(stages), tmp_path / "kept")
    sizes: list[int] = []

    def noted(rows: RegressionRows, *args: Any, **named: Any) -> Stage:
        sizes.append(rows.shared.shape[2])
        return fit_stage(rows, *args, **named)

    monkeypatch.setattr(training, "fit_stage", noted)
    [agents] = train(rows, SMALL, [3], None, tmp_path / "kept")
    assert len(sizes) == 4 - stages
    save_checkpoint(agents, tmp_path / "resumed")
    assert (tmp_path / "resumed").read_bytes() == (tmp_path / "whole").read_bytes()
    assert list((tmp_path / "kept").iterdir()) == []


def faulty() -> Dataset:
    probs = CHOICES.probs.copy()
    probs[3, 1, 0] = np.nan
    return replace(CHOICES, probs=probs)


@pytest.mark.parametrize(
    ("begin", "message"),
    [
        (lambda: train(of_models(CHOICES, [0]), SMALL, [0]), "one model"),
        (lambda: train(CHOICES.take(np.array([0])), SMALL, [0]), "1 train documents"),
        (lambda: train(faulty().train, SMALL, [0]), "'m01' has NaN .* document 3"),
        (lambda: decide(trained("choices"), ANSWERS), "trained on choices"),
        (lambda: SequentialConfig(mean_pool=0), "mean_pool is 0"),
        (lambda: SequentialConfig(recipes=(Ridges(-1),)), "recipes.0.outputs is -1"),
        (lambda: SequentialConfig(recipes=()), "recipes"),
    ],
)
def test_what_cannot_be_trained_on_is_named(begin: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        begin()


def test_a_seed_is_the_same_to_the_byte_whatever_seeds_are_trained_beside_it(tmp_path: Path) -> None:
    rows = CHOICES.train
    config = replace(SMALL, recipes=(*SMALL.recipes, Ridges(10), Ridges(0, shared=0, votes=5)))
    written = []
    for seeds in ([4], [0, 4], [1, 4]):  # 1 alone would take another recipe more
        save_checkpoint(train(rows, config, seeds)[-1], tmp_path / "seed.safetensors")
        written.append((tmp_path / "seed.safetensors").read_bytes())
    assert written[0] == written[1] == written[2]


# ---- what it learns from outputs, texts and few or worthless labels, and what it must not


def test_nothing_of_a_held_out_row_reaches_what_is_fitted_without_it() -> None:
    """Numbers enough to learn labels by heart, which are random: held out, they are not guessed."""
    rng = np.random.default_rng(0)
    T, F = 200, 150
    rows = RegressionRows(
        torch.from_numpy(rng.normal(size=(T, 2, 1))),
        torch.from_numpy(rng.normal(size=(T, F))),
        torch.ones((T, 2), dtype=torch.bool),
        torch.from_numpy(rng.integers(0, 2, size=T)),
    )
    priors = Priors(torch.ones((1, 1)).double(), torch.full((1, F), 5.0).double())
    part = np.arange(T)[None] % 5
    stage = fit_stage(rows, priors, part, has_biases=True)
    known = rows.labels.numpy()
    assert (stage.weights.probabilities(rows)[0].numpy().argmax(axis=1) == known).mean() > 0.95
    assert abs((stage.out_of_fold[0].argmax(axis=1) == known).mean() - 0.5) < 0.1
    other = rows.labels.clone()
    other[part[0] == 2] = 1 - other[part[0] == 2]
    flipped = fit_stage(
        RegressionRows(rows.shared, rows.own, rows.open, other), priors, part, has_biases=True
    )
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
    alone = replace(SequentialConfig(), recipes=(Ridges(0, shared=0.2),))
    assert right(train(data.train, alone, [0])[0], data.test).mean() < 0.5


def test_curves_see_what_is_neither_more_nor_less() -> None:
    """Questions of middling length have one answer, short and long ones the other; nobody knows."""
    rng = np.random.default_rng(0)
    words = rng.integers(2, 40, size=600)
    labels = ((words > 8) & (words < 20)).astype(np.int64)
    data = make_dataset(rng.dirichlet([1, 1], size=(600, 2)), labels, n_train=400)
    data = replace(data, questions=tuple(" ".join(["word"] * n) for n in words))
    blind, seeing = (
        train(data.train, SequentialConfig(recipes=(Ridges(100, surface=30, curves=c),)), [0])[0]
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
        hits = data.train.correct.sum(axis=0)
        best = data.test.correct[:, hits == hits.max()]  # on few documents, several are the best
        gains.append(right(agents, data.test).mean() - best.mean())
    assert np.mean(gains) > -0.02
