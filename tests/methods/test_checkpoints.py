"""Checkpoints come back whole or are refused in one line, and a killed training goes on where it stood."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load, save
from support.agents_data import TINY, killed_after, parameters, skilled

from rlfocal.base.errors import InputError
from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import decide
from rlfocal.methods import CheckpointStore, RLFocal
from rlfocal.methods.learning.agents import TrainedAgents
from rlfocal.methods.learning.store import CHECKPOINT_FORMAT, TRAINING_FORMAT, read_tensors, write_tensors
from rlfocal.methods.rl_focal.config import RLFocalConfig
from rlfocal.methods.rl_focal.training import train
from rlfocal.methods.rl_focal_sequential.config import Ridges, SequentialConfig
from rlfocal.methods.trained import load_checkpoint, save_checkpoint

CONFIGS = {
    "rl_focal": replace(TINY, vote_weight=0.3),
    "rl_focal_sequential": SequentialConfig(
        mean_pool=2.0, folds=2, recipes=(Ridges(100), Ridges(30, 30, 3, 50, 1, votes=5)), landmarks=4,
        word_directions=3, gate_directions=2,
    ),
}  # fmt: skip
of_every_kind = pytest.mark.parametrize(
    ("method", "kind"), [("rl_focal", "choices"), ("rl_focal_sequential", "answers")]
)


@cache
def data(kind: Any) -> Dataset:
    made = skilled([0.9, 0.7, 0.5, 0.4], n_docs=120, kind=kind)
    words = ("planets and their moons", "trains that leave", "a star is not")
    return replace(
        made,
        questions=tuple(f"{words[i % 3]} {i}?" for i in range(len(made))),
        tasks=np.array(["odd", "even"] * 60),
        slots=(("1", "2", "3", "4"),) * len(made) if kind == "answers" else (),
    )


@cache
def trained(method: str, kind: str) -> TrainedAgents:
    [agents] = RLFocal(method, CONFIGS[method]).fit(data(kind).train, [3])
    return agents


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("checkpoints")


def written(method: str, kind: str, folder: Path) -> Path:
    path = folder / f"{method}-{kind}.safetensors"
    if not path.exists():
        save_checkpoint(trained(method, kind), path)
    return path


def refused(path: Path) -> str:
    """Why it is, in one line that says what to do."""
    with pytest.raises(InputError) as caught:
        load_checkpoint(path)
    message = str(caught.value)
    assert len(message) <= 300
    assert "\n" not in message
    assert path.name in message
    assert message.endswith("; train again with `rlfocal train`")
    return message


@of_every_kind
def test_checkpoints_come_back_whole(method: str, kind: str, folder: Path) -> None:
    path, agents, test = written(method, kind, folder), trained(method, kind), data(kind).test
    loaded = load_checkpoint(path, agents.models)
    assert type(loaded) is type(agents)
    for name in ("method", "config", "history", "seed", "snapshot"):
        assert getattr(loaded, name) == getattr(agents, name)
    one, other = decide(loaded, test), decide(agents, test)
    assert one.pools.tobytes() == other.pools.tobytes()
    assert one.predictions.tobytes() == other.predictions.tobytes()
    save_checkpoint(loaded, folder / "again.safetensors")
    assert (folder / "again.safetensors").read_bytes() == path.read_bytes()
    with pytest.raises(InputError, match="not for other"):
        load_checkpoint(path, ["other"])


def test_one_of_an_earlier_day_decides_as_it_did() -> None:
    """Written before `rl_focal_literal` became a preset of the same class."""
    agents = load_checkpoint(Path(__file__).with_name("rl_focal_literal-0.1.safetensors"))
    assert (agents.method, agents.seed, len(agents.history)) == ("rl_focal_literal", 3, 4)
    decided = decide(agents, skilled([0.9, 0.5, 0.3], n_docs=60).test)
    assert decided.predictions.tolist() == [1, 3, 3, 1, 1, 3, 3, 3, 2, 2, 3, 2]
    assert decided.pools.tolist() == [[True, False, False]] * 12


def test_settings_that_are_gone_are_named(folder: Path) -> None:
    about, tensors = read_tensors(written("rl_focal_sequential", "choices", folder), CHECKPOINT_FORMAT)
    path = folder / "seed-0.safetensors"
    earlier = about | {"config": about["config"] | {"task_ridge": 30.0}, "tasks": ["odd", "even"]}
    for wrong, named in (
        (earlier, "config.task_ridge"),
        (about | {"method": "rl_focal_released"}, "rl_focal_released"),
    ):
        write_tensors(path, tensors, CHECKPOINT_FORMAT, wrong)
        assert named in refused(path)


@of_every_kind
def test_damage_is_refused_or_changes_nothing(method: str, kind: str, folder: Path) -> None:
    """Bits, blocks and ends that are not as they were, of the header as of the tensors."""
    source, path = written(method, kind, folder).read_bytes(), folder / "damaged.safetensors"
    header, rng = 8 + int.from_bytes(source[:8], "little"), np.random.default_rng(0)
    for draw in range(16):
        at, n = int(rng.integers(header if draw % 2 else len(source))), int(rng.integers(1, 64))
        flipped = source[:at] + bytes([source[at] ^ 1 << draw % 8]) + source[at + 1 :]
        for damaged in (flipped, source[:at] + bytes(n) + source[at + n :], source[:at], source + bytes(n)):
            path.write_bytes(damaged)
            try:
                loaded = load_checkpoint(path)
            except InputError:
                refused(path)
                continue
            save_checkpoint(loaded, path)
            assert path.read_bytes() == source


@of_every_kind
def test_a_file_without_one_of_its_parts_is_refused(method: str, kind: str, folder: Path) -> None:
    about, tensors = read_tensors(written(method, kind, folder), CHECKPOINT_FORMAT)
    path = folder / "partial.safetensors"
    for name in tensors:
        write_tensors(path, {n: v for n, v in tensors.items() if n != name}, CHECKPOINT_FORMAT, about)
        assert "is not a valid checkpoint" in refused(path)
    for field in about.keys() - {"kept", "order", "start"}:  # which earlier files do not have
        write_tensors(path, tensors, CHECKPOINT_FORMAT, {n: v for n, v in about.items() if n != field})
        assert "is not a valid checkpoint" in refused(path)


def test_files_that_are_no_checkpoints_are_told_apart(folder: Path) -> None:
    source, path = written("rl_focal", "choices", folder), folder / "other.safetensors"
    about, tensors = read_tensors(source, CHECKPOINT_FORMAT)
    content = source.read_bytes()
    for wrong, reason in (
        (b"%PDF-1.7 and so on" * 20, "safetensors"),
        ((2**62).to_bytes(8, "little") + content[8:], "safetensors"),
        (save(tensors), "not one of this rlfocal"),
        (save(load(content), {"rlfocal": "[" * 100_000}), "damaged"),
        (content.replace(b"made-up", b"made-in"), "digest"),
    ):
        path.write_bytes(wrong)
        assert reason in refused(path)
    newer = CHECKPOINT_FORMAT._replace(version=CHECKPOINT_FORMAT.version + 1)
    for form, reason in ((newer, "newer"), (TRAINING_FORMAT, "unfinished training")):
        write_tensors(path, tensors, form, about)
        assert reason in refused(path)
    (folder / "folder.safetensors").mkdir()
    for name in ("none", "folder"):
        assert "cannot be read" in refused(folder / f"{name}.safetensors")


def test_what_cannot_be_used_in_a_warehouse_is_told_and_trained_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Damaged in a bit, or another seed's agents: the very same file comes back, and only then."""
    rows = data("choices").train
    ours = RLFocal("rl_focal", CONFIGS["rl_focal"], CheckpointStore(tmp_path))
    assert not ours.is_trained(rows, 0)
    ours.fit(rows, [0, 1])
    first, second = (ours.checkpoint(rows, seed) for seed in (0, 1))
    whole = first.read_bytes()
    flipped = whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:]
    for wrong, reason in ((flipped, "damaged"), (second.read_bytes(), "different data or settings")):
        first.write_bytes(wrong)
        assert [seed for seed in (0, 1) if not ours.is_trained(rows, seed)] == [0]
        caplog.clear()
        [agents, _] = ours.fit(rows, [0, 1])
        assert agents.seed == 0
        [line] = caplog.messages
        assert line.startswith(str(first))
        assert reason in line
        assert first.read_bytes() == whole


def test_killed_training_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    """Killed in either phase or between them, it ends with the same agents bit for bit."""
    rows = skilled([0.9, 0.5, 0.3], n_docs=60).train
    config = replace(TINY, decider_episodes=5, fusion_episodes=9)
    [uninterrupted] = train(rows, config, [3])
    for episodes in (5, 13):
        with pytest.raises(KeyboardInterrupt):
            train(rows, config, [3], killed_after(episodes), folder=tmp_path)
        shares: list[float] = []
        [resumed] = train(rows, config, [3], shares.append, folder=tmp_path)
        assert len(shares) == 14 - episodes // 5 * 5
        assert list(tmp_path.iterdir()) == []
        assert resumed.history == uninterrupted.history
        for name, value in parameters(uninterrupted).items():
            assert torch.equal(value, parameters(resumed)[name]), (episodes, name)


def test_what_was_kept_of_other_settings_or_damaged_is_not_gone_on_from(tmp_path: Path) -> None:
    rows = skilled([0.9, 0.5, 0.3], n_docs=60).train
    config = replace(TINY, decider_episodes=7)
    with pytest.raises(KeyboardInterrupt):
        train(rows, config, [3], killed_after(7), folder=tmp_path)
    [kept] = tmp_path.iterdir()
    whole = kept.read_bytes()

    def episodes(content: bytes, settings: RLFocalConfig = config) -> int:
        kept.write_bytes(content)
        shares: list[float] = []
        train(rows, settings, [3], shares.append, folder=tmp_path)
        return len(shares)

    assert episodes(whole, replace(config, clip=0.1)) == 9
    assert episodes(whole[:-1] + bytes([whole[-1] ^ 1])) == 9
    assert episodes(whole[:-10]) == 9
    assert episodes(whole) == 4
