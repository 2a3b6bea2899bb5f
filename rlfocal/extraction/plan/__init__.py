"""The plan of a pool: which partitions are missing, and what extracting them would take. Writes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from pathlib import Path

from rlfocal.base.errors import InputError
from rlfocal.base.failures import plain
from rlfocal.extraction.engines import backend_of, check_backend, check_entry_for, check_weights_for
from rlfocal.extraction.plan.estimate import (
    GPU,
    Cost,
    Workload,
    assumptions,
    cost,
    mean_answer,
    of_documents,
    of_size,
    service_dollars,
    too_large,
)
from rlfocal.extraction.running.missing import find_missing
from rlfocal.extraction.tasks import TaskDocuments, load_each, mirror_folder
from rlfocal.pool.specs import Benchmark, ModelSpec, PoolSpec, resolve_thinking
from warehouse import open_warehouse
from warehouse.locations import exists, locate
from warehouse.store import Committed, PartitionKey

GPUS_OF_A_BOX = 8


@dataclass(frozen=True)
class Part:
    """A benchmark, or one task of it, with its workload."""

    benchmark: Benchmark
    task: TaskDocuments | None
    """None if the documents are not available locally; the workload is then from the benchmark's `size`."""
    workload: Workload


@dataclass(frozen=True)
class ModelPlan:
    """What one model would run."""

    model: str
    gpus: int
    partitions: int
    present: int
    """Partitions that are committed already, with the same fingerprint."""
    documents: int
    requests: int
    prefill_tokens: float
    decode_tokens: float
    cost: Cost
    hours: float
    dollars: float


@dataclass(frozen=True)
class Plan:
    """What a pool would run, and the assumptions behind it."""

    pool: str
    gpu: str
    benchmarks: tuple[Workload, ...]
    """Work of one model that has no partitions."""
    models: tuple[ModelPlan, ...]
    gpus: int
    clock_hours: float
    """What no order of the models on these GPUs can beat: the longest model, or all work on all of them."""
    assumptions: tuple[str, ...]
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
    """What `extract` would do for a pool, without a network: documents are counted if available locally.

    `gpus` is how many the machine has; `dollars` is the price of a GPU-hour. Raises InputError for a
    benchmark without documents and `size`.
    """
    backend = backend or pool.backend
    check_backend(backend)
    price = gpu.dollars if dollars is None else dollars
    parts, notes = _parts(pool.benchmarks, limit, datasets)
    committed = _read_committed(location)
    models = []
    running: list[ModelPlan] = []
    for model in pool.models:
        todo, unsure = _missing(model, parts, backend, committed)
        models.append(_model_plan(model, parts, todo, gpu, price))
        notes += [warning] if (warning := too_large(model, gpu)) and todo else []
        notes += [unsure] if unsure else []
        if todo and model.is_closed:
            notes.append(_paid(model))
        elif todo and (fault := _fault(model, backend_of(model, backend))):
            notes.append(f"{fault}; it would not run")
        elif todo and model.tensor_parallel > gpus:
            notes.append(
                f"{model.model}: needs {model.tensor_parallel} GPUs, more than {gpus}; it would not run"
            )
        elif todo:
            running.append(models[-1])
    by_benchmark = [
        reduce(add, [p.workload for p in parts if p.benchmark.name == b.name]) for b in pool.benchmarks
    ]
    return Plan(
        pool.name,
        gpu.name,
        tuple(by_benchmark),
        tuple(models),
        gpus,
        _clock_hours(running, gpus),
        tuple(assumptions(gpu, price)),
        tuple(notes),
    )


def _parts(
    benchmarks: Sequence[Benchmark], limit: int | None, datasets: str | Path | None
) -> tuple[list[Part], list[str]]:
    """Tasks whose documents are available locally, other benchmarks by their size; and notes on these."""
    parts: list[Part] = []
    notes: list[str] = []
    uncounted: list[str] = []
    mirror = mirror_folder(datasets)
    local = [b for b in benchmarks if mirror is not None or b.size is None]
    loaded = {b.name: tasks for b, tasks in load_each(local, limit, mirror)}
    for benchmark in benchmarks:
        tasks = loaded.get(benchmark.name)
        if isinstance(tasks, list):
            length = mean_answer(benchmark)
            parts += [Part(benchmark, task, of_documents(task, length)) for task in tasks]
            if benchmark.kind == "answers" and length is None:
                notes.append(f"{benchmark.name}: every answer is assumed to reach its token limit.")
        elif isinstance(tasks, Exception) and benchmark.size is None:
            raise tasks
        else:
            parts.append(Part(benchmark, None, of_size(benchmark, limit)))
            uncounted.append(benchmark.name)
            if isinstance(tasks, Exception) and mirror is not None:
                notes.append(f"{benchmark.name} could not be counted: {plain(tasks)}.")
    if uncounted:
        notes.append(
            f"{', '.join(uncounted)}: documents and tokens are from the stated sizes; --datasets DIR counts "
            "them in a mirror, which `rlfocal datasets mirror DIR` creates."
        )
    return parts, notes


def _read_committed(location: str | Path | None) -> dict[PartitionKey, Committed]:
    """The committed partitions; none if there is no warehouse, which is not created."""
    place = locate(location)
    if not place.is_postgres and not exists(place):
        return {}
    with open_warehouse(place, read_only=True) as warehouse:
        return warehouse.committed()


def _missing(
    model: ModelSpec, parts: Sequence[Part], backend: str, committed: Mapping[PartitionKey, Committed]
) -> tuple[list[Part], str | None]:
    """The parts that the model lacks, and a note on what is unknown without a network or documents."""
    mine = {key for key in committed if key.model == model.model}
    if not mine:
        return list(parts), None
    tasks = [part.task for part in parts if part.task is not None]
    [found] = find_missing([model], tasks, backend, committed, local_only=True)
    if found.reason is not None:
        note = f"{model.model}: counted in full, as its partitions cannot be compared ({found.reason})."
        return list(parts), note
    left = {id(job.task) for job in found.jobs}
    todo = [part for part in parts if part.task is None or id(part.task) in left]
    is_unsure = {part.benchmark.name for part in parts if part.task is None} & {key.benchmark for key in mine}
    note = f"{model.model}: partitions that only --datasets can compare are counted in full."
    return todo, note if is_unsure else None


def _fault(model: ModelSpec, backend: str) -> str | None:
    """Why the backend cannot run the entry, as far as that shows here; None: nothing is wrong."""
    try:
        check_entry_for(backend, model)
        check_weights_for(backend, model)
    except InputError as error:
        return str(error)
    return None


def _paid(model: ModelSpec) -> str:
    """What a plan counts of a model that only a service runs."""
    if model.price_input is None or model.price_output is None:
        counted = "its price is not counted: give the entry price_input and price_output"
    else:
        counted = "$ is what it is paid for every prompt in full and the answers"
    return f"{model.model}: a service runs it on no GPU of yours; {counted}."


def _clock_hours(models: Sequence[ModelPlan], gpus: int) -> float:
    longest = max((model.hours / model.gpus for model in models), default=0.0)
    return max(longest, sum(model.hours for model in models) / gpus)


def _workload_of(model: ModelSpec, part: Part) -> Workload:
    """A part's workload for a model, which may think before it answers."""
    thinking = resolve_thinking(model, part.benchmark.thinking)
    if thinking is None:
        return part.workload
    benchmark, sampling = part.benchmark, part.benchmark.sampling if part.task is None else part.task.sampling
    traces = thinking.traces
    if benchmark.kind == "answers":
        traces = sampling.passes if sampling else benchmark.size.passes if benchmark.size else 1
    return part.workload.with_thinking(traces, thinking.budget)


def _model_plan(model: ModelSpec, parts: list[Part], todo: list[Part], gpu: GPU, price: float) -> ModelPlan:
    workloads = [_workload_of(model, part) for part in todo]
    spent = cost(model, workloads, gpu)
    partitions = sum(w.partitions for w in workloads)
    return ModelPlan(
        model=model.model,
        gpus=0 if model.is_closed else model.tensor_parallel,
        partitions=partitions,
        present=sum(p.workload.partitions for p in parts) - partitions,
        documents=sum(w.documents for w in workloads),
        requests=sum(w.requests for w in workloads),
        prefill_tokens=sum(w.prefill_tokens for w in workloads),
        decode_tokens=sum(w.decode_tokens for w in workloads),
        cost=spent,
        hours=spent.hours,
        dollars=service_dollars(model, workloads) or 0.0 if model.is_closed else spent.hours * price,
    )
