"""How the weights of a checkpoint are quantised, as its config.json says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

NOT_BY_VLLM = {
    *("aqlm", "bitnet", "bitsandbytes", "eetq", "fouroversix", "gemma", "gguf", "higgs", "hqq", "metal"),
    *("quanto", "sinq", "spqr", "vptq"),
}
"""Methods of transformers that vLLM 0.32 does not load."""


class Quantisation(NamedTuple):
    """A method by transformers' name, and bits of a weight; None where it is not known."""

    method: str | None = None
    bits: int | None = None
    multiplies_int8: bool = False
    """Whether both weights and what they are multiplied with are 8-bit integers."""


def quantisation(config: Mapping[str, Any]) -> Quantisation:
    """What a model's config.json says; nothing for weights that are not quantised.

    >>> quantisation({"quantization_config": {"quant_method": "gptq", "bits": 4}})
    Quantisation(method='gptq', bits=4, multiplies_int8=False)
    """
    said = config.get("quantization_config") or config.get("compression_config")
    if not isinstance(said, dict) or not said:
        return Quantisation()
    loaded_as = {4: said.get("load_in_4bit"), 8: said.get("load_in_8bit")}
    by_flag = next((bits for bits, is_set in loaded_as.items() if is_set), None)
    method = said.get("quant_method") or ("bitsandbytes" if by_flag else None)
    return Quantisation(method, by_flag or _bits(str(method), said), _multiplies_int8(said))


def _bits(method: str, said: Mapping[str, Any]) -> int | None:
    if isinstance(said.get("bits"), int):
        return int(said["bits"])
    for weights in _of_groups(said, "weights"):
        if isinstance(bits := weights.get("num_bits"), int):
            return bits
    return 8 if "fp8" in method else 4 if "fp4" in method else None


def _multiplies_int8(said: Mapping[str, Any]) -> bool:
    pairs = zip(_of_groups(said, "weights"), _of_groups(said, "input_activations"), strict=True)
    return any(
        all(numbers.get("num_bits") == 8 and numbers.get("type", "int") == "int" for numbers in pair)
        for pair in pairs
    )


def _of_groups(said: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """What compressed-tensors says of the numbers of each group of layers; {} where it says nothing."""
    groups = (said.get("config_groups") or {}).values()
    return [group.get(key) or {} for group in groups if isinstance(group, dict)]
