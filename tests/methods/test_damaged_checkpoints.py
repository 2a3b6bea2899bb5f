"""Damaged checkpoints are refused in one line, or decide as the whole ones do, bit for bit.

RLFOCAL_EXAMPLES=1000 with --hypothesis-profile=thorough tries so many damages of each kind.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load, save
from support.agents_data import TINY, skilled

from rlfocal.base.errors import InputError
from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import decide
from rlfocal.methods import CheckpointStore, RLFocal
from rlfocal.methods.learning.agents import TrainedAgents
from rlfocal.methods.learning.store import CHECKPOINT, TRAINING, read_tensors, write_tensors
from rlfocal.methods.rl_focal_sequential.config import Recipe, SequentialConfig
from rlfocal.methods.variants import load_checkpoint, save_checkpoint
from rlfocal.serving import Router

EXAMPLES = settings().max_examples
CONFIGS = {
    "rl_focal": replace(TINY, vote_weight=0.3),
    "rl_focal_sequential": SequentialConfig(
        mean_pool=2.0,
        folds=2,
        recipes=(Recipe(100), Recipe(30, 30, 3, 50, 1, votes=5)),
        landmarks=4,
        word_directions=3,
        gate_directions=2,
    ),
}
NAMES = [
    ("rl_focal", "choices"),
    ("rl_focal", "answers"),
    ("rl_focal_sequential", "choices"),
    ("rl_focal_sequential", "answers"),
]
of_every_method = pytest.mark.parametrize(("method", "kind"), NAMES)


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


def told(error: InputError, path: Path) -> str:
    message = str(error)
    assert len(message) <= 300
    assert "\n" not in message
    assert path.name in message
    assert message.endswith("; train again with `rlfocal train`")
    return message


def header_length(content: bytes) -> int:
    return 8 + int.from_bytes(content[:8], "little")


def everything(path: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """What stands beside the tensors, and their bytes."""
    about, tensors = read_tensors(path, CHECKPOINT)
    return about, {name: value.numpy().tobytes() for name, value in tensors.items()}


def with_seal(content: bytes, seal: Any) -> bytes:
    """The same tensors beside another metadata text."""
    text = seal if isinstance(seal, str) else json.dumps(seal)
    return save(load(content), {"rlfocal": text})


def seal_of(content: bytes) -> dict[str, Any]:
    metadata = json.loads(content[8 : header_length(content)])["__metadata__"]
    return dict(json.loads(metadata["rlfocal"]))


# Edits of JSON values

ODD: list[Any] = [
    None, True, -1, 0, 1, 2, 7, 2**70, -1.0, 0.5, 1e308, float("nan"), "", "x", "answers", [], ["x"], [0, 1],
    [[]], {}, {"x": 1},
]  # fmt: skip


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every value inside."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, part in inner for place in [(*at, key), *places(part, (*at, key))]]


def edited(value: Any, place: Sequence[Any], change: Callable[[Any, Any], None]) -> Any:
    """A copy, changed by `change(container, key)` at one place."""
    copy = json.loads(json.dumps(value))
    inner = copy
    for key in place[:-1]:
        inner = inner[key]
    change(inner, place[-1])
    return copy


@st.composite
def json_edits(draw: st.DrawFn, value: Any) -> Any:
    place = draw(st.sampled_from(places(value)))
    how = draw(st.sampled_from(["set", "nudge", "drop", "double", "add"]))
    odd = draw(st.sampled_from(ODD))

    def change(inner: Any, key: Any) -> None:
        if how == "drop":
            del inner[key]
        elif how == "double" and isinstance(inner, list):
            inner.append(inner[key])
        elif how == "add" and isinstance(inner, dict):
            inner["extra"] = odd
        elif how == "nudge" and isinstance(inner[key], int | float):
            inner[key] += draw(st.sampled_from([1, -1, 0.25]))
        else:
            inner[key] = odd

    return edited(value, place, change)


@st.composite
def damages(draw: st.DrawFn, content: bytes) -> bytes:
    """Bits, blocks and ends that are not as they were, and metadata edited without a new digest."""
    how = draw(st.sampled_from(["bits of the header", "bits", "block", "truncated", "longer", "metadata"]))
    damaged = bytearray(content)
    end = header_length(content) if how == "bits of the header" else len(content)
    place = st.integers(0, end - 1)
    if how.startswith("bits"):
        for at in draw(st.lists(place, min_size=1, max_size=8, unique=True)):
            damaged[at] ^= 1 << draw(st.integers(0, 7))
        return bytes(damaged)
    if how == "block":
        start, length = draw(place), draw(st.integers(1, 4096))
        block = draw(st.sampled_from([b"\0", b"\xff", b"[", b" "])) * len(damaged[start : start + length])
        return bytes(damaged[:start]) + block + bytes(damaged[start + length :])
    if how == "truncated":
        return content[: draw(place)]
    if how == "longer":
        return content + draw(st.binary(min_size=1, max_size=64))
    return with_seal(content, draw(json_edits(seal_of(content))))


@pytest.mark.hypothesis
@of_every_method
def test_damage_is_refused_or_changes_no_decision(method: str, kind: str, folder: Path) -> None:
    content = written(method, kind, folder).read_bytes()
    intact = everything(written(method, kind, folder))
    test, path = data(kind).test, folder / "damaged.safetensors"
    whole = decide(trained(method, kind), test)

    @given(damages(content))
    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
    def check(damaged: bytes) -> None:
        path.write_bytes(damaged)
        try:
            loaded = load_checkpoint(path)
        except InputError as error:
            told(error, path)
            return
        save_checkpoint(loaded, path)  # what few documents may not show
        assert everything(path) == intact
        decided = decide(loaded, test)
        assert decided.pools.tobytes() == whole.pools.tobytes()
        assert decided.predictions.tobytes() == whole.predictions.tobytes()

    check()


@of_every_method
def test_a_file_cut_short_or_of_another_pool_is_refused(method: str, kind: str, folder: Path) -> None:
    source, path = written(method, kind, folder), folder / "short.safetensors"
    with pytest.raises(InputError, match=r"holds agents for model-0, .*, not for other; train on this pool"):
        load_checkpoint(source, ["other"])
    whole = source.read_bytes()
    for length in (0, 7, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        assert "is not a whole safetensors file" in refused(path)
    path.write_bytes(whole.replace(b"made-up", b"made-in"))
    assert "do not match their digest" in refused(path)


@of_every_method
def test_a_file_without_one_of_its_parts_is_refused(method: str, kind: str, folder: Path) -> None:
    about, tensors = read_tensors(written(method, kind, folder), CHECKPOINT)
    path = folder / "partial.safetensors"
    for name in tensors:
        write_tensors(path, {n: v for n, v in tensors.items() if n != name}, CHECKPOINT, about)
        assert "is not a valid checkpoint" in refused(path)
    for field in about:
        write_tensors(path, tensors, CHECKPOINT, {n: v for n, v in about.items() if n != field})
        assert "is not a valid checkpoint" in refused(path)


def foreign(content: bytes) -> dict[str, tuple[bytes, str]]:
    """Files that are no checkpoint of this rlfocal, and what is said of them."""
    seal, tensors = seal_of(content), load(content)
    newer = {**seal["about"], "invented": 1}
    return {
        "empty": (b"", "is not a whole safetensors file"),
        "foreign": (b"%PDF-1.7 and so on" * 20, "is not a whole safetensors file"),
        "huge header": ((2**62).to_bytes(8, "little") + content[8:], "is not a whole safetensors file"),
        "of something else": (save(tensors), "is a safetensors file, but not of rlfocal"),
        "older": (save(tensors, {"rlfocal-agents-1": json.dumps(newer)}), "was written by an older rlfocal"),
        "no JSON": (with_seal(content, "{"), "is damaged"),
        "nested": (with_seal(content, "[" * 100_000), "is damaged"),
        "of other fields": (with_seal(content, {"about": {}}), "is damaged"),
        "other numbers": (with_seal(content, seal | {"sha256": "0" * 64}), "do not match their digest"),
    }


@pytest.mark.parametrize("name", list(foreign(save({}, {"rlfocal": '{"about": {}}'}))))
def test_a_file_that_is_no_checkpoint_is_told_from_a_damaged_one(name: str, folder: Path) -> None:
    content, reason = foreign(written("rl_focal", "choices", folder).read_bytes())[name]
    path = folder / "other.safetensors"
    path.write_bytes(content)
    assert reason in refused(path)


def test_files_of_other_versions_and_purposes(folder: Path) -> None:
    source, path = written("rl_focal", "choices", folder), folder / "other.safetensors"
    about, tensors = read_tensors(source, CHECKPOINT)
    for form, reason in (
        (CHECKPOINT._replace(version=CHECKPOINT.version + 1), "was written by a newer rlfocal"),
        (CHECKPOINT._replace(version=0), "was written by an older rlfocal"),
        (TRAINING, "holds something else: unfinished training, not checkpoint"),
    ):
        write_tensors(path, tensors, form, about)
        assert reason in refused(path)
    write_tensors(path, tensors, CHECKPOINT, about)
    assert path.read_bytes() == source.read_bytes()


def test_paths_that_hold_no_file(folder: Path) -> None:
    (folder / "folder.safetensors").mkdir()
    for name in ("none", "folder"):
        assert "cannot be read" in refused(folder / f"{name}.safetensors")
    for name in ("x" * 5_000, "two\nlines", "nul\0"):
        with pytest.raises(InputError, match="cannot be read") as caught:
            Router.load(folder / name)
        assert len(str(caught.value)) <= 300
        assert "\n" not in str(caught.value)


def refused(path: Path) -> str:
    """Why it is."""
    with pytest.raises(InputError) as caught:
        load_checkpoint(path)
    return told(caught.value, path)


def test_one_of_a_method_that_is_gone_is_named(folder: Path, tmp_path: Path) -> None:
    about, tensors = read_tensors(written("rl_focal", "choices", folder), CHECKPOINT)
    path = tmp_path / "seed-3.safetensors"
    write_tensors(path, tensors, CHECKPOINT, about | {"method": "rl_focal_released"})
    assert "is of rl_focal_released, which is gone" in refused(path)


@pytest.mark.parametrize("method", ["rl_focal", "rl_focal_sequential"])
def test_what_cannot_be_used_in_a_warehouse_is_told_and_trained_again(
    method: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Damaged in a bit, or another seed's agents: the very same file comes back, and only then."""
    rows = data("choices").train
    ours = RLFocal(method, CONFIGS[method], CheckpointStore(tmp_path))
    assert [seed for seed in (0, 1) if not ours.is_trained(rows, seed)] == [0, 1]
    for seed in (0, 1):
        ours.fit(rows, [seed])
    first, second = (ours.checkpoint(rows, seed) for seed in (0, 1))
    whole = first.read_bytes()
    assert [seed for seed in (0, 1) if not ours.is_trained(rows, seed)] == []
    flipped = bytearray(whole)
    flipped[-9] ^= 1
    for wrong, reason in (
        (bytes(flipped), "damaged"),
        (second.read_bytes(), "trained on different data or settings"),
    ):
        first.write_bytes(wrong)
        assert [seed for seed in (0, 1) if not ours.is_trained(rows, seed)] == [0]
        caplog.clear()
        [agents, _] = ours.fit(rows, [0, 1])
        assert agents.seed == 0
        [line] = caplog.messages
        assert line.startswith(str(first))
        assert reason in line
        assert first.read_bytes() == whole
