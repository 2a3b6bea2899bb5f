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
from rlfocal.methods import CheckpointStore, RLFocal
from rlfocal.methods.rl_focal_sequential import training
from rlfocal.methods.rl_focal_sequential.config import Recipe, SequentialConfig
from rlfocal.methods.rl_focal_sequential.fitting import Stage, fit_stage
from rlfocal.methods.rl_focal_sequential.softmax_regression import Rows
from rlfocal.methods.rl_focal_sequential.training import train
from rlfocal.methods.variants import save_checkpoint


@pytest.mark.parametrize("data", [CHOICES, ANSWERS], ids=lambda data: data.kind)
def test_a_seed_is_a_checkpoint_to_the_byte_and_test_labels_reach_neither_it_nor_decisions(
    data: Dataset, tmp_path: Path
) -> None:
    permuted = data.labels.copy()
    permuted[~data.is_train] = (data.test.labels + 1) % 3
    left = []
    for name, labels in (("once", data.labels), ("twice", data.labels), ("permuted", permuted)):
        seen = replace(data, labels=labels)
        method = RLFocal("rl_focal_sequential", SMALL, CheckpointStore(tmp_path / name))
        [policy] = method.fit(seen.train, [3])
        decided = decide(policy, seen.test)
        file = method.checkpoint(seen.train, 3)
        left.append((file.relative_to(tmp_path / name), file.read_bytes(), decided))
        [again] = method.fit(seen.train, [3])
        loaded = decide(again, seen.test)
        assert (loaded.pools == decided.pools).all()
        assert (loaded.predictions == decided.predictions).all()
    for path, content, decided in left[1:]:
        assert (path, content) == left[0][:2]
        assert decided.pools.tobytes() == left[0][2].pools.tobytes()
        assert decided.predictions.tobytes() == left[0][2].predictions.tobytes()


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
