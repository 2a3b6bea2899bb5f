"""Adds a model to a pool, or removes it: its entry in the pool's file, and its answers in the warehouse."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rlfocal.base import options
from rlfocal.base.errors import InputError, unknown_name
from rlfocal.base.request import Progress, checked
from rlfocal.base.wording import count_noun
from rlfocal.extraction.running.events import share_of_tasks
from rlfocal.extraction.running.runner import extract
from rlfocal.new_model.model_record import (
    PoolComparison,
    compare_with_pool,
    count_common_errors,
    limit_of_others,
    most_like,
    price_of,
)
from rlfocal.new_model.page import Newcomer
from rlfocal.new_model.trial import check_entry, find_faults
from rlfocal.pool import add_to_pool, find_pool, is_shipped, load_entry, load_pool, remove_from_pool
from rlfocal.pool.files import find_packaged
from rlfocal.pool.hub import mixes_experts, read_config
from rlfocal.pool.specs import ModelSpec, PoolSpec
from warehouse import check_location, open_warehouse
from warehouse.connecting import MissingWarehouseError
from warehouse.corrections import Removal, is_known, remove_from_benchmarks


@checked
def add_model(
    pool: str,
    entry: str | Path,
    *,
    warehouse: str | Path | None = None,
    backend: options.Backend = None,
    limit: options.LimitOfOthers = None,
    datasets: options.Datasets | Path = None,
    force: options.EvenIfImplausible = False,
    on_progress: Progress | None = None,
    say: Callable[[str], None] = lambda sentence: None,
) -> Newcomer:
    """Adds an entry's model to a pool, extracts its answers to the pool's benchmarks, and estimates what it
    is worth.

    `rlfocal add-model --help` describes the parameters. If it is interrupted, another call continues.
    `on_progress` is called with the running step and its finished share, `say` with each sentence on what was
    changed. Raises InputError, with nothing changed, for a wrong entry and for a model that cannot answer.
    Unless `force` is set, it also does so for a model whose first answers are implausible.
    """
    spec, pool_spec = load_entry(Path(entry)), load_pool(pool)
    check_location(warehouse)
    engine = backend or pool_spec.backend
    others = [other.model for other in pool_spec.models if other.model != spec.model]
    was_there = spec in pool_spec.models
    faults: tuple[str, ...] = ()
    if not was_there:
        if spec.model in {m.model for m in pool_spec.models}:
            raise InputError(
                f"pool {pool!r} already has a model {spec.model!r}, with other settings; "
                f"give {entry} another name"
            )
        faults = tuple(_try_model(check_entry(spec, engine), pool_spec, engine, datasets, on_progress))
        if faults and not force:
            why = " ".join(faults)
            raise InputError(
                f"{spec.model} was not added, and nothing has changed. {why} --force adds it anyway."
            )
    file = find_pool(pool) if was_there else add_to_pool(pool, spec, Path(entry))
    is_copy = not is_shipped(file) and (find_packaged("pools") / file.name).is_file()
    done = f"{spec.model} is already in {file}" if was_there else f"added {spec.model} to {file}"
    own = f", your own copy, which `--pool {Path(pool).stem}` means from now on" if is_copy else ""
    say(done + own)
    if limit is None:
        with open_warehouse(warehouse) as opened:
            limit = limit_of_others(opened, pool_spec, others)
        if limit is not None:
            say(
                f"the other models answered {limit:,} documents of each task, so {spec.model} answers as many"
            )
    alone = pool_spec.model_copy(update={"models": (spec,)})
    report = extract(
        alone,
        warehouse,
        backend=engine,
        limit=limit,
        datasets=datasets,
        on_progress=on_progress and share_of_tasks(on_progress, alone.count_tasks),
    )
    with open_warehouse(warehouse) as opened:
        price = price_of(opened, spec)
        compared: list[PoolComparison] = []
        for number, benchmark in enumerate(pool_spec.benchmarks):
            if on_progress is not None:
                on_progress(f"compare on {benchmark.name}", number / len(pool_spec.benchmarks))
            if (comparison := compare_with_pool(opened, benchmark.name, spec.model, others)) is not None:
                compared.append(comparison)
    return Newcomer(
        model=spec.model,
        hf_repo=spec.hf_repo or str(spec.served),
        revision="" if spec.is_closed else spec.revision,
        pool=pool_spec.name,
        file=file,
        is_copy_of_shipped=is_copy,
        was_there=was_there,
        price=price,
        records=tuple(comparison.record for comparison in compared),
        error_correlation=most_like(
            spec.model,
            count_common_errors([comparison.answers for comparison in compared if comparison.answers]),
        ),
        extracted=len(report.committed),
        present=report.n_skipped,
        missing=tuple(report.missing),
        notes=(*_note_experts(spec), *(note for comparison in compared for note in comparison.notes)),
        faults=faults,
    )


def _note_experts(spec: ModelSpec) -> tuple[str, ...]:
    """A note that the log-probs of a mixture of experts depend on the batch; empty for other models."""
    if not mixes_experts(read_config(spec)):
        return ()
    return (
        "It mixes experts: on GPUs, the last bits of vLLM's log-probabilities depend on the batch, even with "
        "VLLM_BATCH_INVARIANT=1 (vllm#57016).",
    )


def _try_model(
    spec: ModelSpec,
    pool: PoolSpec,
    backend: str,
    datasets: str | Path | None,
    on_progress: Progress | None,
) -> list[str]:
    """Sentences on what is implausible about a model's first answers."""
    report = None
    if on_progress is not None:
        report = share_of_tasks(lambda _, share: on_progress(f"try {spec.model}", share), lambda _: 2)
    return find_faults(spec, pool, backend, datasets, report)


@dataclass(frozen=True)
class ModelRemoval:
    """The outcome of removing a model from a pool."""

    model: str
    file: Path | None
    """The pool's file that lost the model; None if no file had it any more."""
    is_deleted: bool
    """Whether the pool's file was deleted, because the pool is again as it ships with rlfocal."""
    partitions: int
    runs: int
    """The number of deleted evaluations whose pools included the model."""
    snapshot: int | None
    """The number of the warehouse's newest snapshot; None if there is none."""

    @property
    def is_nothing(self) -> bool:
        """Whether the model had been removed already."""
        return self.file is None and not self.partitions and not self.runs

    def __str__(self) -> str:
        if self.is_nothing:
            return f"nothing to do: {self.model} is already removed"
        done = []
        if self.file is not None:
            gone = "is deleted: the pool is again as it ships" if self.is_deleted else "is as before"
            done.append(f"{self.model} is out of {self.file}, which {gone}")
        if self.partitions or self.runs:
            taken = f"{count_noun(self.partitions, 'partition')} and {count_noun(self.runs, 'run')}"
            done.append(f"{taken} removed from the warehouse")
        return "; ".join(done)


def remove_model(
    pool: str, model: str, *, warehouse: str | None = None, keep_answers: bool = False
) -> ModelRemoval:
    """Undoes `add_model`. If it is interrupted, another call does the rest.

    The pool's file is restored byte for byte. The user's copy of a pool that ships with rlfocal is deleted
    once it equals the original. Unless `keep_answers` is set, one transaction deletes the model's answers to
    the pool's benchmarks, and evaluations of pools with the model. Earlier snapshots keep them. Raises
    InputError for a model that is unknown to both the pool and the warehouse. It also raises InputError, with
    nothing changed, if the warehouse or the file is not writable.
    """
    pool_spec = load_pool(pool)
    benchmarks = [benchmark.name for benchmark in pool_spec.benchmarks]
    gone, snapshot = Removal(0, 0, was_known=False), None
    try:
        with open_warehouse(warehouse, create=False, read_only=keep_answers) as opened:
            if keep_answers:
                gone = gone._replace(was_known=is_known(opened, model))
                file = remove_from_pool(pool, model)
            else:
                # The file before the commit: a run that starts in between must not extract the model again.
                with remove_from_benchmarks(opened, model, benchmarks) as gone:
                    file = remove_from_pool(pool, model)
            snapshot = opened.snapshot()
    except MissingWarehouseError:  # it was never extracted
        file = remove_from_pool(pool, model)
        if file is None:
            raise
    if file is None and not gone.was_known:
        raise unknown_name("model", model, [m.model for m in pool_spec.models], f"pool {pool_spec.name!r}")
    is_deleted = file is not None and not file.exists()
    return ModelRemoval(model, file, is_deleted, gone.partitions, gone.runs, snapshot)
