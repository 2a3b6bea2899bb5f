"""Checks whether each entry of a pool would run, with a network but without a GPU or the weights."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from importlib.util import find_spec
from itertools import chain
from typing import Any

from rlfocal.base.errors import InputError, RunError, describe_error
from rlfocal.base.tables import Table
from rlfocal.base.wording import MISSING_CELL
from rlfocal.extraction.engine import Document, SamplingSettings
from rlfocal.extraction.engines import backend_of, check_entry_for, check_weights_for
from rlfocal.extraction.engines.tokenizers import check_tokenizer, tokenizer_of
from rlfocal.extraction.engines.tokens import ContextWindow, PromptEncoder, check_fits, max_length
from rlfocal.extraction.estimate import GPU, prompt_text, too_large
from rlfocal.extraction.gpus import driver_fault
from rlfocal.extraction.tasks import TaskDocuments
from rlfocal.pool.downloads import files_of, gb_here
from rlfocal.pool.hub import WEIGHTS, find_file, local_weights, pin_revision, read_config
from rlfocal.pool.specs import ModelSpec, PoolSpec, resolve_thinking

PROMPTS_PER_TASK = 20
"""The number of each task's prompts that are tokenized: those with the most bytes, and those with the most
pieces."""
_PIECE = re.compile(r"[A-Za-z]{1,5}|[^A-Za-z\s]")
"""A text that is often one token: a part of a word, or any other sign, such as a digit."""


@dataclass
class EntryCheck:
    """The results of checking one model's entry. A field that could not be checked is None."""

    model: str
    commit: str | None = None
    architecture: str | None = None
    tokenizer: str | None = None
    longest: int | None = None
    """The tokens of the longest prompt of all tasks, including its longest choice or the room for an
    answer, and a trace of thinking."""
    context: int | None = None
    here_gb: float | None = None
    download_gb: float | None = None
    faults: list[str] = field(default_factory=list)
    """The entry's faults, each a sentence with its fix; empty if no fault was found."""


def check_pool(
    pool: PoolSpec,
    tasks: Sequence[TaskDocuments],
    *,
    backend: str,
    gpu: GPU,
    on_progress: Callable[[str, float], None] | None = None,
) -> tuple[list[EntryCheck], list[str]]:
    """Checks every entry of a pool, and this machine. Returns the checks, and faults of the machine. A fault
    of one entry hides no fault of another."""
    checks = []
    for number, model in enumerate(pool.models):
        if on_progress is not None:
            on_progress("check", number / len(pool.models))
        asked = [task for task in tasks if task.includes_model(model.model)]
        checks.append(_check_model(model, asked, backend_of(model, backend), gpu))
    return checks, list(filter(None, [driver_fault()]))


def _check_model(model: ModelSpec, tasks: Sequence[TaskDocuments], backend: str, gpu: GPU) -> EntryCheck:
    """Checks one model's entry. If one thing cannot be checked, the others still are."""
    check = EntryCheck(model.model)

    def note(fault: str | None) -> None:
        if fault is not None and fault not in check.faults:
            check.faults.append(fault)

    def note_failure(check: Callable[[], Any]) -> Any:
        try:
            return check()
        except (InputError, RunError, OSError, ValueError) as error:
            note(describe_error(error))
            return None

    note_failure(lambda: check_entry_for(backend, model))
    if model.is_closed:
        return check
    pinned: ModelSpec | None = note_failure(lambda: pin_revision(model))
    if pinned is None:  # nothing else of it can be read
        return check
    check.commit = MISSING_CELL if local_weights(pinned) is not None else pinned.revision
    note_failure(lambda: find_file(pinned, "config.json"))
    config = note_failure(lambda: read_config(pinned)) or {}
    check.architecture = ", ".join(config.get("architectures") or ()) or None
    note(_check_architecture(model, config, backend))
    note_failure(lambda: check_weights_for(backend, pinned))
    tokenizer = note_failure(lambda: _open_tokenizer(pinned))
    if tokenizer is not None:
        check.tokenizer = type(tokenizer).__name__
        check.context = pinned.context_length or note_failure(lambda: _find_context(config, tokenizer))
        if check.context:
            check.longest = note_failure(
                lambda: _find_longest_prompt(pinned, tokenizer, tasks, int(check.context or 0), note)
            )
    check.here_gb = note_failure(lambda: gb_here(pinned))
    if check.here_gb is not None and (files := note_failure(lambda: files_of(pinned))) is not None:
        weights = sum(size for name, size in files if name.endswith(WEIGHTS)) / 1e9
        check.download_gb = max(0.0, weights - check.here_gb)
        if not weights:
            note(f"{model.model}: {model.hf_repo} has no weights at {pinned.revision}; give another revision")
    note(too_large(pinned, gpu))
    heads = config.get("num_attention_heads")
    if heads and heads % model.tensor_parallel:
        even = math.gcd(heads, 8)
        note(
            f"{model.model}: its {heads} heads cannot be split across {model.tensor_parallel} GPUs; "
            f"set tensor_parallel to a divisor, such as {even}"
        )
    return check


def _open_tokenizer(model: ModelSpec) -> Any:
    checked = check_tokenizer(model)
    return tokenizer_of(model) if checked is None else checked.tokenizer


def _find_context(config: dict[str, Any], tokenizer: Any) -> int:
    from types import SimpleNamespace

    return max_length(SimpleNamespace(**config), tokenizer)


def _check_architecture(model: ModelSpec, config: dict[str, Any], backend: str) -> str | None:
    wanted = config.get("architectures") or []
    if backend not in ("vllm", "hf") or not wanted or model.trust_remote_code:
        return None
    known = _known_architectures(backend)
    if known is None or known & {*wanted}:
        return None
    return (
        f"{model.model}: the installed {'vLLM' if backend == 'vllm' else 'transformers'} does not know "
        f"{', '.join(wanted)}; install a version that does, or leave the model out"
    )


def _known_architectures(backend: str) -> set[str] | None:
    """The architectures that the installed engine of a backend runs; None if vLLM is not installed."""
    if backend == "vllm":
        if find_spec("vllm") is None:
            return None
        from vllm.model_executor.models.registry import ModelRegistry

        return {*ModelRegistry.get_supported_archs()}
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    return {*MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values()}


def _find_longest_prompt(
    model: ModelSpec,
    tokenizer: Any,
    tasks: Iterable[TaskDocuments],
    context: int,
    note: Callable[[str | None], None],
) -> int:
    """The tokens of the longest prompt of all tasks. Calls `note` for tasks with prompts that do not fit."""
    encoder = PromptEncoder(tokenizer, template_args=model.template_args)
    longest = 0
    for task in tasks:
        longest_by = (nlargest(PROMPTS_PER_TASK, task.documents, by) for by in (_count_bytes, _count_pieces))
        documents = list(dict.fromkeys(chain(*longest_by)))
        thinking = resolve_thinking(model, task.thinking)
        trace = thinking.budget if thinking else 0
        window = ContextWindow(context - trace, context - trace - 1, model.truncation)
        try:
            longest = max(longest, *(trace + n for n in _count_lengths(encoder, documents, task.sampling)))
            check_fits(encoder, documents, task.sampling, window)
        except InputError as error:
            beside = f" (beside a trace of {trace} in {context})" if trace else ""
            note(f"{model.model} on {task.benchmark}/{task.task}: {describe_error(error)}{beside}")
    return longest


def _count_lengths(
    encoder: PromptEncoder, documents: Sequence[Document], sampling: SamplingSettings | None
) -> Iterator[int]:
    if sampling is not None:
        yield from (len(prompt) + sampling.max_tokens for prompt in encoder.prompts(documents))
        return
    for prompt, tails in encoder.choices(documents):
        yield len(prompt) + max(map(len, tails))


def _count_bytes(document: Document) -> int:
    return len(_join_text(document).encode())


def _count_pieces(document: Document) -> int:
    return len(_PIECE.findall(_join_text(document)))


def _join_text(document: Document) -> str:
    return prompt_text(document) + max(document.continuations, key=len, default="")


def check_table(checks: Sequence[EntryCheck]) -> Table:
    columns = ["commit", "architecture", "tokenizer", "longest", "context", "GB here", "download"]
    table = Table("model", *columns, "faults", title="What the entries would run")
    for check in checks:
        table.add(
            check.model,
            (check.commit or MISSING_CELL)[:7],
            check.architecture or MISSING_CELL,
            check.tokenizer or MISSING_CELL,
            *(MISSING_CELL if n is None else f"{n:,}" for n in (check.longest, check.context)),
            *(MISSING_CELL if n is None else f"{n:,.1f}" for n in (check.here_gb, check.download_gb)),
            str(len(check.faults)),
        )
    return table
