"""Estimates a benchmark's work for each model, and the GPU-hours that it takes. docs/extraction.md states the
assumptions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from typing import NamedTuple

from rlfocal.base.errors import InputError, unknown_name
from rlfocal.extraction.engine import Document
from rlfocal.extraction.tasks import TaskDocuments
from rlfocal.pool.hub import find_file, quantisation, read_config
from rlfocal.pool.specs import Benchmark, ModelSpec

CHARACTERS_PER_TOKEN = 4
ONE_TOKEN_CHARACTERS = 2  # characters of a choice, its leading blank included, that is surely one token: " A"
COMPUTED_ONE_TOKEN = 1.15
COMPUTED_SUFFIXES = 2.0
"""The assumed ratio of computed to unique tokens of choices. A KV cache in blocks may compute some tokens
again."""
PREFILL_UTILISATION = 0.4
DECODE_UTILISATION = 0.6
DECODE_BATCH = 64
START_SECONDS = 120
LOAD_GB_PER_SECOND = 1.0
DOWNLOAD_GB_PER_SECOND = 0.25
"""The assumed speed of downloads, which is that of a connection of 2 Gbit/s."""
DIGITS = "0123456789"
LAYERS_OF_A_BILLION, LAYERS_POWER = 13.0, 0.43
"""The layers of a model with a billion active parameters, and the power by which they grow. This gives 30
layers for 7B and 81 for 70B."""
USABLE_MEMORY = 0.9
DTYPE_BYTES = {"float32": 4.0, "float16": 2.0, "bfloat16": 2.0, "auto": 2.0}
FOUR_BIT_METHODS = ("awq", "awq_marlin", "gptq", "gptq_marlin", "mxfp4")
QUANTISED_BYTES = {"fp8": 1.0, **dict.fromkeys(FOUR_BIT_METHODS, 0.55)}
QUANTISED_OVERHEAD = 1.1
"""The factor on a quantised checkpoint's bytes, for its scales and for tensors that are not quantised."""


class GPU(NamedTuple):
    """A type of GPU, with figures from its maker's data sheet."""

    name: str
    tflops: float
    """The peak throughput of dense bfloat16 products, in 1e12 operations a second."""
    memory_gb: float
    bandwidth_gb: float
    """The memory bandwidth, in 1e9 bytes a second."""
    dollars: float
    """The price of an hour in dollars: a round figure, to be replaced by your own."""


KNOWN_GPUS = {
    gpu.name: gpu
    for gpu in (
        GPU("H100", 989, 80, 3350, 2.5),
        GPU("H200", 989, 141, 4800, 3.5),
        GPU("A100", 312, 80, 2039, 1.5),
        GPU("L40S", 362, 48, 864, 1.0),
        GPU("L4", 121, 24, 300, 0.6),
    )
}


def gpu_of(device: str) -> GPU | None:
    """The GPU of a driver's device name, such as "NVIDIA H100 80GB HBM3"; None for an unknown one."""
    return next((gpu for gpu in KNOWN_GPUS.values() if gpu.name in device.split()), None)


def find_gpu(name: str) -> GPU:
    """The GPU of that name, in capital or small letters. Raises InputError for an unknown name."""
    if name.upper() not in KNOWN_GPUS:
        raise unknown_name("GPU", name, KNOWN_GPUS, "--gpu")
    return KNOWN_GPUS[name.upper()]


@dataclass(frozen=True)
class Workload:
    """The work on one benchmark's tasks for one model: counts, and estimated tokens."""

    benchmark: str
    partitions: int
    documents: int
    requests: int
    """The number of requests to an engine that continues a cached context.

    It is one per document, or one per choice if choices have several tokens. Each choice that is also scored
    after an empty prompt takes one more.
    """
    prefill_tokens: float
    """The unique tokens: a task's shared preamble once, each document once, each choice once."""
    computed_tokens: float
    """The tokens that an engine computes: the unique tokens, and those that it computes again."""
    prompt_tokens: float
    """The tokens of every document's prompt, each counted once, as a service bills them."""
    decode_tokens: float
    prompt_digits: float = 0.0
    """The number of digits in the unique prompts."""
    answer_digits: float = 0.0
    """The number of digits in all sampled answers."""

    def __add__(self, other: Workload) -> Workload:
        pairs = zip(astuple(self)[1:], astuple(other)[1:], strict=True)
        return Workload(self.benchmark, *(mine + its for mine, its in pairs))


def digit_by_digit(work: Workload) -> Workload:
    """The workload for a tokenizer that makes each digit a token. Workloads assume four characters to a
    token."""
    prompts, answers = ((1 - 1 / CHARACTERS_PER_TOKEN) * n for n in (work.prompt_digits, work.answer_digits))
    share = 1 + prompts / work.prefill_tokens if work.prefill_tokens else 1.0
    return replace(
        work,
        prefill_tokens=work.prefill_tokens * share,
        computed_tokens=work.computed_tokens * share,
        prompt_tokens=work.prompt_tokens * share,
        decode_tokens=work.decode_tokens + answers,
    )


def splits_digits(model: ModelSpec) -> bool:
    """Whether the model's tokenizer makes each digit a token, by its tokenizer.json on this machine. Without
    that file, open models are assumed to do so, as most do, and closed models not to."""
    file = find_file(model, "tokenizer.json", local_only=True)
    if file is None:
        return not model.is_closed
    from tokenizers import Tokenizer

    return len(Tokenizer.from_file(str(file)).encode(DIGITS, add_special_tokens=False).ids) >= len(DIGITS)


def measure_workload(
    task: TaskDocuments, answer_tokens: float | None = None, answer_digits: float = 0.0
) -> Workload:
    """The workload of one task whose documents are available locally. `answer_tokens` is the mean length of a
    sampled answer; None stands for max_tokens. `answer_digits` is the mean number of digits in an answer."""
    prompts = [prompt_text(document) for document in task.documents]
    total, n = sum(map(len, prompts)), len(prompts)
    unique = total - (n - 1) * _count_shared_characters(prompts)
    decode = 0.0
    if task.sampling is not None:
        length = task.sampling.max_tokens if answer_tokens is None else answer_tokens
        decode = n * task.sampling.passes * length
    choices = [choice for document in task.documents for choice in document.continuations]
    is_long = any(len(choice) > ONE_TOKEN_CHARACTERS for choice in choices)
    alone = set(choices) if task.unconditional else set()
    return _make_workload(
        task.benchmark,
        1,
        n,
        prompts=(unique / CHARACTERS_PER_TOKEN, total / CHARACTERS_PER_TOKEN),
        long=(len(choices), sum(map(len, choices)) / CHARACTERS_PER_TOKEN) if is_long else (0, 0.0),
        unconditional=(len(alone), sum(map(len, alone)) / CHARACTERS_PER_TOKEN),
        decode=decode,
        digits=(
            unique * sum(map(_count_digits, prompts)) / total if total else 0.0,
            0.0 if task.sampling is None else n * task.sampling.passes * answer_digits,
        ),
    )


def estimate_workload(benchmark: Benchmark, limit: int | None = None) -> Workload:
    """The workload of a benchmark without local documents, from its `size`. Raises InputError if it has no
    size."""
    size = benchmark.size
    if size is None:
        raise InputError(
            f"benchmark {benchmark.name!r}: its documents are not available locally and it has no `size`; "
            "pass a mirror of its data with --datasets, or add a size to its definition"
        )
    partitions = len(benchmark.tasks)
    n = size.documents if limit is None else min(size.documents, limit * partitions)
    unique = partitions * size.preamble_tokens + n * size.document_tokens
    passes = benchmark.sampling.passes if benchmark.sampling is not None else size.passes
    n_choices, is_long = round(n * size.choices), size.choice_tokens > 1
    # Choices of one token are the same letters everywhere, longer ones are taken to differ.
    different = n_choices if is_long else min(n_choices, partitions * math.ceil(size.choices))
    n_alone = different if benchmark.unconditional else 0
    return _make_workload(
        benchmark.name,
        partitions,
        n,
        prompts=(unique, n * (size.preamble_tokens + size.document_tokens)),
        long=(n_choices, n_choices * size.choice_tokens) if is_long else (0, 0.0),
        unconditional=(n_alone, n_alone * size.choice_tokens),
        digits=(n * size.prompt_digits, n * passes * size.answer_digits),
        decode=n * passes * size.answer_tokens if benchmark.kind == "answers" else 0.0,
    )


def _make_workload(
    benchmark: str,
    partitions: int,
    documents: int,
    *,
    prompts: tuple[float, float],
    long: tuple[int, float],
    unconditional: tuple[int, float],
    decode: float,
    digits: tuple[float, float],
) -> Workload:
    """The workload of documents with these counts. `prompts`: unique tokens, and all tokens. `long`: choices
    of several tokens, and their tokens. `unconditional`: choices that are also scored after an empty prompt,
    and their tokens. `digits`: in unique prompts, and in sampled answers."""
    unique = prompts[0] + long[1] + unconditional[1]
    computed = unique * (COMPUTED_SUFFIXES if long[0] else COMPUTED_ONE_TOKEN)
    requests = (long[0] or documents) + unconditional[0]
    return Workload(benchmark, partitions, documents, requests, unique, computed, prompts[1], decode, *digits)


def _count_digits(text: str) -> int:
    return sum(map(str.isdecimal, text))


def prompt_text(document: Document) -> str:
    """The prompt's text. A chat's messages are joined, without the text that a model's template adds around
    them."""
    return document.context or "".join(text for _, text in document.messages or ())


def _count_shared_characters(texts: Sequence[str]) -> int:
    """The number of characters with which all texts begin; 0 for fewer than two texts."""
    if len(texts) < 2:
        return 0
    first, last = min(texts), max(texts)
    differing = (i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b)
    return next(differing, min(len(first), len(last)))


class Hours(NamedTuple):
    """The hours that one GPU needs, by step of the work."""

    prefill: float = 0.0
    decode: float = 0.0
    start: float = 0.0

    @property
    def total(self) -> float:
        return sum(self)


def hours_of(model: ModelSpec, workloads: Sequence[Workload], gpu: GPU) -> Hours:
    """The hours that one GPU needs for a model. Tensor parallelism multiplies only the start."""
    if not workloads or model.is_closed:
        return Hours()
    prefill = _time_prefill(model, sum(work.computed_tokens for work in workloads), gpu)
    decode = sum(work.decode_tokens * _time_step(model, work, gpu) for work in workloads) / DECODE_BATCH
    start = model.tensor_parallel * (START_SECONDS + weights_gb(model) / LOAD_GB_PER_SECOND)
    return Hours(prefill / 3600, decode / 3600, start / 3600)


def hours_of_choices(model: ModelSpec, tasks: Sequence[TaskDocuments], gpu: GPU) -> tuple[float, float]:
    """The hours that one GPU needs without its start: as planned, and if it reads each prompt once for each
    choice."""
    once = each = 0.0
    for task in tasks:
        work = measure_workload(task)
        planned = hours_of(model, [work], gpu)
        read = sum(
            len(document.continuations) * len(prompt_text(document)) + sum(map(len, document.continuations))
            for document in task.documents
        )
        tokens = max(work.computed_tokens, read / CHARACTERS_PER_TOKEN)
        once += planned.prefill + planned.decode
        each += hours_of(model, [replace(work, computed_tokens=tokens)], gpu).prefill + planned.decode
    return once, each


def _time_step(model: ModelSpec, work: Workload, gpu: GPU) -> float:
    """The seconds for one token of each text of a batch: for reading memory or for computing, whichever is
    longer."""
    read = weights_gb(model) + DECODE_BATCH * work.prompt_tokens / work.documents * _cache_gb(model)
    return max(read / (gpu.bandwidth_gb * DECODE_UTILISATION), _time_prefill(model, DECODE_BATCH, gpu))


def _cache_gb(model: ModelSpec) -> float:
    """The size of one token's keys and values in 16 bits, in 1e9 bytes. It follows from the model's
    config.json. Without one, 8 key-value heads of size 128 are assumed."""
    try:
        config = read_config(model)
    except InputError:  # a plan says so itself
        config = {}
    layers, heads = config.get("num_hidden_layers"), config.get("num_attention_heads")
    if layers and heads:
        size = config.get("head_dim") or config.get("hidden_size", 0) / heads
        width = (config.get("num_key_value_heads") or heads) * size
    else:
        layers, width = LAYERS_OF_A_BILLION * (model.active_params_b or model.params_b) ** LAYERS_POWER, 1024
    return 2 * 2 * float(layers) * float(width) / 1e9


def _time_prefill(model: ModelSpec, tokens: float, gpu: GPU) -> float:
    active = (model.active_params_b or model.params_b) * 1e9
    return 2 * active * tokens / (gpu.tflops * 1e12 * PREFILL_UTILISATION)


def service_dollars(model: ModelSpec, workloads: Sequence[Workload]) -> float:
    """The dollars that a service charges for a model's workloads; 0 if its token prices are not known.

    For choices, this assumes one answer of a few tokens per document, or samples if the entry sets
    `top_logprobs: 0`.
    """
    # The service's client takes a second to import.
    from rlfocal.extraction.engines.chat import MAX_DECORATION_TOKENS, ChatOptions
    from rlfocal.extraction.engines.options import options_of

    if model.price_input is None or model.price_output is None:
        return 0.0
    options = options_of(model, "chat", ChatOptions)
    of_choice = MAX_DECORATION_TOKENS if options.top_logprobs else options.samples * options.max_tokens
    prompts = sum(work.prompt_tokens for work in workloads)
    answers = sum(work.decode_tokens or work.documents * of_choice for work in workloads)
    return (prompts * model.price_input + answers * model.price_output) / 1e6 / 100


def weights_gb(model: ModelSpec) -> float:
    """The size of a model's weights in 1e9 bytes: by the entry's quantisation, else by a local checkpoint's,
    else by its dtype. A GGUF file counts as unpacked."""
    per_parameter = QUANTISED_BYTES.get(model.quantization or "", DTYPE_BYTES[model.dtype])
    if model.quantization is None and model.gguf_file is None:
        try:
            bits = quantisation(read_config(model)).bits
        except InputError:  # a plan says so itself
            bits = None
        per_parameter = per_parameter if bits is None else bits / 8 * QUANTISED_OVERHEAD
    return model.params_b * per_parameter


def too_large(model: ModelSpec, gpu: GPU) -> str | None:
    """A sentence on why a model's weights do not fit into its GPUs, and what to change; None if they fit."""
    usable = USABLE_MEMORY * gpu.memory_gb
    if weights_gb(model) <= model.tensor_parallel * usable:
        return None
    needed = 2 ** math.ceil(math.log2(weights_gb(model) / usable))
    return (
        f"{model.model}: {weights_gb(model):,.0f} GB of weights do not fit into {model.tensor_parallel} x "
        f"{gpu.memory_gb:g} GB; set tensor_parallel to {needed}, or take a quantised model"
    )
