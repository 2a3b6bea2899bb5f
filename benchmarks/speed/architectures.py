"""Checks engines on tiny random models, each of the class, head size and attention layout of a pool's model.

Each answers eight questions. Checked are log-probs and greedy flags (against float32 on the CPU), whether
sampling repeats, memory, speed, and fast paths.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import psutil

from rlfocal.base.errors import InputError, RunError
from rlfocal.extraction.engine import ChoiceScore, Document, SamplingSettings
from rlfocal.extraction.engines import start_engine
from rlfocal.extraction.engines.tokenizers import tokenizer_of
from rlfocal.extraction.running.processes import Send, run_each
from rlfocal.extraction.tasks import load_tasks
from rlfocal.lab import weights_dir
from rlfocal.pool.files import load_pool
from rlfocal.pool.hub import read_config
from rlfocal.pool.specs import ModelSpec

GROUPED_ATTENTION = {"head_dim": 128, "num_key_value_heads": 1}
SHAPES: dict[str, dict[str, Any]] = {
    "microsoft/phi-2": {"model_type": "phi", "head_dim": 80, "partial_rotary_factor": 0.4},
    "google/gemma-2b": {"model_type": "gemma", "head_dim": 256, "num_key_value_heads": 1},
    "google/gemma-7b": {"model_type": "gemma", "head_dim": 256},
    "meta-llama/Llama-2-7b": {"model_type": "llama", "head_dim": 128},
    "meta-llama/Llama-2-13b": {"model_type": "llama", "head_dim": 128},
    "meta-llama/Llama-2-70b": {"model_type": "llama"} | GROUPED_ATTENTION,
    "meta-llama/Meta-Llama-3-70B": {"model_type": "llama"} | GROUPED_ATTENTION,
    "mistralai/Mistral-7B": {"model_type": "mistral"} | GROUPED_ATTENTION,
    "mistralai/Mixtral-8x7B": {"model_type": "mixtral"} | GROUPED_ATTENTION,
    "mistralai/Mixtral-8x22B": {"model_type": "mixtral"} | GROUPED_ATTENTION,
    "Qwen/Qwen2.5-72B": {"model_type": "qwen2"} | GROUPED_ATTENTION,
    "deepseek-ai/deepseek-llm-67b": {"model_type": "llama"} | GROUPED_ATTENTION,
}
"""Parts of config.json by the start of hf_repo, for models of pools/paper.yaml that are not downloaded."""
N_HEADS = 2
CONTEXT_TOKENS = 512
WEIGHT_FACTOR = 4.0
"""The factor on random weights; without it, all tokens would be almost equally likely."""
LOGPROB_TOLERANCE = 0.15
"""The most nats by which a log-prob computed in bfloat16 may differ from that computed in float32."""
N_DOCUMENTS = 8
SAMPLING = SamplingSettings(passes=2, temperature=0.6, top_p=0.95, max_tokens=8, stop=(), seed=0)


@dataclass(frozen=True)
class ArchitectureCheck:
    """The result of a check of one engine on one model's architecture."""

    model: str
    architecture: str
    engine: str
    device: str
    max_difference: float
    """The largest difference of a token's log-prob from that in float32 on the CPU, in nats."""
    n_other_flags: int
    """The number of choices whose greedy flag differs from that in float32 by more than rounding explains."""
    n_other_passes: int
    """The number of sampled texts that a second call did not repeat."""
    tokens_per_second: float
    peak_gb: float
    """The most memory that torch allocated on a GPU; on a CPU, the memory of the process at the end."""
    slower: str | None
    """What makes the engine slower than it could be; None: every fast path is on."""

    @property
    def is_right(self) -> bool:
        is_close = self.max_difference <= LOGPROB_TOLERANCE and not self.n_other_flags
        return is_close and not self.n_other_passes and self.slower is None


def check_architectures(
    models: Sequence[ModelSpec], backends: Sequence[str], on_progress: Callable[[str], None]
) -> list[ArchitectureCheck]:
    """Checks each engine on the architecture of each model, each in its own process.

    Raises InputError for a model whose config.json is not on this machine, and RunError if an engine fails.
    """
    found: list[ArchitectureCheck] = []
    for model in models:
        shape_of(model)
    for model in models:
        for backend in backends:
            name = f"{model.model} by {backend}"
            on_progress(name)
            ended = run_each(
                _send, {name: (model, backend)}, at_once=1, on_event=lambda _, checked: found.append(checked)
            )
            if reason := ended.get(name):
                raise RunError(f"{name}: {reason}")
    return found


def _send(send: Send, model: ModelSpec, backend: str) -> None:
    send(check_architecture(model, backend, questions()))


def check_architecture(model: ModelSpec, backend: str, documents: Sequence[Document]) -> ArchitectureCheck:
    """The check of one engine on the architecture of a model, in this process."""
    with TemporaryDirectory() as folder:
        save_tiny(model, Path(folder))
        return _check(model, backend, Path(folder), documents)


def questions() -> list[Document]:
    """Eight documents of the embedded pool's benchmarks, whose choices have one token or several."""
    tasks = load_tasks(load_pool("lab").benchmarks, N_DOCUMENTS)
    chosen = [task for task in tasks if task.sampling is None]
    return [document for task in (chosen[0], chosen[-1]) for document in task.documents[: N_DOCUMENTS // 2]]


def shape_of(model: ModelSpec) -> dict[str, Any]:
    """The model's config.json if it is on this machine, else the parts of it that `SHAPES` has."""
    known = (shape for name, shape in SHAPES.items() if model.hf_repo.startswith(name))
    config = read_config(model) or next(known, {})
    if not config:
        raise InputError(
            f"model {model.model!r}: its config.json is not on this machine; download it (`hf download "
            f"{model.hf_repo} config.json`), or give a pool of downloaded models"
        )
    return dict(config.get("text_config") or config)


def save_tiny(model: ModelSpec, folder: Path) -> None:
    """Saves a two-layer model with the model's architecture and random bfloat16 weights, and a tokenizer."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    shape = shape_of(model)
    heads = shape.get("num_attention_heads", N_HEADS)
    is_grouped = shape.get("num_key_value_heads", heads) < heads
    size = shape.get("head_dim") or shape["hidden_size"] // heads
    tokenizer = AutoTokenizer.from_pretrained(weights_dir("lab-llama"), model_max_length=CONTEXT_TOKENS)
    made = shape | {
        "head_dim": size,
        "hidden_size": N_HEADS * size,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": N_HEADS,
        "num_key_value_heads": 1 if is_grouped else N_HEADS,
        "num_local_experts": 4,
        "vocab_size": len(tokenizer),
        "max_position_embeddings": CONTEXT_TOKENS,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": None,
    }
    torch.manual_seed(0)
    config = AutoConfig.for_model(made.pop("model_type"), **made)
    tiny = AutoModelForCausalLM.from_config(config).float()
    with torch.no_grad():
        for name, parameter in tiny.named_parameters():
            if parameter.dim() > 1 and "norm" not in name:
                parameter.mul_(WEIGHT_FACTOR)
    tiny.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _check(model: ModelSpec, backend: str, folder: Path, documents: Sequence[Document]) -> ArchitectureCheck:
    import torch

    spec = {"model": model.model, "hf_repo": str(folder), "params_b": 0.001, "context_length": CONTEXT_TOKENS}
    expected = _score_on_cpu(ModelSpec.model_validate(spec | {"dtype": "float32"}), documents)
    engine = start_engine(ModelSpec.model_validate(spec | {"dtype": "bfloat16"}), backend, 1)
    started = perf_counter()
    scores = list(engine.score(documents))
    seconds = perf_counter() - started
    read = sum((of[0].n_prompt_tokens or 0) + sum(len(score.token_ids) for score in of) for of in scores)
    passes = [list(engine.sample(documents[:2], SAMPLING)) for _ in range(2)]
    on_gpu = torch.cuda.is_available()
    memory = torch.cuda.max_memory_allocated() if on_gpu else psutil.Process().memory_info().rss
    pairs = [pair for of in zip(expected, scores, strict=True) for pair in zip(*of, strict=True)]
    return ArchitectureCheck(
        model.model,
        json.loads((folder / "config.json").read_text())["architectures"][0],
        backend,
        torch.cuda.get_device_name() if on_gpu else "CPU",
        max(_difference(*pair) for pair in pairs),
        sum(_is_other(*pair) for pair in pairs),
        sum(a.token_ids != b.token_ids for of in zip(*passes, strict=True) for a, b in zip(*of, strict=True)),
        read / seconds,
        memory / 1e9,
        engine.slower,
    )


def _score_on_cpu(spec: ModelSpec, documents: Sequence[Document]) -> list[tuple[ChoiceScore, ...]]:
    """Each document's choices, scored in float32 on the CPU."""
    from transformers import AutoModelForCausalLM

    from rlfocal.extraction.engines.hf import HFEngine

    loaded = AutoModelForCausalLM.from_pretrained(spec.hf_repo, dtype="float32")
    return list(HFEngine(loaded, tokenizer_of(spec)).score(documents))


def _difference(expected: ChoiceScore, score: ChoiceScore) -> float:
    pairs = zip(expected.token_logprobs, score.token_logprobs, strict=True)
    return max(abs(a - b) for a, b in pairs)


def _is_other(expected: ChoiceScore, score: ChoiceScore) -> bool:
    """Whether two scores' greedy flags differ by more than rounding explains.

    A token with more than half of the probability is the likeliest; one with less than a hundredth is not.
    """
    likely = all(logprob > math.log(0.5) + LOGPROB_TOLERANCE for logprob in expected.token_logprobs)
    unlikely = min(expected.token_logprobs) < math.log(0.01)
    return score.is_greedy != expected.is_greedy and (likely or unlikely)
