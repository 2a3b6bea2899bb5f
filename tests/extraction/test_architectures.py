"""Every architecture of the paper's pool on the engines: what `make gpu-check` does, on a CPU."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from support.scores import NEEDS_VLLM

from benchmarks.speed.architectures import (
    ArchitectureCheck,
    check_architecture,
    check_architectures,
    questions,
    save_tiny,
    shape_of,
)
from rlfocal.base.errors import InputError
from rlfocal.extraction.engine import Document
from rlfocal.pool import ModelSpec, load_pool

POOL = load_pool(str(Path(__file__).parents[2] / "pools" / "paper.yaml"))
OF_SHAPE = {json.dumps(shape_of(model), sort_keys=True): model for model in reversed(POOL.models)}
"""The first model of each shape that differs: together they are all twelve architectures of the paper."""


@pytest.fixture(scope="module")
def documents() -> Sequence[Document]:
    return questions()


def assert_right(checked: ArchitectureCheck) -> None:
    assert checked.is_right, checked
    assert checked.max_difference > 1e-6  # bfloat16 is not float32


@pytest.mark.parametrize("model", POOL.models, ids=lambda model: model.model)
def test_hf_on_each_model(model: ModelSpec, documents: Sequence[Document]) -> None:
    assert {len(set(document.continuations)) > 1 for document in documents} == {True}
    assert_right(check_architecture(model, "hf", documents))


@pytest.mark.slow
@NEEDS_VLLM[0]
@NEEDS_VLLM[1]
@pytest.mark.parametrize("model", OF_SHAPE.values(), ids=lambda model: model.model)
def test_vllm_on_each_shape(model: ModelSpec) -> None:
    """Each in a process of its own: vLLM's second model in a process may not be a mixture of experts."""
    [checked] = check_architectures([model], ["vllm"], print)
    assert_right(checked)


def test_whatever_is_wrong_is_seen(documents: Sequence[Document], monkeypatch: pytest.MonkeyPatch) -> None:
    """A slower way, too, and a model that nothing is known of."""
    from rlfocal.extraction.engines.hf import HFEngine

    monkeypatch.setattr(HFEngine, "slower", "reads every prompt once for each choice")
    checked = check_architecture(POOL.models[0], "hf", documents)
    assert not checked.is_right
    right = replace(checked, slower=None)
    assert right.is_right
    assert not replace(right, max_difference=0.2).is_right
    assert not replace(right, n_other_flags=1).is_right
    assert not replace(right, n_other_passes=1).is_right
    with pytest.raises(InputError, match=r"config\.json is not on this machine"):
        save_tiny(ModelSpec(model="m", hf_repo="nobody/knows", params_b=1), Path())
