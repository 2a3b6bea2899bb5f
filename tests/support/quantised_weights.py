"""Checkpoints in the formats of quantised weights, packed by each format's definition in plain torch."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

GROUP = 32
"""Weights of a row that share one scale."""
FP8 = torch.float8_e4m3fn
Packed = tuple[dict[str, Tensor], Tensor]
"""What a format stores of a weight (out x in), by name, and the weight that it stands for."""


@dataclass(frozen=True)
class Format:
    """How a format packs a weight, and what config.json says of it."""

    pack: Callable[[Tensor], Packed]
    said: dict[str, Any]


def save_quantised(source: Path, folder: Path, name: str) -> tuple[Path, Path]:
    """A folder's model with its layers' matrices quantised, and with the same values as ordinary weights."""
    made = FORMATS[name]
    packed, plain = folder / name, folder / f"{name}-dequantised"
    for copy in (packed, plain):
        shutil.copytree(source, copy, ignore=shutil.ignore_patterns("*.safetensors*"))
    stored: dict[str, Tensor] = {}
    meant: dict[str, Tensor] = {}
    for key, tensor in load_file(source / "model.safetensors").items():
        if key.endswith("_proj.weight"):
            parts, meant[key] = made.pack(tensor.float())
            stored |= {key.removesuffix("weight") + part: value for part, value in parts.items()}
        else:
            stored[key] = meant[key] = tensor.clone()
    save_file(stored, packed / "model.safetensors", {"format": "pt"})
    save_file(meant, plain / "model.safetensors", {"format": "pt"})
    config = json.loads((source / "config.json").read_text())
    (packed / "config.json").write_text(json.dumps(config | {"quantization_config": made.said}))
    return packed, plain


def round_inputs(model: Any, rounding: Callable[[Tensor], Tensor]) -> None:
    """Makes the layers of an ordinary model round what they read, token by token."""
    for name, module in model.named_modules():
        if name.endswith("_proj"):
            module.register_forward_pre_hook(lambda _, inputs: (rounding(inputs[0]), *inputs[1:]))


def _to_int8(inputs: Tensor, steps: float) -> Tensor:
    scales = inputs.abs().amax(dim=-1, keepdim=True) / steps
    return (inputs / scales).round().clamp(-128, 127) * scales


def _to_fp8(inputs: Tensor) -> Tensor:
    scales = inputs.abs().amax(dim=-1, keepdim=True) / torch.finfo(FP8).max
    return (inputs / scales).to(FP8).float() * scales


ROUNDINGS: dict[str, Callable[[Tensor], Tensor]] = {
    "w8a8": lambda inputs: _to_int8(inputs, 127.5),  # compressed-tensors' own half of 255 steps
    "w8a8-fp8": _to_fp8,
}
"""What hf rounds beside the weights, by format."""
VLLM_ROUNDINGS = {"w8a8": lambda inputs: _to_int8(inputs, 127), "w8a8-fp8": _to_fp8}


def _rounded(weight: Tensor, bits: int, group: int | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Symmetric integers, their scales (a row, or a group of it), and the weight they stand for.

    Scales are numbers of bfloat16 and float16 alike: no engine rounds them again.
    """
    rows, columns = weight.shape
    groups = weight.reshape(rows, -1, group or columns)
    scales = _coarse(groups.abs().amax(dim=2, keepdim=True) / (2 ** (bits - 1) - 1))
    integers = (groups / scales).round().clamp(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    meant = (integers * scales).reshape(rows, columns)
    return integers.reshape(rows, columns).int(), scales.squeeze(2), meant


def _coarse(scales: Tensor) -> Tensor:
    return scales.bfloat16().half().float()


def _pack(numbers: Tensor) -> Tensor:
    """Unsigned 4-bit numbers side by side in int32, the first of a row's lowest."""
    wide = numbers.long().reshape(len(numbers), -1, 8) << torch.arange(8) * 4
    whole = wide.sum(dim=2)
    return torch.where(whole >= 2**31, whole - 2**32, whole).int()


def _int8(weight: Tensor) -> Packed:
    integers, scales, meant = _rounded(weight, 8)
    return {"weight": integers.to(torch.int8), "weight_scale": scales}, meant


def _int4(weight: Tensor) -> Packed:
    integers, scales, meant = _rounded(weight, 4, GROUP)
    parts = {"weight_packed": _pack(integers + 8), "weight_scale": scales}
    return parts | {"weight_shape": torch.tensor(weight.shape)}, meant


def _fp8(weight: Tensor, *, by_row: bool) -> Packed:
    largest = weight.abs().amax(dim=1, keepdim=True) if by_row else weight.abs().amax()
    scale = _coarse(largest / torch.finfo(FP8).max)
    small = (weight / scale).to(FP8)
    return {"weight": small, "weight_scale": scale}, small.float() * scale


def _compressed(form: str, weights: dict[str, Any], inputs: dict[str, Any] | None) -> dict[str, Any]:
    """What config.json says of a checkpoint of compressed-tensors."""
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs}
    return {
        "quant_method": "compressed-tensors",
        "quantization_status": "compressed",
        "format": form,
        "ignore": ["lm_head"],
        "config_groups": {"group_0": group},
    }


def _numbers(bits: int, kind: str = "int", strategy: str = "channel", **more: Any) -> dict[str, Any]:
    return {"num_bits": bits, "type": kind, "strategy": strategy, "symmetric": True, "dynamic": False} | more


TOKENWISE_INT = _numbers(8, strategy="token", dynamic=True)
TOKENWISE_FLOAT = _numbers(8, "float", "token", dynamic=True)
GROUPS: dict[str, Any] = {"strategy": "group", "group_size": GROUP}
FORMATS = {
    "w8a8": Format(_int8, _compressed("int-quantized", _numbers(8), TOKENWISE_INT)),
    "w4a16": Format(_int4, _compressed("pack-quantized", _numbers(4, **GROUPS), None)),
    "w8a8-fp8": Format(
        lambda weight: _fp8(weight, by_row=True),
        _compressed("float-quantized", _numbers(8, "float"), TOKENWISE_FLOAT),
    ),
    "fp8": Format(
        lambda weight: _fp8(weight, by_row=False), {"quant_method": "fp8", "activation_scheme": "dynamic"}
    ),
}
