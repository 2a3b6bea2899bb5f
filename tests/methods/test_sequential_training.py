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
from support.datasets import make_logits
from support.sequential_data import ANSWERS, CHOICES, SMALL, asked_in_words, of_models, trained
from threadpoolctl import threadpool_limits

from rlfocal.base.errors import InputError
from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import decide
from rlfocal.methods.rl_focal_sequential import training
from rlfocal.methods.rl_focal_sequential.config import Recipe, SequentialConfig
from rlfocal.methods.rl_focal_sequential.softmax_regression import Rows, Stage, fit_stage
from rlfocal.methods.rl_focal_sequential.training import train
from rlfocal.methods.variants import save_checkpoint


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

    def noted(rows: Rows, *args: Any, **named: Any) -> Stage:
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
        (lambda: SequentialConfig(recipes=(Recipe(-1),)), "recipes.0.outputs is -1"),
        (lambda: SequentialConfig(recipes=()), "recipes"),
    ],
)
def test_what_cannot_be_trained_on_is_named(begin: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        begin()


def test_a_seed_is_the_same_to_the_byte_whatever_seeds_are_trained_beside_it(tmp_path: Path) -> None:
    rows = CHOICES.train
    config = replace(SMALL, recipes=(*SMALL.recipes, Recipe(10), Recipe(0, shared=0, votes=5)))
    written = []
    for seeds in ([4], [0, 4], [1, 4]):  # 1 alone would take another recipe more
        save_checkpoint(train(rows, config, seeds)[-1], tmp_path / "seed.safetensors")
        written.append((tmp_path / "seed.safetensors").read_bytes())
    assert written[0] == written[1] == written[2]
