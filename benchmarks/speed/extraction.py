"""Extraction compared with lm-eval's own backends: the same model, documents and machine, in one run.

lm-eval's vLLM backend and ours share one `vllm.LLM`, and both transformers engines one model, so that only
the requests differ.
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
"""No random model ends a trace before its budget."""
HF_BATCH = 8
HIDDEN_SIZES, N_LAYERS = {"cpu": 384, "cuda": 2048}, {"cpu": 8, "cuda": 22}


@dataclass(frozen=True)
class ExtractionMeasurement:
    """One way to do one piece of work. Token counts are None if the engine does not tell."""

    work: str
    way: str
    seconds: float
    times_faster: float
    """How many times faster than the reference, the first way of the same work and engine."""
    computed: int | None = None
    """Prompt tokens that were computed."""
    unique: int | None = None
    """Distinct prompt tokens: each shared prefix counted once."""
    max_difference: float | None = None
    """Largest difference of a choice's log-likelihood from the reference's."""
    agreement: float | None = None
    """Share of documents on which both find the same choice likeliest."""
    share_of_peak: float | None = None
    """The share of the GPU's dense bfloat16 rate; None on a CPU."""


@dataclass(frozen=True)
class ExtractionSetup:
    """The engine, model and documents of a measurement."""

    engine: str
    params: int
    device: str
    dtype: str
    block_size: int | None
    """Tokens of a block of vLLM's cache, the least that is shared."""
    documents: int
    tokens: float
    """Mean length of a prompt."""


@dataclass(frozen=True)
class ExtractionBench:
    setting: list[ExtractionSetup]
    measured: list[ExtractionMeasurement]
    failed: dict[str, str]


class TimedScores(NamedTuple):
    seconds: float
    computed: int | None
    scores: np.ndarray | None
    """documents x choices: log-likelihoods."""


def bench_extraction(
    documents: int, engines: Sequence[str], model: str | None, on_progress: Callable[[str], None]
) -> ExtractionBench:
    """Measures each engine in a process of its own. `model`: a directory or hub id; None: random weights."""
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
    """Runs in the engine's own process."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = "bfloat16" if device == "cuda" else "float32"
    place = Path(model or f"{folder}/random")
    if model is None and not place.exists():
        save_random_model(place, HIDDEN_SIZES[device], N_LAYERS[device], dtype)
    rival, forgetful, ours, computed = (_load_vllm if engine == "vllm" else _load_hf)(str(place), dtype)
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
    if forgetful is not None:
        full = _time_work(lambda: _lm_eval_passes(forgetful, prompts), computed)
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
    """lm-eval's backend, the same without a prefix cache, our engine, and a count of computed tokens."""
    from rlfocal.extraction.engines import vllm

    llm = vllm.start(model=model, dtype=dtype, max_model_len=CONTEXT_TOKENS, disable_log_stats=False)

    def computed() -> int:
        return sum(
            int(metric.value)
            for metric in llm.get_metrics()
            if metric.name == "vllm:prompt_tokens_by_source" and metric.labels["source"] == "local_compute"
        )

    rival = lm_eval_backend(llm, model, dtype, CONTEXT_TOKENS)
    forgetful = lm_eval_backend(llm, model, dtype, CONTEXT_TOKENS, forgetful=True)
    return rival, forgetful, vllm.VLLMEngine(llm, rival.tokenizer), computed


def lm_eval_backend(llm: Any, model: str, dtype: str, context: int, *, forgetful: bool = False) -> Any:
    """lm-eval's vLLM backend around an engine that is already there.

    `forgetful`: generation reads no prefix cache, as if every request stood alone.
    """
    from lm_eval.models import vllm_causallms

    class CachelessVLLM(vllm_causallms.VLLM):  # type: ignore[misc]
        @staticmethod
        def modify_gen_kwargs(*args: Any, **options: Any) -> Any:
            kwargs, *rest = vllm_causallms.VLLM.modify_gen_kwargs(*args, **options)
            return ({**kwargs, "skip_reading_prefix_cache": True}, *rest)

    backend = CachelessVLLM if forgetful else vllm_causallms.VLLM
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
    """Samples every trace, then scores every choice after every trace, as two runs of lm-eval would."""
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
    """Samples texts as lm-eval's `repeats` does: by repeating every request."""
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
    """The number of distinct tokens to read; where every choice is one token, those of the contexts."""
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
    """Parameters by the configuration, without loading the weights."""
    from accelerate import init_empty_weights
    from transformers import AutoConfig, AutoModelForCausalLM

    with init_empty_weights():
        empty = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(model))
    return int(sum(p.numel() for p in empty.parameters()))
