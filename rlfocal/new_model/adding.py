"""Adds a model to a pool: checks it, looks at its first answers, extracts it, and says what it brings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rlfocal.base.errors import InputError
from rlfocal.base.request import Progress, with_fields
from rlfocal.evaluation.notes import note_guessing
from rlfocal.extraction.running.events import share_of_tasks
from rlfocal.extraction.running.runner import ExtractionReport, extract_pool
from rlfocal.new_model.copies import count_common_errors, most_like
from rlfocal.new_model.early_stop import FIRST, explain_exclusion, gains
from rlfocal.new_model.entry import check_entry
from rlfocal.new_model.figures import Price, superfluous
from rlfocal.new_model.page import Newcomer
from rlfocal.new_model.paired_answers import read_paired_answers
from rlfocal.new_model.request import AddModelRequest
from rlfocal.new_model.smoke import find_faults
from rlfocal.new_model.standing import compare_with_pool, note_evidence, price_of, train_both
from rlfocal.pool import add_to_pool, find_pool, is_shipped, load_entry, load_pool
from rlfocal.pool.files import find_packaged
from rlfocal.pool.specs import ModelSpec, PoolSpec
from warehouse import Warehouse, check_location, open_warehouse


@dataclass(frozen=True)
class _Extracted:
    """What extraction did, and why it ended early."""

    extracted: int
    report: ExtractionReport
    """The last round's."""
    stopped: str | None


@with_fields(AddModelRequest)
def add_model(request: AddModelRequest) -> Newcomer:
    """Adds an entry's model to a pool, extracts it on the pool's benchmarks, and says what it brings.

    Called again, it continues where it stopped. `on_progress` is told what is running and its finished share,
    `say` what was changed. Raises InputError, with nothing changed, for a wrong entry, for a model that
    cannot answer, and, unless `force`, for one whose first answers are implausible.
    """
    return run_add_model(request)


def run_add_model(request: AddModelRequest) -> Newcomer:
    """As `add_model` does, for a request."""
    pool, limit, say = request.pool, request.limit, request.say
    spec, known = load_entry(Path(request.entry)), load_pool(pool)
    check_location(request.warehouse)
    engine = request.backend or known.backend
    was_there = spec in known.models
    faults: tuple[str, ...] = ()
    if not was_there:
        if spec.model in {m.model for m in known.models}:
            raise InputError(
                f"pool {pool!r} already has a model {spec.model!r}, with other settings; "
                f"give {request.entry} another name"
            )
        faults = _admitted(check_entry(spec, engine), known, engine, request)
    file = find_pool(pool) if was_there else add_to_pool(pool, spec, Path(request.entry))
    is_copy = not is_shipped(file) and (find_packaged("pools") / file.name).is_file()
    if say is not None:
        say(_said(spec.model, pool, file, was_there=was_there, is_copy=is_copy))
    alone = known.model_copy(update={"models": (spec,)})
    if (
        limit is None
        and (limit := _limit_of_others(request.warehouse, known, spec.model)) is not None
        and say is not None
    ):
        say(f"the other models answered {limit:,} documents of each task, so {spec.model} answers as many")
    done = _extract(replace(request, limit=limit), alone, known, engine)
    page = Newcomer(
        model=spec.model,
        hf_repo=spec.hf_repo or str(spec.served),
        revision="" if spec.is_closed else spec.revision,
        pool=known.name,
        file=file,
        is_copy_of_shipped=is_copy,
        was_there=was_there,
        price=_price(request.warehouse, spec),
        standings=(),
        likeness=None,
        superfluous=None,
        extracted=done.extracted,
        present=done.report.n_skipped,
        missing=tuple(done.report.missing),
        stopped=done.stopped,
        notes=(),
        faults=faults,
    )
    with open_warehouse(request.warehouse) as opened:
        return _with_figures(page, opened, known, request.seeds, request.on_progress)


def _said(model: str, pool: str, file: Path, *, was_there: bool, is_copy: bool) -> str:
    done = f"{model} is already in {file}" if was_there else f"added {model} to {file}"
    return f"{done}, your own copy, which `--pool {Path(pool).stem}` means from now on" if is_copy else done


def _admitted(spec: ModelSpec, pool: PoolSpec, backend: str, request: AddModelRequest) -> tuple[str, ...]:
    """What is implausible about a model that is added anyway. Raises InputError if it is not added."""
    report = None
    if (shown := request.on_progress) is not None:
        report = share_of_tasks(lambda _, share: shown(f"try {spec.model}", share), 2)
    faults = [str(fault) for fault in find_faults(spec, pool, backend, request.datasets, report)]
    if faults and not request.force:
        raise InputError(
            f"{spec.model} was not added, and nothing has changed. {' '.join(faults)} --force adds it anyway."
        )
    return tuple(faults)


def _extract(request: AddModelRequest, alone: PoolSpec, pool: PoolSpec, backend: str) -> _Extracted:
    """Everything, or more and more documents of each task until it is clear that no best pool includes it."""
    location, limit, on_progress = request.warehouse, request.limit, request.on_progress
    n_tasks = sum(len(benchmark.tasks) for benchmark in alone.benchmarks)
    on_event = None if on_progress is None else share_of_tasks(on_progress, n_tasks)

    def extract(first: int | None) -> ExtractionReport:
        return extract_pool(
            location, alone, backend=backend, limit=first, datasets=request.datasets, on_progress=on_event
        )

    extracted, first = 0, FIRST
    while request.until_clear and (limit is None or first < limit):
        report = extract(first)
        extracted += len(report.committed)
        whole = _whole(location, alone.models[0].model)
        if report.missing or max((n for tasks in whole.values() for n in tasks.values()), default=0) <= first:
            return _Extracted(extracted, report, None)
        if (why := _ruled_out(location, alone, pool, whole)) is not None:
            return _Extracted(extracted, report, f"after {first:,} documents of each task, {why}")
        first *= 2
    report = extract(limit)
    return _Extracted(extracted + len(report.committed), report, None)


def _limit_of_others(location: str | Path | None, pool: PoolSpec, model: str) -> int | None:
    """The limit that the pool's other models were extracted with; None if they were not, or not all.

    More documents than theirs would make each of their partitions incomplete.
    """
    with open_warehouse(location) as warehouse:
        sizes = warehouse.rows(
            "SELECT n_docs, coalesce(n_whole, n_docs) FROM extractions "
            "WHERE list_contains(?, model) AND list_contains(?, benchmark)",
            [_others(pool, model), [benchmark.name for benchmark in pool.benchmarks]],
        )
    limit = max((n for n, n_whole in sizes if n < n_whole), default=None)
    is_one = limit is not None and all(n == min(limit, n_whole) for n, n_whole in sizes)
    return limit if is_one else None


def _whole(location: str | Path | None, model: str) -> dict[str, dict[str, int]]:
    """How many documents each task has without a limit, by benchmark."""
    whole: dict[str, dict[str, int]] = {}
    with open_warehouse(location, read_only=True) as warehouse:
        for benchmark, task, n in warehouse.rows(
            "SELECT benchmark, task, coalesce(n_whole, n_docs) FROM extractions WHERE model = ?", [model]
        ):
            whole.setdefault(benchmark, {})[task] = n
    return whole


def _ruled_out(
    location: str | Path | None, alone: PoolSpec, pool: PoolSpec, whole: dict[str, dict[str, int]]
) -> str | None:
    model, others = alone.models[0].model, _others(pool, alone.models[0].model)
    with open_warehouse(location, read_only=True) as warehouse:
        said = [
            read_paired_answers(warehouse, benchmark.name, model, others) for benchmark in pool.benchmarks
        ]
    by_benchmark = [gains(one, whole[one.benchmark]) for one in said if one is not None]
    if not all(by_benchmark):  # nothing to compare with on one of them
        return None
    return explain_exclusion([gain for found in by_benchmark for gain in found])


def _with_figures(
    page: Newcomer, warehouse: Warehouse, pool: PoolSpec, seeds: int, on_progress: Progress | None
) -> Newcomer:
    others, notes = _others(pool, page.model), list(page.notes)
    names: Sequence[str] = [benchmark.name for benchmark in pool.benchmarks]
    seen = []
    for name in names:
        one = compare_with_pool(warehouse, name, page.model, others)
        if one is None:
            continue
        if one.standing.left_out:
            notes.append(
                f"{name}: no pool includes {', '.join(one.standing.left_out)}, which did not answer all "
                f"documents that {page.model} did."
            )
        if (guessing := note_guessing(warehouse, name, [page.model, *others])) is not None:
            notes.append(guessing)
        if (scored := note_evidence(warehouse, name, page.model)) is not None:
            notes.append(scored)
        if seeds:
            agents, note = train_both(warehouse, name, page.model, others, seeds, on_progress)
            one = replace(one, standing=replace(one.standing, agents=agents))
            notes += [note] if note else []
        seen.append(one)
    return replace(
        page,
        standings=tuple(one.standing for one in seen),
        likeness=most_like(page.model, count_common_errors([one.said for one in seen])),
        superfluous=superfluous(
            page.model,
            [one.losses for one in seen if one.losses is not None],
            [one.standing.pairs for one in seen],
        ),
        notes=tuple(notes),
    )


def _others(pool: PoolSpec, model: str) -> list[str]:
    return [other.model for other in pool.models if other.model != model]


def _price(location: str | Path | None, spec: ModelSpec) -> Price:
    with open_warehouse(location, read_only=True) as warehouse:
        return price_of(warehouse, spec)
