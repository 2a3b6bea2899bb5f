"""Checkpoints come back whole or say what is wrong, and a killed training goes on from where it stood."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from support.agents_data import TINY, killed_after, parameters, skilled

from rlfocal.data.policy import decide
from rlfocal.methods.rl_focal.agents import RLFocalAgents
from rlfocal.methods.rl_focal.config import RLFocalConfig
from rlfocal.methods.rl_focal.training import train
from rlfocal.methods.variants import load_checkpoint, save_checkpoint


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


@pytest.mark.parametrize("seeds", [[3], pytest.param([3, 4], marks=pytest.mark.slow)])
def test_killed_training_goes_on_as_if_nothing_had_happened(tmp_path: Path, seeds: list[int]) -> None:
    """Killed in either phase or between them, it ends with the same agents bit for bit."""
    data = skilled([0.9, 0.5, 0.3], n_docs=60)
    config = replace(TINY, decider_episodes=5, fusion_episodes=9)
    uninterrupted = train(data.train, config, seeds)
    for episodes in (5, 13) if len(seeds) == 1 else (11,):
        with pytest.raises(KeyboardInterrupt):
            train(data.train, config, seeds, killed_after(episodes * len(seeds)), kept=tmp_path)
        told: list[float] = []
        resumed = train(data.train, config, seeds, told.append, kept=tmp_path)
        if len(seeds) == 1:  # two groups may have come differently far
            assert len(told) == 14 - episodes // 5 * 5
        assert list(tmp_path.iterdir()) == []
        for one, other in zip(uninterrupted, resumed, strict=True):
            assert one.history == other.history
            for name, value in parameters(one).items():
                assert torch.equal(value, parameters(other)[name]), (episodes, name)


def test_what_was_kept_of_other_settings_or_damaged_is_not_gone_on_from(tmp_path: Path) -> None:
    data = skilled([0.9, 0.5, 0.3], n_docs=60)
    config = replace(TINY, decider_episodes=7)
    with pytest.raises(KeyboardInterrupt):
        train(data.train, config, [3], killed_after(7), kept=tmp_path)
    [kept] = tmp_path.iterdir()
    whole = kept.read_bytes()

    def episodes(content: bytes, settings: RLFocalConfig = config) -> int:
        kept.write_bytes(content)
        told: list[float] = []
        train(data.train, settings, [3], told.append, kept=tmp_path)
        return len(told)

    assert episodes(whole, replace(config, clip=0.1)) == 9
    for at in (-1, len(whole) // 2):
        flipped = bytearray(whole)
        flipped[at] ^= 1
        assert episodes(bytes(flipped)) == 9
    assert episodes(whole[:-10]) == 9
    assert episodes(whole) == 4
