"""The engines that run models: one module per backend, and what they share."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from time import perf_counter
from typing import Any

from rlfocal.base.errors import InputError
from rlfocal.extraction.engine import Engine
from rlfocal.extraction.engines.tokenizers import Tokenization, check_tokenizer
from rlfocal.extraction.engines.tokens import CONTEXT_FIELDS
from rlfocal.extraction.recording import log, start_log
from rlfocal.pool.hub import (
    UNSUPPORTED_QUANTISATIONS,
    local_adapter,
    local_weights,
    quantisation,
    read_config,
)
from rlfocal.pool.specs import ModelSpec


def backend_of(model: ModelSpec, backend: str) -> str:
    """The backend that runs a model in a pool with this backend: chat for a closed model."""
    return "chat" if model.is_closed else backend


def start_engine(model: ModelSpec, backend: str, threads: int) -> Engine:
    """Loads a model with the backend's engine. `threads` is the number of CPU threads."""
    start_log()
    started = perf_counter()
    engine: Engine = import_module(f"{__package__}.{backend}").load(model, local_weights(model), threads)
    log("engine started", model=model.model, backend=backend, seconds=perf_counter() - started)
    return engine


def check_entry_for(backend: str, model: ModelSpec) -> None:
    """Raises InputError for a setting of the model's entry that the backend would ignore, or does not
    support."""
    if backend != "chat" and model.spending_limit is not None:
        raise InputError(
            f"model {model.model!r}: only the backend chat keeps a `spending_limit`; leave it out, or use "
            "--backend chat"
        )
    if model.gguf_file is None and model.hf_repo.lower().endswith("-gguf"):
        raise InputError(
            f"model {model.model!r}: {model.hf_repo} holds GGUF files; name one as `gguf_file`, or give "
            "the repository that they were converted from"
        )
    if backend == "vllm" and model.gguf_file is not None:
        raise InputError(
            f"model {model.model!r}: vLLM loads no GGUF file; use --backend hf, or unpack {model.gguf_file} "
            "with transformers' from_pretrained(folder, gguf_file=...) and save_pretrained"
        )
    if backend == "hf" and model.quantization is not None:
        raise InputError(
            f"model {model.model!r}: the backend hf does not quantize ({model.quantization}); use --backend "
            "vllm, or leave `quantization` out (weights that are quantized already load as they are)"
        )
    if backend == "hf" and model.tensor_parallel > 1:
        raise InputError(
            f"model {model.model!r}: the backend hf splits no model across GPUs (tensor_parallel "
            f"{model.tensor_parallel}); use --backend vllm, or leave `tensor_parallel` out"
        )


def check_weights_for(backend: str, model: ModelSpec) -> None:
    """Raises InputError if the backend cannot read the model's weights, on disk or in the hub's cache, or if
    `context_length` is beyond the model's."""
    config = read_config(model)
    method = quantisation(config).method
    if backend == "vllm" and method in UNSUPPORTED_QUANTISATIONS:
        raise InputError(
            f"model {model.model!r}: its weights are quantised by {method}, which vLLM does not load; use "
            "--backend hf, or a checkpoint in awq, gptq, fp8 or compressed-tensors"
        )
    if backend in ("hf", "vllm"):  # a server may have stretched the context
        config = config | (config.get("text_config") or {})
        own = next((config[name] for name in CONTEXT_FIELDS if isinstance(config.get(name), int)), None)
        if model.context_length and own and not _is_stretched(config) and model.context_length > own:
            raise InputError(
                f"model {model.model!r}: context_length {model.context_length:,} is beyond the {own:,} "
                f"tokens of its config.json; give at most {own:,}, or leave it out"
            )
    local_adapter(model)


def _is_stretched(config: Mapping[str, Any]) -> bool:
    """Whether a model's positions are stretched, so that its length may be that before stretching."""
    rope = config.get("rope_parameters") or {}  # of all layers, or by their type
    parts = [rope, *(part for part in rope.values() if isinstance(part, dict))]
    return config.get("rope_scaling") is not None or any(
        part.get("rope_type", "default") != "default" for part in parts
    )


def tokenizer_for(backend: str, model: ModelSpec, *, local_only: bool = False) -> Tokenization | None:
    """The result of `check_tokenizer`; None for the backend chat, where the service encodes the text."""
    return None if backend == "chat" else check_tokenizer(model, local_only=local_only)
