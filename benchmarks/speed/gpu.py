"""Checks engines on a GPU: log-probs against float32 on the CPU, speed, and memory against the plan."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, Literal, NamedTuple

from benchmarks.speed.extraction import count_parameters
from benchmarks.speed.questions import multiple_choice, save_random_model, unique_tokens
from rlfocal.base.errors import RunError, unknown_name
from rlfocal.extraction.engine import Engine
from rlfocal.extraction.engines import start_engine
from rlfocal.extraction.engines.tokens import PromptEncoder
from rlfocal.extraction.estimate import gpu_of, weights_gb
from rlfocal.extraction.running.processes import Send, run_each
from rlfocal.pool.specs import ModelSpec

MEMORY_ALLOWANCE = 1.1
"""The highest ratio of peak to planned memory, apart from one GB for logits, at which the plan is right."""


class Size(NamedTuple):
    """The size of a Llama model: hidden units, layers and vocabulary."""

    hidden: int
    layers: int
    vocabulary: int


MODEL_SIZES = {
    "toy": Size(64, 2, 32_000),
    "1b": Size(2048, 16, 128_256),
    "8b": Size(4096, 34, 128_256),
}


@dataclass(frozen=True)
class EngineCheck:
    """The result of a check of one engine on one random model."""

    engine: str
    size: str
    params: int
    device: str
    dtype: str
    max_difference: float
    """The largest difference of a token's log-prob from that in float32 on the CPU, in nats."""
    tolerance: float
    """The largest difference that rounding in the dtype explains, in nats."""
    tokens_per_second: float
    """The number of distinct prompt tokens per second."""
    share_of_peak: float | None
    """The share of the GPU's peak bfloat16 rate that was reached; None on a CPU or an unknown GPU."""
    peak_gb: float | None
    """The most memory that torch allocated; None on a CPU, and for vLLM, which reserves a fixed share."""
    planned_gb: float
    """The memory of weights by `rlfocal plan`; for hf, also of the keys and values of a full batch."""

    @property
    def is_right(self) -> bool:
        """Whether log-probs differ by no more than rounding, and memory is within the plan."""
        fits = self.peak_gb is None or self.peak_gb <= MEMORY_ALLOWANCE * self.planned_gb + 1
        return self.max_difference <= self.tolerance and fits


def check_gpu(
    sizes: Sequence[str], engines: Sequence[str], documents: int, on_progress: Callable[[str], None]
) -> list[EngineCheck]:
    """Checks each engine on random models of each size, each in its own process.

    Raises InputError for an unknown size, and RunError if an engine fails.
    """
    for size in sizes:
        if size not in MODEL_SIZES:
            raise unknown_name("size", size, MODEL_SIZES, "--sizes")
    found: list[EngineCheck] = []

    def note(_: str, event: Any) -> None:
        found.append(event)

    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            steps: list[tuple[str, Callable[..., None], tuple[Any, ...]]]
            steps = [(f"{size} in float32 on the CPU", _refer, (size, documents, folder))]
            steps += [(f"{size} by {e}", _check, (e, size, documents, folder)) for e in engines]
            for name, work, arguments in steps:
                on_progress(name)
                ended = run_each(work, {name: arguments}, at_once=1, on_event=note)
                if reason := ended.get(name):
                    raise RunError(f"{name}: {reason}")
    return found


def _refer(send: Send, size: str, n: int, folder: str) -> None:
    """Saves a random model and its log-probs in float32 on the CPU; runs in its own process."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # before torch is imported
    import torch

    made = MODEL_SIZES[size]
    save_random_model(Path(folder, "model"), made.hidden, made.layers, "bfloat16", made.vocabulary)
    engine = start_engine(_make_spec(size, folder, 1, "float32"), "hf", os.cpu_count() or 1)
    torch.save(_score(engine, n), Path(folder, "expected.pt"))


def _check(send: Send, backend: str, size: str, n: int, folder: str) -> None:
    import torch

    from rlfocal.extraction.engines.hf import BATCH_TOKENS
    from rlfocal.extraction.engines.sampling import compare

    on_gpu = torch.cuda.is_available()
    params = count_parameters(str(Path(folder, "model")))
    spec = _make_spec(size, folder, params, "bfloat16")
    engine = start_engine(spec, backend, os.cpu_count() or 1)
    _score(engine, 2)  # kernels are compiled, caches made
    started = perf_counter()
    scores = _score(engine, n)
    seconds = perf_counter() - started
    expected = torch.load(Path(folder, "expected.pt"))
    compared = compare(expected, scores, getattr(torch, spec.dtype))
    rate = _count_unique_tokens(folder, n) / seconds
    gpu = gpu_of(torch.cuda.get_device_name()) if on_gpu else None
    made = MODEL_SIZES[size]
    a_token = 2 * made.hidden * made.layers * torch.bfloat16.itemsize  # its keys and values
    cache_gb = a_token * BATCH_TOKENS / 1e9 if backend == "hf" else 0
    send(
        EngineCheck(
            engine=backend,
            size=size,
            params=params,
            device=torch.cuda.get_device_name() if on_gpu else "CPU",
            dtype=spec.dtype,
            max_difference=compared.difference,
            tolerance=compared.tolerance,
            tokens_per_second=rate,
            share_of_peak=2 * params * rate / (1e12 * gpu.tflops) if gpu else None,
            peak_gb=torch.cuda.max_memory_allocated() / 1e9 if on_gpu and backend == "hf" else None,
            planned_gb=weights_gb(spec) + cache_gb,
        )
    )


def _make_spec(size: str, folder: str, params: int, dtype: Literal["float32", "bfloat16"]) -> ModelSpec:
    place = str(Path(folder, "model"))
    return ModelSpec(model=f"random-{size}", hf_repo=place, params_b=params / 1e9, dtype=dtype)


def _score(engine: Engine, n: int) -> list[float]:
    """The log-probs of all tokens of all choices of n documents."""
    documents = multiple_choice(n, words_a_choice=5)
    return [value for scores in engine.score(documents) for s in scores for value in s.token_logprobs]


def _count_unique_tokens(folder: str, n: int) -> int:
    from transformers import AutoTokenizer

    encoded = PromptEncoder(AutoTokenizer.from_pretrained(Path(folder, "model"))).choices(
        multiple_choice(n, words_a_choice=5)
    )
    return unique_tokens(context + tail for context, tails in encoded for tail in tails)
