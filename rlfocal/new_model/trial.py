"""Checks a new model before it joins a pool: its entry, and its first answers."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from scipy.stats import poisson_binom

from rlfocal.base.arrays import Floats
from rlfocal.base.errors import InputError
from rlfocal.base.wording import count_noun
from rlfocal.extraction.engines import backend_of, check_entry_for, check_weights_for, tokenizer_for
from rlfocal.extraction.running.events import Event
from rlfocal.extraction.running.missing import plan_extraction
from rlfocal.extraction.running.runner import extract_model
from rlfocal.extraction.tasks import TaskDocuments, load_tasks
from rlfocal.pool.hub import pin_revision, read_config
from rlfocal.pool.specs import Benchmark, ModelSpec, PoolSpec
from warehouse import Warehouse, open_warehouse


def check_entry(spec: ModelSpec, backend: str) -> ModelSpec:
    """The entry, with its revision pinned to the hub's current commit.

    Raises InputError, with the fix, if the hub has no such model or revision, its licence is not accepted, or
    `context_length` is beyond the model's. It also does if the model cannot be split across `tensor_parallel`
    GPUs, or the backend cannot quantise it.
    """
    backend = backend_of(spec, backend)
    check_entry_for(backend, spec)
    pinned = pin_revision(spec)
    check_weights_for(backend, pinned)
    tokenizer_for(backend, pinned)
    config = read_config(pinned)
    config |= config.get("text_config") or {}
    if backend == "vllm":
        heads = config.get("num_attention_heads")
        if isinstance(heads, int) and heads % spec.tensor_parallel:
            fitting = [n for n in (1, 2, 4, 8, 16) if heads % n == 0]
            raise InputError(
                f"model {spec.model!r}: its {heads} attention heads cannot be split over tensor_parallel "
                f"{spec.tensor_parallel} GPUs; give one of {', '.join(map(str, fitting))}"
            )
    if backend == "vllm" and spec.tensor_parallel > 1:
        import torch

        visible = torch.cuda.device_count()
        if 0 < visible < spec.tensor_parallel:  # with none, this machine may only hand the work on
            raise InputError(
                f"model {spec.model!r}: tensor_parallel {spec.tensor_parallel} needs as many GPUs, but "
                f"{visible} can be seen here; lower it, or set CUDA_VISIBLE_DEVICES"
            )
    return pinned


CHANCE_LEVEL = 0.005
"""The probability with which a guessing model is called worse than chance. Of 20 documents with four choices,
that takes 0 right answers."""
MIN_EQUAL_ANSWERS = 10
"""The number of documents from which on the same answer to all of them is a fault."""
FLAT_TOLERANCE = 1e-6
"""The difference below which log-probs of a document's choices count as equal."""


def faults_of_choices(
    where: str, logprobs: Sequence[Sequence[float]], token_logprobs: Floats, labels: Sequence[int]
) -> list[str]:
    """Faults of scored choices: invalid log-probs, always the same choice, or fewer right answers than
    guessing gives.

    `logprobs` has, for each document, the log-prob of each choice. `token_logprobs` has those of every token
    of every choice. A label is -1 if no choice is right.
    """
    n, n_tokens = len(logprobs), token_logprobs.size
    if odd := n_tokens - int(((token_logprobs <= FLAT_TOLERANCE) & np.isfinite(token_logprobs)).sum()):
        return [
            f"{where}: {odd:,} of {n_tokens:,} log-probs are NaN, infinite or positive; none may be. "
            "Try another dtype (bfloat16 or float32): float16 overflows in some models."
        ]
    if all(max(values) - min(values) < FLAT_TOLERANCE for values in logprobs):
        return [
            f"{where}: all choices of all {n} documents are equally likely; they must differ somewhere. The "
            "weights do not match the configuration: download the model again, or check its revision."
        ]
    chosen = [int(np.argmax(values)) for values in logprobs]
    if n >= MIN_EQUAL_ANSWERS and len(set(chosen)) == 1 and len(set(labels)) > 1:
        return [
            f"{where}: choice {chosen[0]} to all {n} documents; at least two different ones are expected. An "
            "instruction-tuned model may need the benchmark's chat variant (chat_template: true); check also "
            "the tokenizer and the revision."
        ]
    n_right = sum(choice == label for choice, label in zip(chosen, labels, strict=True))
    chances = poisson_binom.cdf(np.arange(n + 1), [1 / len(values) for values in logprobs])
    if chances[n_right] >= CHANCE_LEVEL:
        return []
    return [
        f"{where}: {n_right} of {n} right; guessing gets {int(np.argmax(chances >= CHANCE_LEVEL))} or more "
        f"with a probability of {1 - CHANCE_LEVEL:.1%}. Check tokenizer, revision and chat template: the "
        "model does not read the text as written."
    ]


def faults_of_answers(where: str, answers: Sequence[Sequence[str | None]]) -> list[str]:
    """Faults of free answers: no answer in any text, or always the same answer. `answers` has, for each
    document, the answer read from each sample; None if a sample has none."""
    n = len(answers)
    given = [answer for passes in answers for answer in passes]
    distinct = {answer for answer in given if answer is not None}
    if given and not distinct:
        return [
            f"{where}: no answer in any of {count_noun(len(given), 'text')}; at least one is expected. Look "
            "at the texts: an instruction-tuned model may need the benchmark's chat variant."
        ]
    if n >= MIN_EQUAL_ANSWERS and len(distinct) == 1:
        return [
            f"{where}: the answer {distinct.pop()!r:.40} to all {n} documents; at least two different ones "
            "are expected. Check the tokenizer and the revision: the model does not read the questions."
        ]
    return []


def faults_of_tokenizer(tokenizer: Any, texts: Sequence[str]) -> list[str]:
    """A fault if the tokenizer changes texts by encoding and decoding them. Case, spacing and the Unicode
    form of letters do not count."""
    lost = [text for text in texts if _normalise_text(_round_trip(tokenizer, text)) != _normalise_text(text)]
    if not lost:
        return []
    back = _round_trip(tokenizer, lost[0])
    start = next((i for i, (a, b) in enumerate(zip(lost[0], back, strict=False)) if a != b), 0)
    return [
        f"tokenizer: {len(lost)} of {count_noun(len(texts), 'text')} changed by encoding and decoding, "
        f"{lost[0][start : start + 20]!r} to {back[start : start + 20]!r}; none may be. Save the "
        "tokenizer that the model was trained with beside its weights."
    ]


def _round_trip(tokenizer: Any, text: str) -> str:
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    return str(tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))


def _normalise_text(text: str) -> str:
    return "".join(unicodedata.normalize("NFKC", text).casefold().split())


TRIAL_DOCUMENTS = 20
"""The number of documents that a trial asks for each kind of benchmark."""
TRIAL_TASKS = 4
"""The number of tasks over which a trial's documents are spread, because all answers of one task may truly be
the same.

Over 16 models and MMLU's 57 tasks, this holds for 1.6 % of the first 20 documents of a task. It holds for 0.4
% of five documents of four tasks.
"""
TRIAL_TEXTS = 8
"""The number of texts on which a trial tests the tokenizer."""


def find_faults(
    spec: ModelSpec,
    pool: PoolSpec,
    backend: str,
    datasets: str | Path | None,
    on_progress: Callable[[Event], None] | None = None,
) -> list[str]:
    """Sentences on what is implausible about a model's answers to TRIAL_DOCUMENTS of each kind of the pool's
    benchmarks. Raises InputError with the engine's reason if the model cannot answer."""
    tasks = _take_few(pool.benchmarks, datasets)
    with TemporaryDirectory() as folder:
        place = Path(folder) / "look"
        with open_warehouse(place) as warehouse:
            [plan] = plan_extraction(warehouse, [spec], tasks, backend)
        outcome = extract_model(place, plan, backend, on_progress=on_progress)
        if outcome.missing:
            raise InputError(
                f"{spec.model} cannot answer: {outcome.missing[0].reason}; the pool is unchanged"
            )
        with open_warehouse(place, read_only=True) as warehouse:
            names = dict.fromkeys(task.benchmark for task in tasks)
            faults = [fault for name in names for fault in _collect_faults(warehouse, name)]
    if spec.is_closed:
        return faults
    from rlfocal.extraction.engines.tokenizers import tokenizer_of

    return faults + faults_of_tokenizer(tokenizer_of(spec), _list_texts(tasks))


def _take_few(benchmarks: Sequence[Benchmark], datasets: str | Path | None) -> list[TaskDocuments]:
    """TRIAL_DOCUMENTS documents of the first benchmark of each kind, from its first TRIAL_TASKS tasks."""
    first = {benchmark.kind: benchmark for benchmark in reversed(benchmarks)}
    tasks: list[TaskDocuments] = []
    for benchmark in first.values():
        few = dict(list(benchmark.tasks.items())[:TRIAL_TASKS])
        each = -(-TRIAL_DOCUMENTS // len(few))
        tasks += load_tasks([benchmark.model_copy(update={"tasks": few})], each, datasets)
    return tasks


def _collect_faults(warehouse: Warehouse, benchmark: str) -> list[str]:
    scored = warehouse.rows(
        "SELECT list(c.logprob ORDER BY c.choice), "
        "flatten(list(coalesce(c.token_logprobs, [c.logprob]))), any_value(d.label) "
        "FROM choice_logprobs AS c JOIN docs AS d USING (benchmark, task, doc_id) "
        "WHERE benchmark = ? GROUP BY task, doc_id ORDER BY task, doc_id",
        [benchmark],
    )
    if scored:
        logprobs, tokens, labels = zip(*scored, strict=True)
        return faults_of_choices(benchmark, logprobs, np.concatenate(tokens, dtype=np.float64), labels)
    passes = warehouse.rows(
        "SELECT list(answer ORDER BY pass) FROM answer_passes WHERE benchmark = ? GROUP BY task, doc_id",
        [benchmark],
    )
    return faults_of_answers(benchmark, [answers for (answers,) in passes])


def _list_texts(tasks: Sequence[TaskDocuments]) -> list[str]:
    """The prompts and gold answers of the first few documents, each once."""
    documents = [document for task in tasks for document in task.documents[:2]][: TRIAL_TEXTS // 2]
    texts = [text for d in documents for text in (d.context or d.question, d.gold) if text]
    return list(dict.fromkeys(texts))
