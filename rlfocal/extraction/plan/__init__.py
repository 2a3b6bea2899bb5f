"""Plans the extraction of a pool: which partitions are missing, and what they take. A plan writes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from pathlib import Path
from typing import NamedTuple

from rlfocal.base.errors import InputError, describe_error
from rlfocal.base.wording import count_noun
from rlfocal.extraction.engines import (
    backend_of,
    check_entry_for,
    check_weights_for,
    tokenizer_for,
)
from rlfocal.extraction.estimate import (
    DOWNLOAD_GB_PER_SECOND,
    GPU,
    Hours,
    Workload,
    digit_by_digit,
    estimate_workload,
    gpu_of,
    hours_of,
    measure_workload,
    service_dollars,
    splits_digits,
    too_large,
    weights_gb,
)
from rlfocal.extraction.partition import explain_replaced, predict_record
from rlfocal.extraction.running.missing import find_missing
from rlfocal.extraction.tasks import TaskDocuments, load_each, mirror_folder
from rlfocal.pool.downloads import gb_here
from rlfocal.pool.specs import Benchmark, ModelSpec, PoolSpec, resolve_thinking
from warehouse import open_warehouse
from warehouse.locations import locate, may_exist
from warehouse.store import PartitionKey, PartitionRecord

GPUS_OF_A_BOX = 8


class _PlanPart(NamedTuple):
    """A benchmark, or one of its tasks, with its workload for one model."""

    benchmark: Benchmark
    task: TaskDocuments | None
    """The task. It is None if its documents are not on this machine, and the workload follows from the
    benchmark's `size`."""
    workload: Workload


@dataclass(frozen=True)
class ModelPlan:
    """The planned work of one model."""

    model: str
    gpus: int
    partitions: int
    present: int
    """The number of partitions that are committed already, with the same fingerprint."""
    documents: int
    requests: int
    prefill_tokens: float
    decode_tokens: float
    hours: float
    prefill_hours: float
    decode_hours: float
    start_hours: float
    dollars: float
    weights_gb: float
    download_gb: float
    """The size of the weights that are not on this machine yet, in 1e9 bytes."""
    planned_before: float
    """The hours that a plan assumes for partitions which this kind of GPU has run already, without the
    start."""
    measured_before: float
    """The measured hours of partitions that this kind of GPU has run already. Their ratio to `planned_before`
    scales the hours of the rest."""


@dataclass(frozen=True)
class Plan:
    """The planned work of a pool."""

    pool: str
    gpu: str
    benchmarks: tuple[Workload, ...]
    """The work of each benchmark for a model that has answered nothing yet."""
    models: tuple[ModelPlan, ...]
    gpus: int
    clock_hours: float
    """The least hours for all models on the plan's GPUs, in any order: the longest model's, or all GPU-hours
    divided by the GPUs."""
    download_hours: float
    """The hours to download the missing weights. Only the first model's download delays the start."""
    warnings: tuple[str, ...]


def plan_pool(
    pool: PoolSpec,
    location: str | Path | None,
    *,
    backend: str | None = None,
    gpu: GPU,
    gpus: int = GPUS_OF_A_BOX,
    dollars: float | None = None,
    limit: int | None = None,
    datasets: str | Path | None = None,
) -> Plan:
    """Plans `extract` for a pool, without a network. Documents that are available locally are counted, others
    estimated.

    `gpus` is the number of the machine's GPUs; `dollars` is the price of a GPU-hour. Raises InputError for a
    benchmark without documents and `size`.
    """
    backend = backend or pool.backend
    price = gpu.dollars if dollars is None else dollars
    parts, notes = _list_parts(pool.benchmarks, limit, datasets)
    committed, taken = _read_committed(location, gpu)
    models = []
    running: list[ModelPlan] = []
    for model in pool.models:
        asked = [part for part in parts if part.benchmark.includes_model(model.model)]
        todo, unsure = _find_missing(model, asked, backend, committed)
        models.append(_plan_model(model, asked, todo, gpu, price, taken))
        faults = _find_faults(model, backend_of(model, backend), gpus) if todo else []
        large = too_large(model, gpu) if todo else None
        notes += filter(None, [large, *unsure, *faults])
        if todo and not (faults or model.is_closed):
            running.append(models[-1])
    longest = max((model.hours / model.gpus for model in running), default=0.0)
    works = [[p.workload for p in parts if p.benchmark.name == b.name] for b in pool.benchmarks]
    return Plan(
        pool.name,
        gpu.name,
        tuple(reduce(add, each) for each in works),
        tuple(models),
        gpus,
        max(longest, sum(model.hours for model in running) / gpus),
        sum(model.download_gb for model in running) / DOWNLOAD_GB_PER_SECOND / 3600,
        tuple(notes),
    )


def _list_parts(
    benchmarks: Sequence[Benchmark], limit: int | None, datasets: str | Path | None
) -> tuple[list[_PlanPart], list[str]]:
    """The tasks whose documents are available locally, the other benchmarks by their size, and notes for the
    user."""
    parts: list[_PlanPart] = []
    notes: list[str] = []
    mirror = mirror_folder(datasets)
    local = [b for b in benchmarks if mirror is not None or b.size is None]
    loaded = {b.name: tasks for b, tasks in load_each(local, limit, mirror)}
    for benchmark in benchmarks:
        tasks = loaded.get(benchmark.name)
        if isinstance(tasks, list):
            length = (benchmark.size and benchmark.size.answer_tokens) or None
            digits = benchmark.size.answer_digits if benchmark.size else 0.0
            parts += [_PlanPart(benchmark, task, measure_workload(task, length, digits)) for task in tasks]
            if benchmark.kind == "answers" and length is None:
                notes.append(f"{benchmark.name}: every answer is assumed to reach its token limit.")
        elif isinstance(tasks, Exception) and benchmark.size is None:
            raise tasks
        else:
            parts.append(_PlanPart(benchmark, None, estimate_workload(benchmark, limit)))
            if isinstance(tasks, Exception):
                notes.append(f"{benchmark.name} could not be counted: {describe_error(tasks)}.")
    if uncounted := [part.benchmark.name for part in parts if part.task is None]:
        notes.append(
            f"{', '.join(uncounted)}: documents and tokens are from the stated sizes; --datasets DIR counts "
            "them in a mirror, which `rlfocal datasets mirror DIR` creates."
        )
    return parts, notes


def _read_committed(
    location: str | Path | None, gpu: GPU
) -> tuple[dict[PartitionKey, PartitionRecord], dict[PartitionKey, float]]:
    """The committed partitions, and the GPU-hours of those that this kind of GPU ran. Both are empty if there
    is no warehouse, which is not created."""
    place = locate(location)
    if not place.is_postgres and not may_exist(place):
        return {}, {}
    with open_warehouse(place, read_only=True) as warehouse:
        rows = warehouse.rows(
            "SELECT model, benchmark, task, settings->>'device_product', "
            "seconds * coalesce((settings->>'tensor_parallel')::INTEGER, 1) / 3600 FROM extractions "
            "WHERE settings->>'device_product' IS NOT NULL AND seconds IS NOT NULL"
        )
        taken = {PartitionKey(*key): hours for *key, product, hours in rows if gpu_of(product) == gpu}
        return warehouse.committed_partitions(), taken


def _find_missing(
    model: ModelSpec,
    parts: Sequence[_PlanPart],
    backend: str,
    records: Mapping[PartitionKey, PartitionRecord],
) -> tuple[list[_PlanPart], list[str]]:
    """The parts that the model lacks, and notes: on partitions that will be replaced or refused, and on those
    that cannot be compared without a network or documents."""
    mine = {key for key in records if key.model == model.model}
    if not mine:
        return list(parts), []
    tasks = [part.task for part in parts if part.task is not None]
    [plan] = find_missing([model], tasks, backend, records, local_only=True)
    if plan.reason is not None:
        note = f"{model.model}: counted in full, as its partitions cannot be compared ({plan.reason})."
        return list(parts), [note]
    left = {id(job.task) for job in plan.jobs}
    todo = [part for part in parts if part.task is None or id(part.task) in left]
    unknown = {part.benchmark.name for part in parts if part.task is None}
    is_unsure = not unknown.isdisjoint(key.benchmark for key in mine)
    notes = [f"{model.model}: partitions that only --datasets can compare are counted in full."] * is_unsure
    refused = Counter(failure.reason for failure in plan.refusals)
    notes += [f"{model.model}: {count_noun(n, 'partition')} will fail: {why}." for why, n in refused.items()]
    jobs = {job.key(model.model): job for job in plan.jobs}
    after = {
        key: predict_record(job, plan.model, backend_of(model, backend), records[key])
        for key, job in jobs.items()
        if key in records
    }
    return todo, notes + [f"to be replaced: {each}." for each in explain_replaced(records, after, after)]


def _find_faults(model: ModelSpec, backend: str, gpus: int) -> list[str]:
    """Sentences on why the entry would not run on this machine. For a closed model, a sentence on what its
    price covers."""
    if model.is_closed:
        is_priced = model.price_input is not None and model.price_output is not None
        counted = "$ is what it is paid for every prompt in full and the answers"
        unknown = "its price is not counted: give the entry price_input and price_output"
        return [f"{model.model}: a service runs it on no GPU of yours; {counted if is_priced else unknown}."]
    try:
        check_entry_for(backend, model)
        check_weights_for(backend, model)
        tokenizer_for(backend, model, local_only=True)
    except InputError as error:
        return [f"{error}; it would not run"]
    n = model.tensor_parallel
    return [f"{model.model}: needs {n} GPUs, more than {gpus}; it would not run"] if n > gpus else []


def _find_workload(model: ModelSpec, part: _PlanPart) -> Workload:
    """The workload of a part for a model that may think. Each trace takes its whole budget, and choices are
    scored after it."""
    thinking, work = resolve_thinking(model, part.benchmark.thinking), part.workload
    if (work.prompt_digits or work.answer_digits) and splits_digits(model):
        work = digit_by_digit(work)
    if thinking is None:
        return work
    benchmark, sampling = part.benchmark, part.benchmark.sampling if part.task is None else part.task.sampling
    traces = thinking.traces
    if benchmark.kind == "answers":
        traces = sampling.passes if sampling else benchmark.size.passes if benchmark.size else 1
    return replace(
        work,
        requests=work.documents + traces * work.requests,
        decode_tokens=work.decode_tokens + work.documents * traces * thinking.budget,
    )


def _plan_model(
    model: ModelSpec,
    parts: Sequence[_PlanPart],
    todo: Sequence[_PlanPart],
    gpu: GPU,
    price: float,
    measured_hours: Mapping[PartitionKey, float],
) -> ModelPlan:
    workloads = [_find_workload(model, part) for part in todo]
    partitions = sum(work.partitions for work in workloads)
    planned = hours_of(model, workloads, gpu)
    left = {id(part) for part in todo}
    keys = {
        PartitionKey(model.model, part.task.benchmark, part.task.task): part
        for part in parts
        if part.task is not None and id(part) not in left
    }
    ran = [key for key in keys if key in measured_hours]
    before = hours_of(model, [_find_workload(model, keys[key]) for key in ran], gpu)
    measured, guessed = sum(measured_hours[key] for key in ran), before.prefill + before.decode
    factor = measured / guessed if measured and guessed else 1.0
    hours = Hours(planned.prefill * factor, planned.decode * factor, planned.start)
    weights, here = 0.0 if model.is_closed else weights_gb(model), _find_gb_here(model)
    return ModelPlan(
        model=model.model,
        gpus=0 if model.is_closed else model.tensor_parallel,
        partitions=partitions,
        present=sum(part.workload.partitions for part in parts) - partitions,
        documents=sum(work.documents for work in workloads),
        requests=sum(work.requests for work in workloads),
        prefill_tokens=sum(work.prefill_tokens for work in workloads),
        decode_tokens=sum(work.decode_tokens for work in workloads),
        hours=hours.total,
        prefill_hours=hours.prefill,
        decode_hours=hours.decode,
        start_hours=hours.start,
        dollars=service_dollars(model, workloads) if model.is_closed else hours.total * price,
        weights_gb=weights,
        download_gb=0.0 if here is None or not workloads else max(0.0, weights - here),
        planned_before=guessed,
        measured_before=measured,
    )


def _find_gb_here(model: ModelSpec) -> float | None:
    try:
        return gb_here(model)
    except InputError:  # a plan says so itself
        return None
