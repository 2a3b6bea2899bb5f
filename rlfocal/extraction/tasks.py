"""lm-eval's tasks as documents: the prompts are lm-eval's own, the engine is ours."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import logging
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlfocal.errors import InputError, RunError, unknown
from rlfocal.extraction.answers import extract_answer, normalise
from rlfocal.extraction.engine import Document, Sampling
from rlfocal.pool.files import packaged
from rlfocal.pool.specs import Benchmark

FEWSHOT_SEED = 1234  # lm-eval's default, so that few-shot prompts are its prompts
OUTPUT_TYPES = {"choices": "multiple_choice", "answers": "generate_until"}
TOKEN_LIMITS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
GENERATION_OPTIONS = {"until", "do_sample", "temperature", "top_p", *TOKEN_LIMITS}

Managers = dict[tuple[Path | None, bool], Any]
"""lm-eval's TaskManagers by folder and whether they know lm-eval's own tasks."""


@dataclass(frozen=True)
class TaskDocuments:
    """The documents of one task of a benchmark, in the task's order, and how they are to be answered."""

    benchmark: str
    task: str
    version: str
    """lm-eval's version of the task."""
    documents: tuple[Document, ...]
    splits: tuple[str, ...]
    """"train" or "test", one a document."""
    sampling: Sampling | None
    """How answers are sampled; None where choices are scored."""
    n_whole: int
    """How many documents the task has without a limit."""
    digest: str
    """sha256 over the whole task, whatever the limit: one digest, the same questions in the same words."""


def load_tasks(benchmarks: Iterable[Benchmark], limit: int | None = None) -> list[TaskDocuments]:
    """Builds the prompts of every task of the benchmarks.

    `limit` takes the first documents of each task (of both official splits, 80 : 20, where there are such).
    InputError for a task that does not exist or cannot be represented, RunError where its data do not load.
    """
    built: list[TaskDocuments] = []
    for _, tasks in load_each(benchmarks, limit):
        if isinstance(tasks, Exception):
            raise tasks
        built += tasks
    return built


def load_each(
    benchmarks: Iterable[Benchmark], limit: int | None = None
) -> Iterator[tuple[Benchmark, list[TaskDocuments] | Exception]]:
    """`load_tasks` benchmark by benchmark: yields the tasks of each, or why it does not load."""
    if limit is not None and limit < 1:
        raise InputError(f"limit {limit} leaves no documents; give a number from 1 on")
    managers: Managers = {}
    for benchmark in benchmarks:
        loaded: list[TaskDocuments] | Exception
        try:
            loaded = _load(benchmark, limit, managers)
        except Exception as error:
            loaded = error
        yield benchmark, loaded


def _load(benchmark: Benchmark, limit: int | None, managers: Managers) -> list[TaskDocuments]:
    with _quiet():
        loaded = _lm_eval_tasks(benchmark, _task_manager(benchmark, managers))
    return [
        _task_documents(benchmark, task, loaded[lm_eval_task], limit)
        for task, lm_eval_task in benchmark.tasks.items()
    ]


def _lm_eval_tasks(benchmark: Benchmark, manager: Any) -> dict[str, Any]:
    """Loaded tasks by lm-eval's name. Global randomness is fixed per task, as some shuffle their choices."""
    loaded = {}
    for name in benchmark.tasks.values():
        state = random.getstate()
        random.seed(0)
        try:
            [loaded[name]] = manager.load([name])["tasks"].values()
        except Exception as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            raise RunError(f"lm-eval task {name!r} of {benchmark.name} cannot be loaded: {reason}") from error
        finally:
            random.setstate(state)
    return loaded


def _task_manager(benchmark: Benchmark, managers: Managers) -> Any:
    """A manager that knows the benchmark's tasks; reused, because indexing lm-eval's own takes seconds."""
    from lm_eval.tasks import TaskManager

    folder = _include_path(benchmark)
    wanted = set(benchmark.tasks.values())
    known: set[str] = set()
    for defaults in (False, True) if folder else (True,):
        if (folder, defaults) not in managers:
            path = str(folder) if folder else None
            managers[folder, defaults] = TaskManager(include_path=path, include_defaults=defaults)
        known = set(managers[folder, defaults].all_subtasks)
        if wanted <= known:
            return managers[folder, defaults]
    raise unknown("lm-eval task", min(wanted - known), known, f"benchmark {benchmark.name!r}")


def _include_path(benchmark: Benchmark) -> Path | None:
    if benchmark.include_path is None:
        return None
    scheme, _, inside = benchmark.include_path.partition(":")
    folder = packaged(inside) if scheme == "package" else Path(benchmark.include_path)
    if not folder.is_dir():
        raise InputError(f"benchmark {benchmark.name!r}: include_path {str(folder)!r} is not a folder")
    return folder


def _task_documents(benchmark: Benchmark, task: str, lm_eval_task: Any, limit: int | None) -> TaskDocuments:
    config = lm_eval_task.config
    where = f"{benchmark.name}/{task} ({config.task})"
    if (expected := OUTPUT_TYPES[benchmark.kind]) != config.output_type:
        raise InputError(
            f"{where} is of output type {config.output_type!r}, but a benchmark of kind {benchmark.kind!r} "
            f"needs {expected!r}"
        )
    if benchmark.num_fewshot is not None:
        lm_eval_task.set_config(key="num_fewshot", value=benchmark.num_fewshot)
    lm_eval_task.set_fewshot_seed(FEWSHOT_SEED)
    with _quiet():
        # Even under a limit all of them: the digest must not depend on it.
        lm_eval_task.build_all_requests(rank=0, world_size=1)
    document = _choice_document if benchmark.kind == "choices" else _answer_document
    whole = tuple(document(lm_eval_task, group, where) for group in _by_document(lm_eval_task.instances))
    splits = _splits(len(whole), benchmark.train_docs)
    version = str((config.metadata or {}).get("version", lm_eval_task.VERSION))
    sampling = _sampling(config, where) if benchmark.kind == "answers" else None
    digest = _digest(config.task, version, whole, splits, sampling)
    kept = range(len(whole))[:limit] if benchmark.train_docs is None else _of_both(splits, limit)
    return TaskDocuments(
        benchmark.name,
        task,
        version,
        documents=tuple(whole[i] for i in kept),
        splits=_splits(len(kept), None) if benchmark.train_docs is None else tuple(splits[i] for i in kept),
        sampling=sampling,
        n_whole=len(whole),
        digest=digest,
    )


def _by_document(instances: Sequence[Any]) -> Iterator[list[Any]]:
    """lm-eval's requests, one list a document, in the task's order."""
    groups: dict[int, list[Any]] = {}
    for instance in instances:
        groups.setdefault(instance.doc_id, []).append(instance)
    yield from groups.values()


def _choice_document(task: Any, group: Sequence[Any], where: str) -> Document:
    doc = group[0].doc
    choices = tuple(task.doc_to_choice(doc))
    # Requests beyond the choices are unconditional repetitions for acc_mutual_info.
    arguments = [instance.args for instance in group[: len(choices)]]
    target = task.doc_to_target(doc)
    if len({context for context, _ in arguments}) > 1 or isinstance(target, list):
        raise InputError(f"{where} has one prompt per choice or several right choices; neither is supported")
    if isinstance(target, str):
        label = choices.index(target) if target in choices else -1
    else:
        label = target if 0 <= target < len(choices) else -1
    return Document(
        doc_id=group[0].doc_id,
        doc_hash=_doc_hash(doc),
        question=str(task.doc_to_text(doc)),
        label=label,
        gold=choices[label] if label >= 0 else str(target),
        choices=choices,
        context=arguments[0][0],
        continuations=tuple(continuation for _, continuation in arguments),
    )


def _answer_document(task: Any, group: Sequence[Any], where: str) -> Document:
    [instance] = group
    target = task.doc_to_target(instance.doc)
    if isinstance(target, list):
        raise InputError(f"{where} has several right answers; that is not supported")
    gold = extract_answer(str(target)) if "####" in str(target) else normalise(str(target))
    if gold is None:
        raise InputError(f"{where}: document {instance.doc_id} has no gold answer in {str(target)!r:.80}")
    return Document(
        doc_id=instance.doc_id,
        doc_hash=_doc_hash(instance.doc),
        question=str(task.doc_to_text(instance.doc)),
        label=None,
        gold=gold,
        choices=(),
        context=instance.args[0],
        continuations=(),
    )


def _doc_hash(doc: Mapping[str, Any]) -> str:
    """lm-eval's own doc_hash, so that its logs and our rows can be told to speak of the same document."""
    from lm_eval.utils import handle_non_serializable, hash_string

    dumped = json.dumps(doc, indent=2, default=handle_non_serializable, ensure_ascii=False)
    return str(hash_string(dumped))


def _splits(n: int, train_docs: int | None) -> tuple[str, ...]:
    n_train = _four_fifths(n) if train_docs is None else min(train_docs, n)
    return ("train",) * n_train + ("test",) * (n - n_train)


def _four_fifths(n: int) -> int:
    return 4 * n // 5


def _of_both(splits: tuple[str, ...], limit: int | None) -> Sequence[int]:
    """80 % of `limit` from the start of train, the rest of test: the first rows alone would all be train."""
    if limit is None:
        return range(len(splits))
    n_train = splits.count("train")
    from_train = min(_four_fifths(limit), n_train)
    from_test = min(limit - from_train, len(splits) - n_train)
    return [*range(from_train), *range(n_train, n_train + from_test)]


def _sampling(config: Any, where: str) -> Sampling:
    """lm-eval's generation_kwargs and repeats, read as lm-eval reads them."""
    options: dict[str, Any] = config.generation_kwargs
    for name in options:
        if name not in GENERATION_OPTIONS:
            raise unknown("generation option", name, GENERATION_OPTIONS, where)
    temperature = float(options.get("temperature", 0.0))
    if not options.get("do_sample", temperature > 0):
        temperature = 0.0
    until = options.get("until") or []
    return Sampling(
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
    sampling: Sampling | None,
) -> str:
    # The prompts themselves are hashed, so a template, a few-shot seed or a data set cannot change unseen.
    digest = hashlib.sha256()
    for part in (name, version, repr(sampling), *map(repr, documents), *splits):
        digest.update(part.encode("utf-8", "surrogatepass"))
        digest.update(b"\0")
    return digest.hexdigest()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """lm-eval writes progress bars and hints on a task's YAML; its errors come as exceptions."""
    logger = logging.getLogger("lm_eval")
    level = logger.level
    logger.setLevel(logging.ERROR)  # its handlers may hold a stderr of their own, as under Prefect
    try:
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        logger.setLevel(level)
