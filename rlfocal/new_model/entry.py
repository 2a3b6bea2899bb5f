"""What can be checked about an entry before its weights are loaded: commit, licence gate, context, GPUs."""

from __future__ import annotations

from typing import Any

from rlfocal.base.errors import InputError
from rlfocal.extraction.engines import backend_of, check_entry_for, check_weights_for
from rlfocal.pool.hub import pin_revision, read_config
from rlfocal.pool.specs import ModelSpec

CONTEXT = ("n_positions", "max_position_embeddings", "n_ctx")


def check_entry(spec: ModelSpec, backend: str) -> ModelSpec:
    """The entry at the commit that is there now.

    Raises InputError, saying what to do, if the hub has no such model or revision, its licence is not
    accepted, `context_length` is beyond the model's, it cannot be split over `tensor_parallel` GPUs, or the
    backend cannot quantize it.
    """
    backend = backend_of(spec, backend)
    check_entry_for(backend, spec)
    found = pin_revision(spec)
    check_weights_for(backend, found)
    config = read_config(found)
    config |= config.get("text_config") or {}
    _check_context(spec, config)
    if backend == "vllm":
        _check_split(spec, config)
        _check_gpus(spec)
    return found


def _check_context(spec: ModelSpec, config: dict[str, Any]) -> None:
    own = next((config[name] for name in CONTEXT if isinstance(config.get(name), int)), None)
    is_stretched = config.get("rope_scaling") is not None  # its length may be that before stretching
    if spec.context_length and own and not is_stretched and spec.context_length > own:
        raise InputError(
            f"model {spec.model!r}: context_length {spec.context_length:,} is beyond the {own:,} tokens of "
            f"its config.json; give at most {own:,}, or leave it out"
        )


def _check_split(spec: ModelSpec, config: dict[str, Any]) -> None:
    heads = config.get("num_attention_heads")
    if isinstance(heads, int) and heads % spec.tensor_parallel:
        fitting = [n for n in (1, 2, 4, 8, 16) if heads % n == 0]
        raise InputError(
            f"model {spec.model!r}: its {heads} attention heads cannot be split over tensor_parallel "
            f"{spec.tensor_parallel} GPUs; give one of {', '.join(map(str, fitting))}"
        )


def _check_gpus(spec: ModelSpec) -> None:
    if spec.tensor_parallel == 1:
        return
    import torch

    visible = torch.cuda.device_count()
    if 0 < visible < spec.tensor_parallel:  # with none, this machine may only hand the work on
        raise InputError(
            f"model {spec.model!r}: tensor_parallel {spec.tensor_parallel} needs as many GPUs, but "
            f"{visible} can be seen here; lower it, or set CUDA_VISIBLE_DEVICES"
        )
