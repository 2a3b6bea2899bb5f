"""What a benchmark asks of each model, and from that to GPU-hours: plain arithmetic on stated assumptions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from rlfocal.base.errors import InputError, unknown
from rlfocal.extraction.engine import Document
from rlfocal.extraction.tasks import TaskDocuments
from rlfocal.pool.hub import quantisation, read_config
from rlfocal.pool.specs import Benchmark, ModelSpec

CHARACTERS_PER_TOKEN = 4
ONE_TOKEN = 2  # characters of a choice, its leading blank included, that is surely one token: " A"


@dataclass(frozen=True)
class Workload:
    """The tasks of one benchmark for one model: counts, and tokens that are estimates."""

    benchmark: str
    partitions: int
    documents: int
    requests: int
    """To an engine that continues a cached context: one per document, or one per choice of several tokens,
    and one for each choice that is also scored after an empty prompt."""
    prefill_tokens: float
    """Unique ones: a task's shared preamble once, each document once, each choice once."""
    prompt_tokens: float
    """All of every document's prompt once, as a service is paid for it."""
    decode_tokens: float
    one_token: bool
    """Whether every choice is one token, so that one request per document answers it."""

    def __add__(self, other: Workload) -> Workload:
        return Workload(
            self.benchmark,
            self.partitions + other.partitions,
            self.documents + other.documents,
            self.requests + other.requests,
            self.prefill_tokens + other.prefill_tokens,
            self.prompt_tokens + other.prompt_tokens,
            self.decode_tokens + other.decode_tokens,
            self.one_token and other.one_token,
        )

    def with_thinking(self, traces: int, budget: int) -> Workload:
        """Adds traces of every document, each of which takes its budget, and asks after each of them."""
        return replace(
            self,
            requests=self.documents + traces * self.requests,
            decode_tokens=self.decode_tokens + self.documents * traces * budget,
        )

    def with_choices(self, n_choices: int, tokens: float) -> Workload:
        """With a request for each choice of several tokens, in place of one a document."""
        prefill = self.prefill_tokens + tokens
        return replace(self, requests=n_choices, prefill_tokens=prefill, one_token=False)

    def with_unconditional(self, n_alone: int, tokens: float) -> Workload:
        """Adds `n_alone` choices scored after an empty prompt."""
        return replace(
            self,
            requests=self.requests + n_alone,
            prefill_tokens=self.prefill_tokens + tokens,
        )


def of_documents(task: TaskDocuments, answer_tokens: float | None) -> Workload:
    """The workload of one task whose documents are available locally.

    `answer_tokens` is the mean of one sampled answer; None assumes the limit.
    """
    prompts = [_prompt(d) for d in task.documents]
    contexts = [len(prompt) / CHARACTERS_PER_TOKEN for prompt in prompts]
    choices = [sum(map(len, d.continuations)) / CHARACTERS_PER_TOKEN for d in task.documents]
    preamble = _shared_characters(prompts) / CHARACTERS_PER_TOKEN
    n = len(task.documents)
    own = sum(contexts) - n * preamble
    prompts_alone = Workload(task.benchmark, 1, n, n, preamble + own, sum(contexts), 0.0, one_token=True)
    if task.sampling is not None:
        length = task.sampling.max_tokens if answer_tokens is None else answer_tokens
        return replace(prompts_alone, decode_tokens=n * task.sampling.passes * length)
    one_token = all(len(c) <= ONE_TOKEN for d in task.documents for c in d.continuations)
    n_choices = sum(len(d.continuations) for d in task.documents)
    scored = prompts_alone if one_token else prompts_alone.with_choices(n_choices, sum(choices))
    if not task.unconditional:
        return scored
    alone = {c for d in task.documents for c in d.continuations}
    return scored.with_unconditional(len(alone), sum(map(len, alone)) / CHARACTERS_PER_TOKEN)


def _prompt(document: Document) -> str:
    """The prompt's text; of a chat, without what each model's template puts around the messages."""
    return document.context or "".join(text for _, text in document.messages or ())


def _shared_characters(texts: Sequence[str]) -> int:
    """How long the beginning is that all texts share; 0 for fewer than two texts."""
    if len(texts) < 2:
        return 0
    first, last = min(texts), max(texts)
    differing = (i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b)
    return next(differing, min(len(first), len(last)))


def of_size(benchmark: Benchmark, limit: int | None = None) -> Workload:
    """The workload of a benchmark without local documents, from its `size`; InputError without one."""
    size = benchmark.size
    if size is None:
        raise InputError(
            f"benchmark {benchmark.name!r}: its documents are not available locally and it has no `size`; "
            "pass a mirror of its data with --datasets, or add a size to its definition"
        )
    partitions = len(benchmark.tasks)
    n = size.documents if limit is None else min(size.documents, limit * partitions)
    context = size.preamble_tokens + size.document_tokens
    unique = partitions * size.preamble_tokens + n * size.document_tokens
    prompts = Workload(benchmark.name, partitions, n, n, unique, n * context, 0.0, one_token=True)
    if benchmark.kind == "answers":
        passes = benchmark.sampling.passes if benchmark.sampling is not None else size.passes
        return replace(prompts, decode_tokens=n * passes * size.answer_tokens)
    one_token = size.choice_tokens <= 1
    n_choices = round(n * size.choices)
    scored = prompts if one_token else prompts.with_choices(n_choices, n_choices * size.choice_tokens)
    if not benchmark.unconditional:
        return scored
    # Choices of one token are the same letters everywhere, longer ones are taken to differ.
    n_alone = min(n_choices, partitions * math.ceil(size.choices)) if one_token else n_choices
    return scored.with_unconditional(n_alone, n_alone * size.choice_tokens)


def mean_answer(benchmark: Benchmark) -> float | None:
    """The mean tokens of one sampled answer, where the benchmark's size says so."""
    return benchmark.size.answer_tokens or None if benchmark.size is not None else None


PREFILL_UTILISATION = 0.4
DECODE_UTILISATION = 0.6
DECODE_BATCH = 64
COMPUTED_ONE_TOKEN = 1.15
COMPUTED_SUFFIXES = 2.0
START_SECONDS = 120
LOAD_GB_PER_SECOND = 1.0
USABLE_MEMORY = 0.9
BYTES = {"float32": 4.0, "float16": 2.0, "bfloat16": 2.0, "auto": 2.0}
QUANTISED_BYTES = {
    "fp8": 1.0,
    "awq": 0.55,
    "awq_marlin": 0.55,
    "gptq": 0.55,
    "gptq_marlin": 0.55,
    "mxfp4": 0.55,
}
QUANTISED_OVERHEAD = 1.1
"""Of scales, and of what is not quantised, for a checkpoint of so many bits a weight."""


class GPU(NamedTuple):
    """One GPU, from its maker's data sheet."""

    name: str
    tflops: float
    """Peak of dense bfloat16 products, in 1e12 operations a second."""
    memory_gb: float
    bandwidth_gb: float
    """Memory read in a second, in 1e9 bytes."""
    dollars: float
    """Price of an hour: a round figure, to be replaced by your own."""


GPUS = {
    gpu.name: gpu
    for gpu in (
        GPU("H100", 989, 80, 3350, 2.5),
        GPU("H200", 989, 141, 4800, 3.5),
        GPU("A100", 312, 80, 2039, 1.5),
        GPU("L40S", 362, 48, 864, 1.0),
        GPU("L4", 121, 24, 300, 0.6),
    )
}

DEFAULT = "H100"


def gpu_of(device: str) -> GPU | None:
    """The GPU that a driver's device name means, such as "NVIDIA H100 80GB HBM3"."""
    return next((gpu for gpu in GPUS.values() if gpu.name in device.split()), None)


def find_gpu(name: str) -> GPU:
    """The GPU of that name, in any case. Raises InputError for an unknown one."""
    by_name = {known.lower(): gpu for known, gpu in GPUS.items()}
    if name.lower() not in by_name:
        raise unknown("GPU", name, GPUS, "--gpu")
    return by_name[name.lower()]


@dataclass(frozen=True)
class Cost:
    """What a model's workloads take, in hours of one GPU."""

    prefill_hours: float
    decode_hours: float
    start_hours: float

    @property
    def hours(self) -> float:
        return self.prefill_hours + self.decode_hours + self.start_hours


def cost(model: ModelSpec, workloads: Sequence[Workload], gpu: GPU) -> Cost:
    """GPU-hours of one model; tensor parallelism only makes the start more expensive."""
    if not workloads or model.is_closed:
        return Cost(0.0, 0.0, 0.0)
    computed = sum(
        w.prefill_tokens * (COMPUTED_ONE_TOKEN if w.one_token else COMPUTED_SUFFIXES) for w in workloads
    )
    decoded = sum(w.decode_tokens for w in workloads)
    per_step = max(
        weights_gb(model) / (gpu.bandwidth_gb * DECODE_UTILISATION),
        DECODE_BATCH * _prefill_seconds(model, 1, gpu),
    )
    start = model.tensor_parallel * (START_SECONDS + weights_gb(model) / LOAD_GB_PER_SECOND)
    return Cost(
        prefill_hours=_prefill_seconds(model, computed, gpu) / 3600,
        decode_hours=decoded / DECODE_BATCH * per_step / 3600,
        start_hours=start / 3600,
    )


def service_dollars(model: ModelSpec, workloads: Sequence[Workload]) -> float | None:
    """What a service is paid for a model's workloads; None where its prices of tokens are not known.

    Of choices it is asked for the likeliest first tokens once a document, or for samples of it.
    """
    # The service's client takes a second to import.
    from rlfocal.extraction.engines.chat import DECORATED, Options

    if model.price_input is None or model.price_output is None:
        return None
    options = Options(**model.engine_args.get("chat", {}))
    of_choice = DECORATED if options.top_logprobs else options.samples * options.max_tokens
    prompts = sum(w.prompt_tokens for w in workloads)
    answers = sum(w.decode_tokens or w.documents * of_choice for w in workloads)
    return (prompts * model.price_input + answers * model.price_output) / 1e6 / 100


def weights_gb(model: ModelSpec) -> float:
    """1e9 bytes of weights: as the entry quantises them, else as a checkpoint here says, else of its dtype.

    A GGUF file's are unpacked.
    """
    per_parameter = QUANTISED_BYTES.get(model.quantization or "", BYTES[model.dtype])
    if model.quantization is None and model.gguf_file is None:
        try:
            bits = quantisation(read_config(model)).bits
        except InputError:  # a plan says so itself
            bits = None
        per_parameter = per_parameter if bits is None else bits / 8 * QUANTISED_OVERHEAD
    return model.params_b * per_parameter


def too_large(model: ModelSpec, gpu: GPU) -> str | None:
    """Why a model's weights do not fit into its GPUs, and what would; None if they do."""
    usable = USABLE_MEMORY * gpu.memory_gb
    if weights_gb(model) <= model.tensor_parallel * usable:
        return None
    needed = next(n for n in (2**i for i in range(20)) if weights_gb(model) <= n * usable)
    return (
        f"{model.model}: {weights_gb(model):,.0f} GB of weights do not fit into {model.tensor_parallel} x "
        f"{gpu.memory_gb:g} GB; set tensor_parallel to {needed}, or take a quantised model"
    )


def assumptions(gpu: GPU, dollars: float) -> list[str]:
    """Every assumption of an estimate, in words."""
    return [
        f"One token per {CHARACTERS_PER_TOKEN} characters; a choice of at most {ONE_TOKEN} characters is one "
        "token.",
        "Unique prefill: a task's shared preamble once, the rest of each prompt once, each choice once.",
        f"Computed prefill is {COMPUTED_ONE_TOKEN:g} x the unique one for choices of one token and for "
        f"answers, {COMPUTED_SUFFIXES:g} x for longer choices: a KV cache kept in blocks may repeat some.",
        f"Prefill: 2 operations per active parameter and token, at {PREFILL_UTILISATION:.0%} of {gpu.name}'s "
        f"{gpu.tflops:g} TFLOPS (bfloat16). Attention itself is left out.",
        f"Decoding: {DECODE_BATCH} texts at a time; a step reads all weights at {DECODE_UTILISATION:.0%} of "
        f"{gpu.bandwidth_gb:g} GB/s, or computes, whichever is longer. Reading the key-value cache is left "
        "out. Traces of models that think take all of their budget.",
        f"Start: {START_SECONDS} s of an engine and its weights at {LOAD_GB_PER_SECOND:g} GB/s from a local "
        "disk, on every GPU of the model. Downloads are left out.",
        f"Money: {dollars:g} dollars per GPU-hour.",
    ]


def _prefill_seconds(model: ModelSpec, tokens: float, gpu: GPU) -> float:
    active = (model.active_params_b or model.params_b) * 1e9
    return 2 * active * tokens / (gpu.tflops * 1e12 * PREFILL_UTILISATION)
