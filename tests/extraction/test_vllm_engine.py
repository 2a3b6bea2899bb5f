"""Real vLLM on a CPU against lm-eval's own vLLM backend and the transformers engine, in float32."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from support.scores import NEEDS_VLLM, assert_alike
from support.tiny_models import tiny_benchmarks, tiny_model, tiny_tokenizer, write_tasks

from rlfocal.base.errors import InputError
from rlfocal.extraction.engine import ChoiceScore, Document, SamplingSettings
from rlfocal.extraction.engines.hf import HFEngine
from rlfocal.extraction.engines.requests import Request
from rlfocal.extraction.rows import documents_of_choices
from rlfocal.extraction.running.runner import extract
from rlfocal.pool import ModelSpec, PoolSpec
from rlfocal.pool.specs import ThinkingSpec
from warehouse import open_warehouse

pytestmark = [pytest.mark.slow, *NEEDS_VLLM]

CONTEXT = 3000
TOLERANCE = 1e-4
SAMPLING = SamplingSettings(passes=10, temperature=0.6, top_p=0.95, max_tokens=12, stop=("dog",), seed=0)


@dataclass(frozen=True)
class Engines:
    """One random model in lm-eval's vLLM backend, in ours (the same `vllm.LLM`), and in transformers."""

    lm_eval: Any
    vllm: Any
    hf: HFEngine
    folder: Path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    tokenizer = tiny_tokenizer(words=2000)
    tiny_model("llama", len(tokenizer), context=CONTEXT).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def engines(folder: Path) -> Engines:
    from benchmarks.speed.extraction import lm_eval_backend
    from rlfocal.extraction.engines import vllm

    tokenizer = tiny_tokenizer(words=2000)
    model = tiny_model("llama", len(tokenizer), context=CONTEXT)
    llm = vllm.start(model=str(folder), dtype="float32", max_model_len=CONTEXT)
    rival = lm_eval_backend(llm, str(folder), "float32", CONTEXT)
    return Engines(rival, vllm.VLLMEngine(llm, tokenizer), HFEngine(model, tokenizer), folder)


def lm_eval_scores(engines: Engines, documents: Sequence[Document]) -> list[list[tuple[float, bool]]]:
    from lm_eval.api.instance import Instance

    requests = [
        Instance(request_type="loglikelihood", doc={}, arguments=(d.context, c), idx=i)
        for d in documents
        for i, c in enumerate(d.continuations)
    ]
    with contextlib.redirect_stderr(io.StringIO()):
        found = iter(engines.lm_eval.loglikelihood(requests))
    return [[next(found) for _ in d.continuations] for d in documents]


def assert_all_agree(engines: Engines, documents: Sequence[Document]) -> list[tuple[ChoiceScore, ...]]:
    ours = list(engines.vllm.score(documents))
    assert not any(score.truncated for score in assert_alike(ours, engines.hf.score(documents)))
    for own, known in zip(ours, lm_eval_scores(engines, documents), strict=True):
        for score, (logprob, greedy) in zip(own, known, strict=True):
            assert sum(score.token_logprobs) == pytest.approx(logprob, abs=TOLERANCE)
            assert score.is_greedy == greedy
    return ours


KINDS = {
    "single-token": (" lazy", " dog", " yes", " no"),
    "multi-token": (" the lazy dog", " a quick brown fox jumps", " maybe not", " seven apples and more"),
    "shared-prefix": (
        " the quick brown fox is quick and brown" * 3 + " indeed",
        " the quick brown fox is quick and brown" * 3 + " maybe",
        " the quick brown fox is quick",
        " the quick",
    ),
    "one character": ("A", "B", "7", "é"),
    "one choice": (" yes",),
    "the same twice": (" yes", " yes", " lazy dog", " lazy dog"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_log_probs_equal_lm_evals_and_transformers(engines: Engines, kind: str) -> None:
    asked = "Question: which of the quick brown foxes " * 4
    # Contexts of every length modulo the cache's block, which is what decides where a prefix is hidden.
    documents = [
        Document(i, "", "", 0, "", KINDS[kind], f"{asked}{'x' * i} Answer:", KINDS[kind]) for i in range(34)
    ]
    scores = assert_all_agree(engines, documents)
    lengths = {len(s.token_ids) for row in scores for s in row}
    assert (lengths == {1}) == (kind in ("single-token", "one choice"))


def test_short_choices_are_decoded_and_long_ones_read(
    engines: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Contexts are read without their tokens' log-probs, of which each takes a row of the vocabulary."""
    asked: list[Request] = []
    ask = engines.vllm._ask

    def record(requests: Sequence[Request]) -> Any:
        asked.extend(requests)
        return ask(requests)

    monkeypatch.setattr(engines.vllm, "_ask", record)
    long = " fox" * 40
    scores = assert_all_agree(engines, prompts(3, choices=(" yes", " the lazy dog", long)))
    [lengths] = {tuple(len(s.token_ids) for s in row) for row in scores}
    assert lengths[:2] == (1, 3)
    assert sorted(len(r.continuation) for r in asked if r.continuation) == [3] * 3
    assert [len(r.targets) for r in asked if r.targets] == [2] * 3
    read = [r for r in asked if not r.continuation and not r.targets]
    assert [len(r.prompt) - r.start for r in read] == [lengths[2] - 1] * 3


def test_decoding_goes_on_where_memory_runs_out(engines: Engines, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests whose cache is taken away are begun again, in the middle of a choice."""
    scheduler = engines.vllm._llm.llm_engine.engine_core.engine_core.scheduler
    pool = scheduler.kv_cache_manager.block_pool
    taken = pool.get_new_blocks(pool.get_num_free_blocks() - 24)
    preempted = 0
    preempt = scheduler._preempt_request

    def count(*args: Any, **options: Any) -> Any:
        nonlocal preempted
        preempted += 1
        return preempt(*args, **options)

    monkeypatch.setattr(scheduler, "_preempt_request", count)
    monkeypatch.setattr(
        engines.vllm, "_max_forced_tokens", 99
    )  # long enough for every request to need a block more
    choices = tuple(f" {word}" + " the quick brown fox" * 8 for word in ("yes", "no", "maybe"))
    documents = [replace(d, context="x" * 20 * d.doc_id + d.context) for d in prompts(12, choices)]
    try:
        found = list(engines.vllm.score(documents))
    finally:
        pool.free_blocks(taken)
        monkeypatch.undo()
    assert preempted
    assert_alike(found, engines.hf.score(documents))


def test_choices_alone_are_lm_evals(engines: Engines) -> None:
    documents = [replace(d, continuations=c) for d in prompts(1) for c in KINDS.values()]
    texts = documents_of_choices(documents)
    scores = zip(texts, engines.vllm.score(texts), strict=True)
    found = {text.continuations[0]: sum(score.token_logprobs) for text, [score] in scores}
    empty = [replace(d, context="") for d in documents]
    for document, expected in zip(empty, lm_eval_scores(engines, empty), strict=True):
        for text, (logprob, _) in zip(document.continuations, expected, strict=True):
            assert found[text] == pytest.approx(logprob, abs=TOLERANCE)


def test_without_its_features_the_engine_asks_as_lm_eval_does(engines: Engines) -> None:
    from rlfocal.extraction.engines.vllm import VLLMEngine

    plain = VLLMEngine(engines.vllm._llm, tiny_tokenizer(words=2000))
    plain._next_tokens = plain._reuse = False
    plain._max_forced_tokens = 0
    documents = prompts(6, choices=("yes", " lazy dog", " dog"))
    assert_alike(plain.score(documents), engines.vllm.score(documents))


def prompts(n: int, choices: tuple[str, ...] = ()) -> list[Document]:
    return [Document(i, "", "", None, "", choices, f"{i} quick brown foxes and", choices) for i in range(n)]


@pytest.mark.parametrize("marker", [" lazy", "lazy dog"])
def test_choices_after_a_trace_are_transformers(engines: Engines, marker: str) -> None:
    """Traces of vLLM, closed by a token, by text or by the budget, scored by both engines."""
    thinking = ThinkingSpec(
        budget=24, traces=4, markers=("Question", marker), text_markers="dog" in marker, lead_in="Answer:"
    )
    documents = [
        replace(d, context=d.context + " x" * d.doc_id) for d in prompts(6, (" yes", " the lazy dog"))
    ]
    traces = list(engines.vllm.think(documents, thinking))
    assert list(engines.vllm.think(documents[2:4], thinking)) == traces[2:4]
    assert {len(own) for own in traces} == {4}
    assert "length" in {trace.finish_reason for own in traces for trace in own}
    theirs = engines.hf.score_after(documents, thinking, traces)
    assert_alike(engines.vllm.score_after(documents, thinking, traces), theirs)
    passes = replace(SAMPLING, passes=4)
    samples = list(engines.vllm.sample_after(documents, passes, thinking, traces))
    assert [len({sample.text for sample in own}) > 1 for own in samples] == [True] * 6
    assert list(engines.vllm.sample_after(documents[3:], passes, thinking, traces[3:])) == samples[3:]


def test_ten_passes_are_seeded_by_document(engines: Engines) -> None:
    from vllm import SamplingParams

    documents = prompts(8)
    samples = list(engines.vllm.sample(documents, SAMPLING))
    assert [len(s) for s in samples] == [10] * 8
    assert len({s.text for s in samples[0]}) > 5
    assert list(engines.vllm.sample(documents, SAMPLING)) == samples
    assert list(engines.vllm.sample(documents[3:5], SAMPLING)) == samples[3:5]
    assert list(engines.vllm.sample(documents, replace(SAMPLING, seed=1))) != samples
    # Pass p of document d is what vLLM itself draws for the seed 10 d + p.
    alone = engines.vllm._llm.generate(
        [documents[3].context],
        SamplingParams(temperature=0.6, top_p=0.95, max_tokens=12, stop=["dog"], seed=34),
        use_tqdm=False,
    )
    assert alone[0].outputs[0].text == samples[3][4].text
    assert alone[0].outputs[0].finish_reason == samples[3][4].finish_reason
    assert len(alone[0].outputs[0].token_ids) == samples[3][4].n_tokens
    assert len(alone[0].prompt_token_ids) == samples[3][4].n_prompt_tokens


def test_more_long_prompts_than_a_step_holds(engines: Engines) -> None:
    # On a CPU vLLM fails on a seeded prompt that it reads in parts.
    long = [replace(d, context="brown fox " * 600 + d.context) for d in prompts(12)]
    assert len(list(engines.vllm.sample(long, SAMPLING))) == 12


def test_greedy_answers_equal_transformers(engines: Engines) -> None:
    greedy = replace(SAMPLING, temperature=0.0, passes=2)
    ours, theirs = (list(engine.sample(prompts(5), greedy)) for engine in (engines.vllm, engines.hf))
    for own, other in zip(ours, theirs, strict=True):
        # vLLM drops a character that the last token leaves unfinished.
        assert [replace(s, text=s.text.rstrip("\N{REPLACEMENT CHARACTER}")) for s in other] == list(own)


def test_long_prompts_are_refused_or_cut_with_a_flag(engines: Engines) -> None:
    from rlfocal.extraction.engines.vllm import VLLMEngine

    long = replace(prompts(1, choices=(" yes", " lazy dog"))[0], context="fox " * (CONTEXT + 50) + "Answer:")
    with pytest.raises(InputError, match=str(CONTEXT)):
        engines.vllm.score([long])
    keeping = VLLMEngine(engines.vllm._llm, tiny_tokenizer(words=2000), truncation="keep")
    [scores] = keeping.score([long])
    assert all(s.truncated for s in scores)
    [known] = lm_eval_scores(engines, [long])
    for score, (logprob, _) in zip(scores, known, strict=True):
        assert sum(score.token_logprobs) == pytest.approx(logprob, abs=TOLERANCE)


def test_a_pool_is_extracted_by_vllm_in_its_own_process(folder: Path, tmp_path: Path) -> None:
    benchmarks = tiny_benchmarks(write_tasks(tmp_path / "tasks", choices=20, answers=6))
    models = (ModelSpec(model="m", hf_repo=str(folder), params_b=0.001),)
    pool = PoolSpec(name="tiny", backend="vllm", benchmarks=benchmarks, models=models)
    first = extract(pool, tmp_path / "vllm")
    assert not first.missing
    assert len(first.committed) == 3
    assert extract(pool, tmp_path / "vllm").n_skipped == 3
    assert not extract(pool, tmp_path / "hf", backend="hf").missing
    query = "SELECT doc_id, choice, logprob FROM choice_logprobs ORDER BY task, doc_id, choice"
    with open_warehouse(tmp_path / "vllm") as a, open_warehouse(tmp_path / "hf") as b:
        for own, other in zip(a.rows(query), b.rows(query), strict=True):
            assert own == pytest.approx(other, abs=TOLERANCE)
        assert a.rows("SELECT DISTINCT backend FROM extractions") == [("vllm",)]
        assert a.rows("SELECT count(*) FROM answer_passes") == b.rows("SELECT count(*) FROM answer_passes")
