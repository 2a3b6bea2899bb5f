"""Loads GGUF files, adapters and quantised weights, reports damaged or missing weights, and computes logits
in float32.

In bfloat16, neighbouring logits are up to 0.125 apart, so that choices tie. vLLM does the same under
`hf_overrides: {head_dtype: float32}`.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from pickle import UnpicklingError
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from rlfocal.base.errors import InputError, describe_error
from rlfocal.pool.hub import UNSUPPORTED_QUANTISATIONS, local_adapter
from rlfocal.pool.specs import ModelSpec

LOAD_ERRORS = (
    *(AssertionError, AttributeError, ImportError, KeyError, NotImplementedError, RuntimeError),
    *(TypeError, ValueError),
)
"""Errors that engines raise for a weight format that they do not know, or that a machine cannot multiply."""
SCALE_SUFFIXES = ("weight_scale", "weight_scale_inv", "scales", "absmax", "SCB")
"""Suffixes of the names of quantised weights' scales."""
HALF_DTYPES = (torch.bfloat16, torch.float16)


@contextmanager
def reading_weights(source: str) -> Iterator[None]:
    """Raises InputError, with the file's name if it is known, for weights that cannot be read inside the
    block. `source` is the model's folder or hub id."""
    from safetensors import SafetensorError

    try:
        yield
    except UnpicklingError as error:
        raise InputError(
            f"the weights of {source} are pickles that hold more than tensors, which can run code: use a "
            "revision with *.safetensors, or convert them with save_pretrained where you trust them"
        ) from error
    except ImportError as error:  # of the repository's own code
        raise InputError(
            f"the weights of {source} need a package that is not installed: {describe_error(error)}"
        ) from error
    except (SafetensorError, EOFError, OSError) as error:
        # transformers' and the hub's own errors say what is missing.
        if isinstance(error, OSError) and not (
            type(error) is FileNotFoundError or error.errno == errno.EINVAL
        ):
            raise
        raise InputError(
            f"the weights of {_find_damaged(source) or source} cannot be read: {describe_error(error)}; the "
            "file is cut short, missing or not fetched (`git lfs pull`): download it again"
        ) from error


@contextmanager
def loading_quantised(model: ModelSpec, method: str | None, backend: str) -> Iterator[None]:
    """Raises InputError if the backend cannot load weights quantised by `method` on this machine."""
    try:
        yield
    except LOAD_ERRORS as error:
        if method is None:
            raise
        other = "vllm" if backend == "hf" else "hf"
        ways = [] if other == "vllm" and method in UNSUPPORTED_QUANTISATIONS else [f"use --backend {other}"]
        if "install" in str(error):
            ways.insert(0, "install what it asks for")
        raise InputError(
            f"model {model.model!r}: {backend} cannot load weights quantised by {method} on this machine; "
            f"{', '.join([*ways, 'or give hf_repo other weights of the model'])} ({_take_first_line(error)})"
        ) from error


def gguf_arguments(model: ModelSpec) -> dict[str, Any]:
    """The arguments of transformers' `from_pretrained` for the entry's GGUF file; {} if the entry names
    none."""
    if model.gguf_file is None:
        return {}
    if find_spec("gguf") is None:
        raise InputError(
            f"model {model.model!r}: reading {model.gguf_file} needs a package: pip install 'rlfocal[gguf]'"
        )
    from transformers import GgufConfig, modeling_gguf_pytorch_utils

    # Its bar writes a line for each of a hundred tensors where no terminal is.
    bar = modeling_gguf_pytorch_utils.tqdm
    modeling_gguf_pytorch_utils.tqdm = partial(bar, disable=None)
    # Packed weights would be multiplied by whatever kernels a machine has, with other numbers.
    return {"gguf_file": model.gguf_file, "quantization_config": GgufConfig(dequantize=True)}


def merge_adapter(loaded: Any, model: ModelSpec) -> Any:
    """The loaded model, with the entry's LoRA adapter merged into its weights if it has one."""
    if (folder := _adapter_folder(model)) is None:
        return loaded
    from peft import PeftModel

    try:
        return PeftModel.from_pretrained(loaded, str(folder)).merge_and_unload()
    except (RuntimeError, ValueError, KeyError) as error:
        raise InputError(
            f"the adapter {model.adapter} does not fit {model.hf_repo}: {describe_error(error)}; give "
            "hf_repo the model that it was trained on"
        ) from error


def _adapter_folder(model: ModelSpec) -> Path | None:
    """The folder of the entry's LoRA adapter, downloaded if needed; None if the entry has none."""
    if model.adapter is None or (folder := local_adapter(model)) is not None:
        return None if model.adapter is None else folder
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(model.adapter, revision=model.adapter_revision))


@contextmanager
def merged_weights(model: ModelSpec, source: str, revision: str | None) -> Iterator[tuple[str, str | None]]:
    """Yields the folder or hub id of the weights, and their revision. An adapter is merged into a temporary
    folder, because vLLM's own LoRA fails on the log-probabilities of prompts."""
    if model.adapter is None:
        yield source, revision
        return
    from transformers import AutoModelForCausalLM, AutoTokenizer

    options = {"revision": revision or "main", "trust_remote_code": model.trust_remote_code}
    with TemporaryDirectory(prefix="rlfocal-") as folder:
        loaded = AutoModelForCausalLM.from_pretrained(source, dtype="auto", **options)
        merge_adapter(loaded, model).save_pretrained(folder)
        AutoTokenizer.from_pretrained(source, **options).save_pretrained(folder)
        del loaded
        yield folder, None


def check_scales(model: ModelSpec, method: str | None, loading: Mapping[str, Any]) -> None:
    """Raises InputError if transformers ignored the scales of quantised weights. `loading` is its report on
    loading."""
    if ignored := [name for name in loading["unexpected_keys"] if name.endswith(SCALE_SUFFIXES)]:
        raise InputError(
            f"model {model.model!r}: hf cannot load its weights, quantised by {method or '(not said)'}: it "
            f"would ignore {len(ignored)} of their scales, such as {min(ignored)}; use --backend vllm, or "
            "give hf_repo other weights of the model"
        )


def check_complete(source: str, loading: Mapping[str, Any]) -> None:
    """Raises InputError if tensors of the model are missing in its files, because they would be random
    numbers. `loading` is transformers' report on loading."""
    for names, fault in (
        (loading["missing_keys"], "are missing"),
        ([name for name, *_ in loading["mismatched_keys"]], "have another shape"),
    ):
        if names:
            raise InputError(
                f"the weights of {source} do not fit its config.json: {len(names)} of its tensors {fault}, "
                f"such as {min(names)}; download both again, from one revision"
            )


def _take_first_line(error: Exception) -> str:
    """The first line of the error's message, without what pydantic and vLLM add to it."""
    message = str(error).partition("Value error, ")[2].partition(" [type=")[0] or str(error)
    return message.strip().partition("\n")[0].removesuffix(" ").removesuffix(" Reasons:")


def _find_damaged(source: str) -> Path | None:
    """The folder's first file that safetensors cannot read; None if it reads all of them."""
    from safetensors import SafetensorError, safe_open

    for file in sorted(Path(source).glob("*.safetensors")):
        try:
            with safe_open(file, "pt"):
                pass
        except SafetensorError:
            return file
    return None


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
