"""The hardware that a partition's numbers depend on to the last bit: the GPU, its driver, and how the engine
uses it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlfocal.extraction.gpus import find_gpus
from rlfocal.pool.hub import mixes_experts

HARDWARE_FACTS = (
    *("device_product", "compute_capability", "driver", "cuda"),
    *("attention_backend", "model_runner", "kv_dtype", "head_dtype", "batch_invariant"),
)
"""The names of hardware facts in a partition's settings. Partitions from a CPU, and older ones, have none."""


def gpu_facts(settings: Mapping[str, Any]) -> dict[str, str]:
    """The products, compute capabilities, driver and CUDA version of the GPUs that this process sees. It is
    empty for an engine whose settings name another device, and where no driver answers."""
    devices = [device for device in find_gpus() if device.product]
    if not str(settings.get("device")).startswith("cuda") or not devices:
        return {}
    import torch

    return {
        "device_product": ", ".join(sorted({device.product for device in devices})),
        "compute_capability": ", ".join(sorted({device.capability for device in devices})),
        "driver": ", ".join(sorted({device.driver for device in devices})),
        "cuda": str(torch.version.cuda),
    }


def vllm_facts(llm: Any) -> dict[str, Any]:
    """The attention backend, model runner, cache dtype and batch invariance of a loaded vLLM; empty on a CPU.
    For a mixture of experts, batch invariance is false even under VLLM_BATCH_INVARIANT (vllm#57016)."""
    config = llm.llm_engine.vllm_config
    if config.device_config.device_type == "cpu":
        return {}
    from vllm import envs

    described: dict[str, Any] = llm.collective_rpc(_describe_worker)[0]
    is_mixture = mixes_experts(config.model_config.hf_config.to_dict())
    return described | {"batch_invariant": envs.VLLM_BATCH_INVARIANT and not is_mixture}


def _describe_worker(worker: Any) -> dict[str, str]:
    """The model runner, attention and cache dtype of a vLLM worker. It runs in the worker's process."""
    runner = worker.model_runner
    # Its runners keep these under no promised name.
    groups = [group for groups in getattr(runner, "attn_groups", ()) for group in groups]
    backends = sorted({group.backend.get_name() for group in groups})
    return {
        "model_runner": type(runner).__module__.removeprefix("vllm."),
        "attention_backend": ", ".join(backends) or "unknown",
        "kv_dtype": str(getattr(runner, "kv_cache_dtype", "unknown")).removeprefix("torch."),
    }
