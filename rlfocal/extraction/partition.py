"""The identity of a partition, which is all answers of one model to one task, and its lock."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlfocal.base.wording import count_noun
from rlfocal.extraction.tasks import TaskDocuments
from rlfocal.pool.hub import local_adapter, local_weights
from rlfocal.pool.specs import ModelSpec, ThinkingSpec, resolve_thinking
from warehouse import Warehouse
from warehouse.alignment import explain_shortening
from warehouse.comparison import Rule
from warehouse.store import PartitionKey, PartitionRecord

# Raise this when the numbers that an engine computes from the same input change.
EXTRACTION_REVISION = 2
INVARIANT_VARIABLE = "VLLM_BATCH_INVARIANT"
"""The environment variable that makes vLLM's numbers independent of batches, at some cost in speed. The
numbers differ from vLLM's usual ones."""
UNCONDITIONAL_SUFFIX = "+unconditional"
"""The suffix of a fingerprint with unconditional log-probs. The rest is the same as without them."""

NAMED_SETTINGS = (
    *("backend", "hf_repo", "revision", "gguf_file", "adapter", "adapter_revision", "served"),
    *("dtype", "head_dtype", "quantization", "max_length"),
)
"""The settings of a partition that an entry decides, and that say why it was replaced."""


@dataclass(frozen=True)
class Job:
    """A partition to extract: a task, its fingerprint for a model, and how to ask the model."""

    task: TaskDocuments
    fingerprint: str
    replace_documents: bool = False
    """Whether other models' answers to a different set of documents may be deleted."""
    thinking: ThinkingSpec | None = None
    """The settings of the model's thinking before its answers; None if it does not think."""

    def key(self, model: str) -> PartitionKey:
        return PartitionKey(model, self.task.benchmark, self.task.task)

    def is_covered_by(self, record: PartitionRecord | None) -> bool:
        """Whether a committed partition is complete, with the job's fingerprint and at least as many
        documents. A partition with unconditional log-probs also covers a job without them."""
        # Limits take documents in one order.
        return (
            record is not None
            and record.fault is None
            and not record.n_to_ask
            and record.fingerprint in (self.fingerprint, self.fingerprint + UNCONDITIONAL_SUFFIX)
            and record.n_docs >= len(self.task.documents)
        )

    def explain_refusal(self, record: PartitionRecord | None) -> str | None:
        """The reason why the job may not replace a committed partition with more documents; None if it
        may."""
        if record is None or record.fault:
            return None
        return explain_shortening(record.n_docs, len(self.task.documents), self.task.n_whole)


def describe_weights(model: ModelSpec) -> dict[str, Any]:
    """The settings that identify the entry's weights: the repository, its revision, and any GGUF file or
    adapter."""
    on_top = model.model_dump(include={"gguf_file", "adapter", "adapter_revision"}, exclude_defaults=True)
    return {"hf_repo": model.hf_repo, "revision": model.revision} | on_top


def predict_record(job: Job, model: ModelSpec, backend: str, entry: PartitionRecord) -> PartitionRecord:
    """The record of the partition that the job would commit in place of `entry`, as far as the model's entry
    decides it."""
    given = {"dtype": model.dtype, "quantization": model.quantization, "max_length": model.context_length}
    settings = describe_weights(model) | {k: v for k, v in given.items() if v not in (None, "auto")}
    settings = json.loads(entry.settings or "{}") | settings
    return entry._replace(fingerprint=job.fingerprint, backend=backend, settings=json.dumps(settings))


def explain_replaced(
    before: Mapping[PartitionKey, PartitionRecord],
    after: Mapping[PartitionKey, PartitionRecord],
    keys: Collection[tuple[str, str, str]],
) -> list[str]:
    """A sentence for each model, on those of the partitions `keys` that have another fingerprint after than
    before: which they are, and the settings that changed."""
    replaced: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for key in sorted(before.keys() & after.keys()):
        was, now = (each[key].fingerprint.removesuffix(UNCONDITIONAL_SUFFIX) for each in (before, after))
        if was != now and key in keys:
            replaced[key.model, _explain_change(before[key], after[key])][key.benchmark] += 1
    return [
        f"{model} on {', '.join(counts)} ({count_noun(counts.total(), 'partition')}): {why}"
        for (model, why), counts in replaced.items()
    ]


def _explain_change(before: PartitionRecord, after: PartitionRecord) -> str:
    was, now = (json.loads(each.settings or "{}") | {"backend": each.backend} for each in (before, after))
    changes = [
        f"{name} {was.get(name)} → {now.get(name)}"
        for name in NAMED_SETTINGS
        if was.get(name) != now.get(name)
    ]
    return ", ".join(changes) or "its files, its prompts or another key of its entry changed"


def extraction_lock(
    warehouse: Warehouse, model: str, benchmark: str, *, wait: bool
) -> AbstractContextManager[bool]:
    """Takes the lock of a model's answers to a benchmark. Yields whether it was taken: False if another
    process holds it, and `wait` is false."""
    return warehouse.lock(f"extraction {model}\0{benchmark}", wait=wait)


def fingerprint(
    model: ModelSpec,
    weights: str,
    task: TaskDocuments,
    backend: str,
    tokens: str | None = None,
    head: str | None = None,
) -> str:
    """The sha256 of everything that a model's answers to a task depend on, with a suffix for unconditional
    log-probs.

    The revision of `model` is pinned. `weights` is its `weights_digest`, which covers the tokenizer's files.
    `tokens` is the tokenizer's digest, if its class may read text differently than tokenizer.json. `head` is
    the model's `head_dtype_of`. The task's digest covers prompts (few-shot seed, system prompt, chat template
    or not), data and sampling. The number of documents does not count, so that a limited partition is part of
    the whole one.
    """
    parts: dict[str, object] = {
        "revision": EXTRACTION_REVISION,
        "model": [model.hf_repo, model.revision, weights, model.trust_remote_code],
        # Not tensor_parallel or base_url: where a model runs is no property of its answers.
        "engine": [
            backend,
            model.dtype,
            model.quantization,
            model.context_length,
            model.truncation,
            _select_arguments(model, backend),
            *_list_invariance(backend),
        ],
        "task": [task.benchmark, task.task, task.digest],
    }
    if tokens is not None:
        parts["tokenizer"] = tokens
    if head is not None:
        parts["head"] = head
    if model.served and backend == "chat":
        parts["served"] = model.served
    if model.template_args:
        parts["template_args"] = model.template_args
    if task.rule is not Rule.DEFAULT:
        parts["comparison"] = task.rule
    if thinking := resolve_thinking(model, task.thinking):
        parts["thinking"] = thinking.model_dump()
    digest = hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()
    return digest + UNCONDITIONAL_SUFFIX if task.unconditional else digest


def _select_arguments(model: ModelSpec, backend: str) -> dict[str, object] | None:
    """The engine's arguments without `concurrency` for chat, which changes no answer."""
    given = model.engine_args.get(backend)
    if backend != "chat" or given is None:
        return given
    return {name: value for name, value in given.items() if name != "concurrency"} or None


def _list_invariance(backend: str) -> list[str]:
    """The environment variables that change how vLLM computes. The list is empty by default, so that
    fingerprints stay."""
    is_set = os.environ.get(INVARIANT_VARIABLE, "0") not in ("", "0")
    return [INVARIANT_VARIABLE] if backend == "vllm" and is_set else []


def weights_digest(model: ModelSpec) -> str:
    """A digest of a model's weights and tokenizer: a hub model's commit, or the sha256 of a directory's
    files.

    With a GGUF file or an adapter, it is a sha256 that covers them, too. The revision of `model` is pinned.
    Raises InputError for a directory that lacks what an engine needs.
    """
    folder = local_weights(model)
    file = None if folder is None or model.gguf_file is None else folder / model.gguf_file
    weights = model.revision if folder is None else _digest_files(folder, file)
    if model.gguf_file is None and model.adapter is None:
        return weights
    adapter = local_adapter(model)
    on_top = model.adapter_revision if adapter is None else _digest_files(adapter)
    parts = [weights, model.gguf_file, model.adapter, on_top]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _digest_files(folder: Path, only: Path | None = None) -> str:
    digest = hashlib.sha256()
    files = (p for p in folder.iterdir() if p.is_file() and not p.name.startswith("."))
    for path in sorted(files) if only is None else [only]:
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        digest.update(f"{path.name}\0{content}\0".encode())
    return digest.hexdigest()
