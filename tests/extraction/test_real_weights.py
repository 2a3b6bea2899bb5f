"""Stock tasks by a model that somebody else trained: what every engine finds is what lm-eval finds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.mirror import write_bbh, write_gsm8k, write_mmlu
from support.real_weights import run_lm_eval
from support.scores import NEEDS_VLLM

from rlfocal.extraction.engine import Engine
from rlfocal.extraction.engines.sampling import compare
from rlfocal.extraction.engines.tokenizers import load_tokenizer
from rlfocal.extraction.tasks import TaskDocuments, load_tasks
from rlfocal.pool import Benchmark, ModelSpec, load_benchmarks
from rlfocal.pool.specs import SamplingSpec

CONTEXT = 2048
ANSWER_TOKENS = 24
TASKS = {"mmlu": "astronomy", "bbh": "date_understanding", "gsm8k": "main"}


@pytest.fixture(scope="module")
def mirror(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, questions = tmp_path_factory.mktemp("mirror"), shared / "data" / "questions"
    write_mmlu(folder, questions, [TASKS["mmlu"]])
    write_bbh(folder, questions, [TASKS["bbh"]])
    write_gsm8k(folder, questions, (20, 10))
    return folder


def stock(name: str, **changes: Any) -> Benchmark:
    """One task of a benchmark; GSM8K as lm-eval has it, with short greedy answers to its test questions."""
    whole = load_benchmarks()[name]
    if whole.kind == "answers":
        greedy = SamplingSpec(passes=1, temperature=0, max_tokens=ANSWER_TOKENS)
        changes |= {"train_split": None, "sampling": greedy}
    return whole.model_copy(update={"tasks": {TASKS[name]: whole.tasks[TASKS[name]]}, **changes})


def load(mirror: Path, benchmark: Benchmark, limit: int) -> TaskDocuments:
    [loaded] = load_tasks([benchmark], limit, datasets=mirror)
    return loaded


def entry(folder: Path, dtype: str = "float32") -> ModelSpec:
    return ModelSpec.model_validate(
        {"model": "smollm", "hf_repo": str(folder), "params_b": 0.135, "context_length": CONTEXT}
        | {"dtype": dtype}
    )


def load_engine(backend: str, spec: ModelSpec, folder: Path) -> Any:
    return import_module(f"rlfocal.extraction.engines.{backend}").load(spec, folder, threads=1)


@dataclass(frozen=True)
class Reference:
    """lm-eval's transformers backend of the same folder."""

    mirror: Path
    folder: Path

    def samples(self, benchmark: Benchmark, limit: int, dtype: str = "float32", **options: Any) -> list[Any]:
        from lm_eval.models.huggingface import HFLM

        lm = HFLM(pretrained=str(self.folder), device="cpu", dtype=dtype, batch_size=1, max_length=CONTEXT)
        if benchmark.kind == "answers":
            options |= {"gen_kwargs": {"max_gen_toks": ANSWER_TOKENS}}
        return run_lm_eval(lm, self.mirror, benchmark, limit, **options)


@pytest.fixture(scope="module")
def reference(mirror: Path, smollm: Path) -> Reference:
    return Reference(mirror, smollm)


def assert_scores_agree(engine: Engine, task: TaskDocuments, samples: Sequence[Any]) -> None:
    assert len(samples) == len(task.documents)
    found = engine.score(task.documents)
    for text, scores, sample in zip(engine.texts(task.documents), found, samples, strict=True):
        assert {context for context, _ in sample["arguments"]} == {text}
        compared = compare(logprobs(sample), [sum(score.token_logprobs) for score in scores], torch.float32)
        assert compared.difference <= max(len(score.token_ids) for score in scores) * compared.tolerance
        for score, [(_, greedy)] in zip(scores, sample["resps"], strict=True):
            assert score.is_greedy == greedy


def logprobs(sample: Any) -> list[float]:
    return [logprob for [(logprob, _)] in sample["resps"]]


def assert_answers_agree(engine: Engine, task: TaskDocuments, samples: Sequence[Any]) -> None:
    assert task.sampling is not None
    answers = engine.sample(task.documents, task.sampling)
    texts = engine.texts(task.documents)
    for text, [answer], sample in zip(texts, answers, samples, strict=True):
        assert sample["arguments"][0][0] == text
        assert [answer.text] == sample["resps"][0]


def test_scores_by_transformers_are_lm_evals(reference: Reference) -> None:
    few = stock("mmlu", num_fewshot=1)
    engine = load_engine("hf", entry(reference.folder), reference.folder)
    assert engine.slower is None
    assert_scores_agree(engine, load(reference.mirror, few, 2), reference.samples(few, 2))


@pytest.mark.slow
@pytest.mark.parametrize(
    "backend", ["hf", pytest.param("vllm", marks=NEEDS_VLLM), pytest.param("openai", marks=NEEDS_VLLM)]
)
def test_stock_tasks_are_lm_evals(reference: Reference, backend: str, request: pytest.FixtureRequest) -> None:
    spec = entry(reference.folder)
    if backend == "openai":
        url = f"http://{request.getfixturevalue('smollm_served')}/v1"
        spec = spec.model_copy(update={"base_url": url})
    engine = load_engine(backend, spec, reference.folder)
    assert engine.slower is None
    for name in ("mmlu", "bbh"):
        samples = reference.samples(stock(name), 2)
        assert_scores_agree(engine, load(reference.mirror, stock(name), 2), samples)
    answers = stock("gsm8k")
    assert_answers_agree(engine, load(reference.mirror, answers, 2), reference.samples(answers, 2))


@pytest.mark.slow
def test_in_bfloat16_scores_are_as_near_to_float32_as_lm_evals(reference: Reference) -> None:
    engine = load_engine("hf", entry(reference.folder, "bfloat16"), reference.folder)
    for name in ("mmlu", "bbh"):
        exact, theirs = (
            np.array([logprobs(sample) for sample in reference.samples(stock(name), 2, dtype)])
            for dtype in ("float32", "bfloat16")
        )
        found = engine.score(load(reference.mirror, stock(name), 2).documents)
        ours = np.array([[sum(score.token_logprobs) for score in scores] for scores in found])
        assert 0 < np.abs(ours - exact).max() <= 2 * np.abs(theirs - exact).max()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mmlu", "gsm8k"])
@pytest.mark.parametrize("multiturn", [True, False])
def test_a_chat_is_lm_evals_token_for_token(reference: Reference, name: str, multiturn: bool) -> None:
    chat = stock(name, chat_template=True, fewshot_as_multiturn=multiturn, num_fewshot=2)
    chat = chat.model_copy(update={"system_prompt": "Be brief."})
    task = load(reference.mirror, chat, 2)
    options: dict[str, Any] = {"apply_chat_template": True, "fewshot_as_multiturn": multiturn}
    samples = reference.samples(chat, 2, system_instruction="Be brief.", **options)
    engine = load_engine("hf", entry(reference.folder), reference.folder)
    tokenizer = load_tokenizer(str(reference.folder))
    for document, sample in zip(task.documents, samples, strict=True):
        text = sample["arguments"][0][0]
        assert text.count("<|im_start|>user") == (3 if multiturn else 1)
        assert engine._encoder.prompts([document]) == [
            tuple(tokenizer(text, add_special_tokens=False)["input_ids"])
        ]
    if name == "mmlu":
        assert_scores_agree(engine, task, samples)
    else:
        assert_answers_agree(engine, task, samples)
