"""Checkpoints come back whole or say what is wrong, and a killed training goes on from where it stood."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from support.agents_data import TINY, parameters, skilled

from rlfocal.base.errors import InputError
from rlfocal.data.policy import decide
from rlfocal.methods.rl_focal.agents import RLFocalAgents
from rlfocal.methods.rl_focal.training import train
from rlfocal.methods.trained.checkpoint import load_checkpoint, save_checkpoint


def test_checkpoints_come_back_whole(tmp_path: Path) -> None:
    data = skilled([0.9, 0.5, 0.3], n_docs=100)
    agents = train(data.train, TINY, [5])[0]
    path = tmp_path / "new" / "seed-5.safetensors"
    save_checkpoint(agents, path)
    loaded = load_checkpoint(path, data.models)
    assert isinstance(loaded, RLFocalAgents)
    assert isinstance(agents, RLFocalAgents)
    same = replace(loaded, networks=agents.networks, memory=agents.memory, questions=agents.questions)
    assert same == agents
    for name, value in parameters(agents).items():
        assert torch.equal(value, parameters(loaded)[name]), name
    np.testing.assert_array_equal(
        decide(loaded, data.test).predictions, decide(agents, data.test).predictions
    )
    assert list(path.parent.iterdir()) == [path]
    first = path.read_bytes()
    save_checkpoint(agents, path)
    assert path.read_bytes() == first


def test_broken_and_foreign_checkpoints(tmp_path: Path) -> None:
    data = skilled([0.9, 0.5, 0.3], n_docs=100)
    path = tmp_path / "seed-0.safetensors"
    save_checkpoint(train(data.train, TINY, [0])[0], path)
    with pytest.raises(InputError, match="train on this pool"):
        load_checkpoint(path, ("model-0", "another"))
    whole = path.read_bytes()
    for length in (0, 7, 100, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(InputError, match="seed-0"):
            load_checkpoint(path)
    path.write_bytes(whole.replace(b"made-up", b"made-in"))
    with pytest.raises(InputError, match="do not match their digest"):
        load_checkpoint(path)
    with pytest.raises(InputError, match="missing"):
        load_checkpoint(tmp_path / "missing.safetensors")


@pytest.mark.parametrize("seeds", [[3], pytest.param([3, 4], marks=pytest.mark.slow)])
def test_killed_training_goes_on_as_if_nothing_had_happened(tmp_path: Path, seeds: list[int]) -> None:
    """Killed in either phase or between them, it ends with the same agents bit for bit."""
    data = skilled([0.9, 0.5, 0.3], n_docs=60)
    config = replace(TINY, decider_episodes=5, fusion_episodes=9)
    uninterrupted = train(data.train, config, seeds)
    for killed_after in (5, 13) if len(seeds) == 1 else (11,):
        episodes = 0

        def kill(share: float, at: int = killed_after * len(seeds)) -> None:
            nonlocal episodes
            episodes += 1
            if episodes == at:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            train(data.train, config, seeds, kill, kept=tmp_path)
        told: list[float] = []
        resumed = train(data.train, config, seeds, told.append, kept=tmp_path)
        if len(seeds) == 1:  # two groups may have come differently far
            assert len(told) == 14 - killed_after // 5 * 5
        assert list(tmp_path.iterdir()) == []
        for one, other in zip(uninterrupted, resumed, strict=True):
            assert one.history == other.history
            for name, value in parameters(one).items():
                assert torch.equal(value, parameters(other)[name]), (killed_after, name)


def test_what_was_kept_of_other_settings_or_torn_is_not_gone_on_from(tmp_path: Path) -> None:
    data = skilled([0.9, 0.5, 0.3], n_docs=60)
    config = replace(TINY, decider_episodes=7)

    def kill(share: float) -> None:
        if share > 0.7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(data.train, config, [3], kill, kept=tmp_path)
    [kept] = tmp_path.iterdir()
    told: list[float] = []
    train(data.train, replace(config, clip=0.1), [3], told.append, kept=tmp_path)
    assert len(told) == 9
    kept.write_bytes(kept.read_bytes()[:-10])
    told.clear()
    train(data.train, config, [3], told.append, kept=tmp_path)
    assert len(told) == 9
