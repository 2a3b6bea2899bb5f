"""Compares our engines with lm-eval's backends on the same model, documents and machine.

lm-eval's vLLM backend and ours share one `vllm.LLM`, and both transformers engines share one model, so that
only the requests differ.
"""

from __future__ import annotations

import contextlib
import io
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from benchmarks.speed.questions import (
    CONTEXT_TOKENS,
    multiple_choice,
    open_questions,
    save_random_model,
    unique_tokens,
)
from rlfocal.base.errors import RunError
from rlfocal.extraction.engine import ChoiceScore, Document, Engine, SamplingSettings
from rlfocal.extraction.engines.tokens import EncodedDocument, PromptEncoder
from rlfocal.extraction.estimate import GPU, gpu_of
from rlfocal.extraction.running.processes import Send, run_each
from rlfocal.pool.specs import ThinkingSpec

N_PASSES = 10
ANSWER_TOKENS = 60  # a tenth of the prompt
THINKING = ThinkingSpec(
    budget=ANSWER_TOKENS, traces=4, markers=("", "Answer:"), text_markers=True, lead_in=" :", top_p=0.95
)
"""The settings of thinking; a random model's traces all use their whole budget."""
HF_BATCH = 8
HIDDEN_SIZES, N_LAYERS = {"cpu": 384, "cuda": 2048}, {"cpu": 8, "cuda": 22}


@dataclass(frozen=True)
class ExtractionMeasurement:
    """The seconds and token counts of one way to do a piece of work."""

    work: str
    way: str
    seconds: float
    times_faster: float
    """The seconds of the reference, which is the first way of the same work and engine, over this way's."""
    computed: int | None = None
    """The number of prompt tokens that the engine computed; None if it does not count them."""
    unique: int | None = None
    """The number of distinct prompt tokens, each shared prefix counted once; None if it is not counted."""
    max_difference: float | None = None
    """The largest difference from the reference's log-likelihoods of choices; None without scores."""
    agreement: float | None = None
    """The share of documents with the reference's likeliest choice; None if there are no scores."""
    share_of_peak: float | None = None
    """The share of the GPU's peak bfloat16 rate that was reached; None on a CPU or an unknown GPU."""


@dataclass(frozen=True)
class ExtractionSetup:
    """The engine, model and documents of a measurement."""

    engine: str
    params: int
    device: str
    dtype: str
    block_size: int | None
    """The number of tokens in a block of vLLM's prefix cache; None for an engine without one."""
    documents: int
    tokens: float
    """The mean length of a prompt in tokens."""


@dataclass(frozen=True)
class ExtractionBench:
    setting: list[ExtractionSetup]
    measured: list[ExtractionMeasurement]
    failed: dict[str, str]


class TimedScores(NamedTuple):
    seconds: float
    computed: int | None
    scores: np.ndarray | None
    """(documents, choices) the choices' log-likelihoods; None for work that samples."""


def bench_extraction(
    documents: int, engines: Sequence[str], model: str | None, on_progress: Callable[[str], None]
) -> ExtractionBench:
    """Measures each engine in its own process. `model`: a directory or hub id; None: random weights."""
    found: list[Any] = []

    def note(_: str, event: Any) -> None:
        if isinstance(event, str):
            on_progress(event)
        else:
            found.append(event)

    with tempfile.TemporaryDirectory() as folder:
        jobs = {engine: (engine, documents, model, folder) for engine in engines}
        ended = run_each(_measure, jobs, at_once=1, on_event=note)
    failed = {engine: reason for engine, reason in ended.items() if reason}
    if len(failed) == len(engines):
        raise RunError("; ".join(f"{engine}: {reason}" for engine, reason in failed.items()))
    return ExtractionBench(
        [f for f in found if isinstance(f, ExtractionSetup)],
        [f for f in found if isinstance(f, ExtractionMeasurement)],
        failed,
    )


def _measure(send: Send, engine: str, n: int, model: str | None, folder: str) -> None:
    """Measures an engine on n documents and sends its measurements; runs in the engine's own process."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = "bfloat16" if device == "cuda" else "float32"
    place = Path(model or f"{folder}/random")
    if model is None and not place.exists():
        save_random_model(place, HIDDEN_SIZES[device], N_LAYERS[device], dtype)
    rival, uncached, ours, computed = (_load_vllm if engine == "vllm" else _load_hf)(str(place), dtype)
    tokenizer = rival.tokenizer
    params = count_parameters(str(place))
    gpu = gpu_of(torch.cuda.get_device_name()) if device == "cuda" else None
    for work, documents in (
        ("single-token choices", multiple_choice(n, words_a_choice=0)),
        ("multi-token choices", multiple_choice(n, words_a_choice=5)),
    ):
        encoded = PromptEncoder(tokenizer).choices(documents)
        if work.startswith("single"):
            length = float(np.mean([len(e.context) for e in encoded]))
            block = ours.settings().get("block_size")
            size = block if isinstance(block, int) else None
            send(ExtractionSetup(engine, params, device, dtype, size, n, length))
        unique = _count_unique(encoded)
        send(f"{engine}: {work}, lm-eval's way")
        reference = _time_work(lambda d=documents: _lm_eval_scores(rival, d), computed)  # type: ignore[misc]
        send(f"{engine}: {work}, ours")
        own = _time_work(lambda d=documents: _our_scores(ours, d), computed)  # type: ignore[misc]
        send(_row(work, f"lm-eval {engine}", reference, reference, unique, params, gpu))
        send(_row(work, f"rlfocal {engine}", own, reference, unique, params, gpu))
    prompts = open_questions(max(2, n // 10))
    send(f"{engine}: {N_PASSES} passes")
    many = _time_work(lambda: _lm_eval_passes(rival, prompts), computed)
    one = _time_work(lambda: _our_passes(ours, prompts), computed)
    unique = unique_tokens(PromptEncoder(tokenizer).prompts(prompts))
    passes = partial(_row, f"{N_PASSES} passes", unique=unique, params=params, gpu=None)
    if uncached is not None:
        full = _time_work(lambda: _lm_eval_passes(uncached, prompts), computed)
        send(passes(f"lm-eval {engine}, no prefix cache", full, full))
        send(passes(f"lm-eval {engine}, with it", many, full))
        send(passes(f"rlfocal {engine}", one, full))
    else:
        send(passes(f"lm-eval {engine}", many, many))
        send(passes(f"rlfocal {engine}", one, many))
    asked = multiple_choice(max(2, n // 10), words_a_choice=5)
    send(f"{engine}: {THINKING.traces} traces, then choices")
    apart = _time_work(lambda: _lm_eval_thoughts(rival, asked), computed)
    thought = _time_work(lambda: _our_thoughts(ours, asked), computed)
    thoughts = partial(_row, f"{THINKING.traces} traces, then choices", unique=None, params=params, gpu=None)
    send(thoughts(f"lm-eval {engine}, two passes", apart, apart))
    send(thoughts(f"rlfocal {engine}", thought, apart))


def _load_vllm(model: str, dtype: str) -> tuple[Any, Any, Engine, Callable[[], int] | None]:
    """lm-eval's backend with and without a prefix cache, our engine, and a function that counts computed
    tokens. All of them share one `vllm.LLM`."""
    from rlfocal.extraction.engines import vllm

    llm = vllm.start(model=model, dtype=dtype, max_model_len=CONTEXT_TOKENS, disable_log_stats=False)

    def computed() -> int:
        return sum(
            int(metric.value)
            for metric in llm.get_metrics()
            if metric.name == "vllm:prompt_tokens_by_source" and metric.labels["source"] == "local_compute"
        )

    rival = lm_eval_backend(llm, model, dtype, CONTEXT_TOKENS)
    uncached = lm_eval_backend(llm, model, dtype, CONTEXT_TOKENS, reads_cache=False)
    return rival, uncached, vllm.VLLMEngine(llm, rival.tokenizer), computed


def lm_eval_backend(llm: Any, model: str, dtype: str, context: int, *, reads_cache: bool = True) -> Any:
    """lm-eval's vLLM backend around an existing `vllm.LLM`. `reads_cache`: generation uses its prefix
    cache."""
    from lm_eval.models import vllm_causallms

    class CachelessVLLM(vllm_causallms.VLLM):  # type: ignore[misc]
        @staticmethod
        def modify_gen_kwargs(*args: Any, **options: Any) -> Any:
            kwargs, *rest = vllm_causallms.VLLM.modify_gen_kwargs(*args, **options)
            return ({**kwargs, "skip_reading_prefix_cache": True}, *rest)

    backend = vllm_causallms.VLLM if reads_cache else CachelessVLLM
    made, vllm_causallms.LLM = vllm_causallms.LLM, lambda **_: llm
    try:
        return backend(pretrained=model, dtype=dtype, max_model_len=context, batch_size="auto")
    finally:
        vllm_causallms.LLM = made


def _load_hf(model: str, dtype: str) -> tuple[Any, None, Engine, None]:
    import torch
    from lm_eval.models.huggingface import HFLM
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from rlfocal.extraction.engines.hf import HFEngine

    device = "cuda" if torch.cuda.is_available() else "cpu"
    loaded = AutoModelForCausalLM.from_pretrained(model, dtype=dtype).to(device)
    tokenizer = AutoTokenizer.from_pretrained(model)
    rival = HFLM(pretrained=loaded, tokenizer=tokenizer, batch_size=HF_BATCH, device=device)
    return rival, None, HFEngine(loaded, tokenizer), None


def _time_work(work: Callable[[], np.ndarray | None], computed: Callable[[], int] | None) -> TimedScores:
    before = computed() if computed else 0
    started = perf_counter()
    with contextlib.redirect_stderr(io.StringIO()):  # lm-eval's bars
        scores = work()
    seconds = perf_counter() - started
    return TimedScores(seconds, computed() - before if computed else None, scores)


def _lm_eval_scores(rival: Any, documents: Sequence[Document]) -> np.ndarray:
    from lm_eval.api.instance import Instance

    requests = [
        Instance(request_type="loglikelihood", doc={}, arguments=(d.context, continuation), idx=c)
        for d in documents
        for c, continuation in enumerate(d.continuations)
    ]
    scores = [logprob for logprob, _ in rival.loglikelihood(requests)]
    return np.array(scores).reshape(len(documents), -1)


def _lm_eval_thoughts(rival: Any, documents: Sequence[Document]) -> None:
    """Samples every trace, then scores every choice after every trace, which takes two runs of lm-eval."""
    traces = _lm_eval_texts(rival, documents, THINKING.traces, THINKING.budget)
    close = THINKING.markers[1] + THINKING.lead_in
    repeated = [document for document in documents for _ in range(THINKING.traces)]
    _lm_eval_scores(
        rival,
        [replace(d, context=f"{d.context}{trace}{close}") for d, trace in zip(repeated, traces, strict=True)],
    )


def _our_thoughts(engine: Engine, documents: Sequence[Document]) -> None:
    for i in range(0, len(documents), engine.shard):
        shard = documents[i : i + engine.shard]
        list(engine.score_after(shard, THINKING, list(engine.think(shard, THINKING))))


def _our_scores(engine: Engine, documents: Sequence[Document]) -> np.ndarray:
    def total(score: ChoiceScore) -> float:
        return sum(score.token_logprobs)

    shards = (documents[i : i + engine.shard] for i in range(0, len(documents), engine.shard))
    return np.array([[total(s) for s in scores] for shard in shards for scores in engine.score(shard)])


def _lm_eval_passes(rival: Any, documents: Sequence[Document]) -> None:
    _lm_eval_texts(rival, documents, N_PASSES, ANSWER_TOKENS)


def _lm_eval_texts(rival: Any, documents: Sequence[Document], passes: int, tokens: int) -> list[str]:
    """Texts sampled as by lm-eval's `repeats`, which repeats every request."""
    from lm_eval.api.instance import Instance

    options = {"until": [], "do_sample": True, "temperature": 0.6, "top_p": 0.95, "max_gen_toks": tokens}
    requests = [
        Instance(request_type="generate_until", doc={}, arguments=(d.context, dict(options)), idx=p)
        for d in documents
        for p in range(passes)
    ]
    return list(rival.generate_until(requests))


def _our_passes(engine: Engine, documents: Sequence[Document]) -> None:
    list(engine.sample(documents, SamplingSettings(N_PASSES, 0.6, 0.95, ANSWER_TOKENS, (), 0)))


def _count_unique(encoded: Sequence[EncodedDocument]) -> int:
    """The number of distinct prompt tokens; if every choice is a single token, contexts alone count."""
    if all(len(tail) == 1 for _, tails in encoded for tail in tails):
        return unique_tokens(context for context, _ in encoded)
    return unique_tokens(context + tail for context, tails in encoded for tail in tails)


def _row(
    work: str,
    way: str,
    timed: TimedScores,
    reference: TimedScores,
    unique: int | None,
    params: int,
    gpu: GPU | None,
) -> ExtractionMeasurement:
    difference = agreement = None
    if timed.scores is not None and reference.scores is not None and timed is not reference:
        difference = float(np.abs(timed.scores - reference.scores).max())
        agreement = float((timed.scores.argmax(1) == reference.scores.argmax(1)).mean())
    rate = timed.computed / timed.seconds if timed.computed is not None else None
    return ExtractionMeasurement(
        work=work,
        way=way,
        seconds=timed.seconds,
        times_faster=reference.seconds / timed.seconds,
        computed=timed.computed,
        unique=unique,
        max_difference=difference,
        agreement=agreement,
        share_of_peak=2 * params * rate / (1e12 * gpu.tflops) if rate and gpu else None,
    )


def count_parameters(model: str) -> int:
    """The number of a model's parameters, from its configuration alone."""
    from accelerate import init_empty_weights
    from transformers import AutoConfig, AutoModelForCausalLM

    with init_empty_weights():
        empty = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(model))
    return int(sum(p.numel() for p in empty.parameters()))
