"""Loads the documents of lm-eval's tasks, with lm-eval's own prompts."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from rlfocal.base.errors import InputError, unknown_name
from rlfocal.extraction.answers import extract_answer
from rlfocal.extraction.engine import Document, SamplingSettings
from rlfocal.extraction.lm_eval_tasks import (
    TOKEN_LIMITS,
    Managers,
    deterministic_loading,
    load_task,
    quiet,
    task_facts,
    task_manager,
)
from rlfocal.pool.specs import Benchmark, ThinkingSpec
from warehouse.comparison import Rule, is_number

OUTPUT_TYPES = {"choices": "multiple_choice", "answers": "generate_until"}
NO_LABEL = -1
"""The label of a document none of whose choices is right."""
GENERATION_OPTIONS = {"until", "do_sample", "temperature", "top_p", *TOKEN_LIMITS}


@dataclass(frozen=True)
class TaskDocuments:
    """The documents of one task of a benchmark, in the task's order, and how models answer them."""

    benchmark: str
    task: str
    version: str
    """lm-eval's version number of the task."""
    documents: tuple[Document, ...]
    splits: tuple[str, ...]
    """The split of each document, "train" or "test"."""
    sampling: SamplingSettings | None
    """The settings of sampled answers; None if choices are scored instead."""
    n_whole: int
    """The number of the task's documents without a limit."""
    digest: str
    """The sha256 of the whole task, whatever the limit. Tasks with equal digests have the same questions and
    prompts."""
    confidential: bool = False
    """Whether reports and exports leave out the question texts unless they are requested."""
    unconditional: bool = False
    """Whether each choice is also scored after an empty prompt."""
    thinking: ThinkingSpec | None = None
    """The settings of thinking before answers, unless a model's entry has its own; None for no thinking."""
    excluded_models: frozenset[str] = frozenset()
    """The names of the pool's models that are not asked this task."""
    facts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Rows of the tables `benchmarks` and `tasks`, by the table's name."""
    is_numeric: bool = False
    """Whether every gold answer of the whole task is a number. A text without a number then has no answer."""
    rule: Rule = Rule.DEFAULT
    """The rule by which an answer is compared with the gold answer."""

    def includes_model(self, model: str) -> bool:
        return model not in self.excluded_models


def load_tasks(
    benchmarks: Iterable[Benchmark], limit: int | None = None, datasets: str | Path | None = None
) -> list[TaskDocuments]:
    """The tasks of the benchmarks, with lm-eval's prompts.

    `limit` takes the first documents of each task, in proportion from train and test if the task has official
    splits. `datasets` is a mirror of the hub's data sets. None stands for $RLFOCAL_DATASETS, else the hub.
    Raises InputError for a task that does not exist or is not supported, and for a missing data set. Raises
    RunError if data do not load.
    """
    built: list[TaskDocuments] = []
    for _, tasks in load_each(benchmarks, limit, datasets):
        if isinstance(tasks, Exception):
            raise tasks
        built += tasks
    return built


def load_each(
    benchmarks: Iterable[Benchmark], limit: int | None = None, datasets: str | Path | None = None
) -> Iterator[tuple[Benchmark, list[TaskDocuments] | Exception]]:
    """Loads benchmarks one by one. Yields the tasks of each, or the error with which it does not load."""
    if limit is not None and limit < 1:
        raise InputError(f"limit {limit} selects no documents; give at least 1")
    mirror = mirror_folder(datasets)
    managers: Managers = {}
    for benchmark in benchmarks:
        loaded: list[TaskDocuments] | Exception
        try:
            with quiet():
                manager = task_manager(benchmark, managers)
            loaded = [
                _make_task_documents(benchmark, task, name, manager, mirror, limit)
                for task, name in benchmark.tasks.items()
            ]
        except Exception as error:
            loaded = error
        yield benchmark, loaded


def mirror_folder(datasets: str | Path | None) -> Path | None:
    """The mirror's folder: `datasets`, else $RLFOCAL_DATASETS; None if neither is given, which means the hub.
    Raises InputError if it is no folder."""
    given = datasets or os.environ.get("RLFOCAL_DATASETS")
    if not given:
        return None
    if not Path(given).is_dir():
        raise InputError(
            f"the mirror {str(given)!r} is not a folder; `rlfocal datasets mirror {given}` creates it"
        )
    return Path(given)


def _make_task_documents(
    benchmark: Benchmark, task: str, name: str, manager: Any, mirror: Path | None, limit: int | None
) -> TaskDocuments:
    where = f"{benchmark.name}/{task} ({name})"
    is_answers, rule = benchmark.kind == "answers", Rule(benchmark.comparison)
    with deterministic_loading() as scratch:
        tested = load_task(name, benchmark, manager, mirror, scratch)
        config = tested.config
        if (expected := OUTPUT_TYPES[benchmark.kind]) != config.output_type:
            raise InputError(
                f"{where} has output type {config.output_type!r}, but a benchmark of kind "
                f"{benchmark.kind!r} needs {expected!r}"
            )
        whole = _build_documents(benchmark, tested, where)
    n_train = benchmark.train_docs
    if benchmark.train_split is not None:
        with deterministic_loading() as scratch:
            trained = load_task(name, benchmark, manager, mirror, scratch, benchmark.train_split)
            train = _build_documents(benchmark, trained, where)
        n_train = len(train)
        whole = train + tuple(replace(d, doc_id=n_train + d.doc_id) for d in whole)
    splits = _make_splits(len(whole), n_train)
    version = str((config.metadata or {}).get("version", tested.VERSION))
    sampling = _read_sampling(config, where) if benchmark.kind == "answers" else None
    digest = _digest(config.task, version, whole, splits, sampling)
    kept = range(len(whole))[:limit] if n_train is None else _pick_from_both(splits, limit)
    return TaskDocuments(
        benchmark.name,
        task,
        version,
        documents=tuple(whole[i] for i in kept),
        splits=_make_splits(len(kept), None) if n_train is None else tuple(splits[i] for i in kept),
        sampling=sampling,
        n_whole=len(whole),
        digest=digest,
        confidential=benchmark.confidential,
        unconditional=benchmark.unconditional,
        thinking=benchmark.thinking,
        excluded_models=benchmark.excluded_models,
        facts={
            "benchmarks": benchmark.model_dump(include={"kind", "category", "licence"})
            | {"benchmark": benchmark.name, "comparison": benchmark.comparison if is_answers else None},
            "tasks": task_facts(name, benchmark, manager, mirror)
            | {"benchmark": benchmark.name, "task": task, "version": version}
            | {"num_fewshot": config.num_fewshot or 0},
        },
        is_numeric=is_answers
        and (rule is Rule.NUMERIC or (rule is Rule.DEFAULT and all(is_number(d.gold) for d in whole))),
        rule=rule,
    )


def _build_documents(benchmark: Benchmark, task: Any, where: str) -> tuple[Document, ...]:
    """Every document of the task with lm-eval's prompt. A limit is not applied here, because the digest must
    not depend on it."""
    try:
        task.build_all_requests(
            rank=0,
            world_size=1,
            system_instruction=benchmark.system_prompt,
            apply_chat_template=benchmark.chat_template,
            fewshot_as_multiturn=benchmark.chat_template and benchmark.fewshot_as_multiturn,
            chat_template=_leave_unrendered if benchmark.chat_template else None,
        )
    except (ValueError, AssertionError) as error:
        wanted, there = task.config.num_fewshot, len(task.sampler.df)
        if not wanted or wanted < there:  # a document is no example of its own
            raise
        raise InputError(
            f"{where}: num_fewshot {wanted} needs more examples than the {there} available; use fewer"
        ) from error
    document = (
        _make_choice_document
        if benchmark.kind == "choices"
        else partial(_make_answer_document, rule=Rule(benchmark.comparison))
    )
    built = [document(task, group, where) for group in _group_by_document(task.instances)]
    if built and all(d.label == NO_LABEL for d in built):
        raise InputError(
            f"{where}: no document's target names one of its choices (the first is {built[0].gold!r:.80}), "
            f"so every answer would be wrong; split {task.config.test_split!r} may hide its labels: name "
            "another as test_split in the task's YAML"
        )
    return tuple(map(_add_messages, built)) if benchmark.chat_template else tuple(built)


def _leave_unrendered(messages: Sequence[Mapping[str, str]], **_: object) -> str:
    """A chat's messages as JSON. lm-eval calls this in place of a chat template, which only a model's
    tokenizer has."""
    return json.dumps([(message["role"], message["content"]) for message in messages])


def _add_messages(document: Document) -> Document:
    messages = tuple((role, content) for role, content in json.loads(document.context))
    return replace(document, context="", messages=messages)


def _group_by_document(instances: Sequence[Any]) -> Iterator[list[Any]]:
    """Yields lm-eval's requests grouped by document, in the task's order."""
    groups: dict[int, list[Any]] = {}
    for instance in instances:
        groups.setdefault(instance.doc_id, []).append(instance)
    yield from groups.values()


def _make_choice_document(task: Any, group: Sequence[Any], where: str) -> Document:
    doc = group[0].doc
    choices = tuple(task.doc_to_choice(doc))
    # Requests beyond the choices are unconditional repetitions for acc_mutual_info.
    arguments = [instance.args for instance in group[: len(choices)]]
    target = task.doc_to_target(doc)
    if len({context for context, _ in arguments}) > 1 or isinstance(target, list):
        raise InputError(
            f"{where} has one prompt per choice or several correct choices; neither is supported"
        )
    if isinstance(target, str):
        label = choices.index(target) if target in choices else NO_LABEL
    else:
        label = target if 0 <= target < len(choices) else NO_LABEL
    return Document(
        doc_id=group[0].doc_id,
        doc_hash=_hash_doc(doc),
        question=str(task.doc_to_text(doc)),
        label=label,
        gold=choices[label] if label >= 0 else str(target),
        choices=choices,
        context=arguments[0][0],
        continuations=tuple(continuation for _, continuation in arguments),
    )


def _make_answer_document(task: Any, group: Sequence[Any], where: str, rule: Rule = Rule.DEFAULT) -> Document:
    [instance] = group
    target = task.doc_to_target(instance.doc)
    if isinstance(target, list):
        raise InputError(f"{where} has several correct answers, which is not supported")
    gold = rule.canonical(extract_answer(str(target)) if "####" in str(target) else str(target))
    if gold is None:
        raise InputError(f"{where}: document {instance.doc_id} has no gold answer in {str(target)!r:.80}")
    return Document(
        doc_id=instance.doc_id,
        doc_hash=_hash_doc(instance.doc),
        question=str(task.doc_to_text(instance.doc)),
        label=None,
        gold=gold,
        choices=(),
        context=instance.args[0],
        continuations=(),
        given_gold=str(target),
    )


def _hash_doc(doc: Mapping[str, Any]) -> str:
    """The `doc_hash` as lm-eval computes it, so that its logs can be matched with rlfocal's rows."""
    from lm_eval.utils import handle_non_serializable, hash_string

    dumped = json.dumps(doc, indent=2, default=handle_non_serializable, ensure_ascii=False)
    return str(hash_string(dumped))


def _make_splits(n: int, train_docs: int | None) -> tuple[str, ...]:
    n_train = 4 * n // 5 if train_docs is None else min(train_docs, n)
    return ("train",) * n_train + ("test",) * (n - n_train)


def _pick_from_both(splits: tuple[str, ...], limit: int | None) -> Sequence[int]:
    """The positions of the first documents of train and of test, in proportion. The first positions alone
    would all be train."""
    if limit is None:
        return range(len(splits))
    n_train = splits.count("train")
    from_train = min(limit, len(splits)) * n_train // len(splits)
    from_test = min(limit, len(splits)) - from_train
    return [*range(from_train), *range(n_train, n_train + from_test)]


def _read_sampling(config: Any, where: str) -> SamplingSettings:
    """The sampling settings in a task's generation_kwargs and repeats, read as lm-eval reads them."""
    options: dict[str, Any] = config.generation_kwargs
    for name in options:
        if name not in GENERATION_OPTIONS:
            raise unknown_name("generation option", name, GENERATION_OPTIONS, where)
    temperature = float(options.get("temperature", 0.0))
    if not options.get("do_sample", temperature > 0):
        temperature = 0.0
    until = options.get("until") or []
    return SamplingSettings(
        passes=config.repeats,
        temperature=temperature,
        top_p=float(options.get("top_p", 1.0)),
        max_tokens=next((int(options[key]) for key in TOKEN_LIMITS if options.get(key)), 256),
        stop=(until,) if isinstance(until, str) else tuple(until),
        seed=0,
    )


def _digest(
    name: str,
    version: str,
    documents: Sequence[Document],
    splits: Sequence[str],
    sampling: SamplingSettings | None,
) -> str:
    # The prompts themselves are hashed, so a template, a few-shot seed or a data set cannot change unseen.
    digest = hashlib.sha256()
    for part in (name, version, _spell_sampling(sampling), *map(repr, documents), *splits):
        digest.update(part.encode("utf-8", "surrogatepass"))
        digest.update(b"\0")
    return digest.hexdigest()


def _spell_sampling(sampling: SamplingSettings | None) -> str:
    """The settings as text. Fingerprints contain it, so its form, with the old name `Sampling`, never
    changes."""
    return repr(sampling).replace(type(sampling).__name__, "Sampling", 1)
