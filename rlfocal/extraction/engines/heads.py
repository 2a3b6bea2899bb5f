"""Computes a transformers model's logits in float32. In bfloat16, neighbouring logits are up to 0.125
apart, so that choices tie. vLLM does the same under `hf_overrides: {head_dtype: float32}`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

HALF_DTYPES = (torch.bfloat16, torch.float16)


def use_float32_head(model: Any) -> bool:
    """Makes a model's logits float32, whatever its dtype; False where its head is quantised or missing.
    Weights and hidden states keep their values: only their products are summed in float32."""
    head = model.get_output_embeddings()
    if type(head) is not nn.Linear or head.weight.dtype not in (*HALF_DTYPES, torch.float32):
        return False
    if head.weight.dtype in HALF_DTYPES:
        forward = _make_gpu_head(head) if head.weight.is_cuda else _make_cpu_head(head)
        head.forward = forward  # type: ignore[method-assign]
    return True


def head_setting(dtype: torch.dtype, head: torch.dtype) -> dict[str, str]:
    """The `head_dtype` setting of a model in `dtype` whose head is in dtype `head`; empty for a model in
    float32."""
    return {} if dtype == torch.float32 else {"head_dtype": str(head).removeprefix("torch.")}


def _make_gpu_head(head: nn.Linear) -> Any:
    def forward(hidden: Tensor) -> Tensor:
        flat = hidden.reshape(-1, hidden.shape[-1])
        logits = torch.mm(flat, head.weight.t(), out_dtype=torch.float32)
        logits = logits if head.bias is None else logits + head.bias.float()
        return logits.reshape(*hidden.shape[:-1], -1)

    return forward


def _make_cpu_head(head: nn.Linear) -> Any:
    """A `forward` with weights in float32, because a CPU cannot multiply half-precision factors to
    float32."""
    weight = head.weight.detach().float()
    bias = None if head.bias is None else head.bias.detach().float()

    def forward(hidden: Tensor) -> Tensor:
        return functional.linear(hidden.float(), weight, bias)

    return forward
