"""A new model, in one form: tried, added to its pool, extracted, compared."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from prefect import flow
from prefect.artifacts import create_markdown_artifact
from prefect.client.schemas.objects import State

from flows.ending import ended
from flows.parameters import Count, Name
from rlfocal.errors import InputError, RunError
from rlfocal.jobs.runner import extract_pool
from rlfocal.pool import ModelSpec, PoolSpec, add_to_pool, load_entry, load_pool
from rlfocal.pool.specs import Backend
from rlfocal.report.newcomer import Newcomer, newcomer
from rlfocal.wording import counted
from warehouse import check_location, open_warehouse

HEADER = "| benchmark | documents | acc % | rank | fails most like |\n|---|---:|---:|---:|---|"


@flow(name="add-model", flow_run_name="add {entry.model} to {pool}", persist_result=False)
def add_model(
    entry: ModelSpec,
    pool: Name,
    warehouse: Name | None = None,
    backend: Backend | None = None,
    limit: Count | None = None,
    datasets: Name | None = None,
) -> list[Newcomer] | State[list[Newcomer]]:
    """Check a model's entry, try it, add it to a pool, and run the pool's benchmarks on it.

    A wrong entry, or a model that cannot answer one document, changes nothing.

    Args:
        entry: The model, as a pool file describes it: its name, where it is (hf_repo), its size (params_b).
        pool: The YAML file of the pool on the worker that the entry is added to.
        warehouse: A directory that every worker reaches, or the URI of a Postgres catalogue without its
            password. Default: RLFOCAL_WAREHOUSE of the worker, else .rlfocal/warehouse in its checkout.
        backend: The engine. Default: the pool's.
        limit: Only the first documents of each task, this many. Default: all.
        datasets: A mirror of the data sets on the worker, as `rlfocal datasets mirror` makes it. Default: the
            hub.
    """

    def work() -> list[Newcomer]:
        with TemporaryDirectory() as folder:
            file = Path(folder) / f"{entry.model}.yaml"
            file.write_text(json.dumps(entry.model_dump(exclude_unset=True)))  # JSON is YAML
            found = _add(pool, file, warehouse=warehouse, backend=backend, limit=limit, datasets=datasets)
        create_markdown_artifact(key="add-model", markdown=_page(entry.model, found))
        return found

    return ended(warehouse, work)


def _add(
    pool: str,
    entry: Path,
    *,
    warehouse: str | None,
    backend: str | None,
    limit: int | None,
    datasets: str | None,
) -> list[Newcomer]:
    """What the command `rlfocal add-model` does. Raises InputError or RunError where it does not succeed."""
    spec, known = load_entry(entry), load_pool(pool)
    check_location(warehouse)
    alone = known.model_copy(update={"models": (spec,)})
    if spec not in known.models:  # else an earlier run was interrupted: extract what is missing
        if spec.model in {model.model for model in known.models}:
            raise InputError(
                f"pool {pool!r} already has a model {spec.model!r}, with other settings; give it another name"
            )
        _try(alone, backend, datasets)
        add_to_pool(pool, spec, entry)
    made = extract_pool(warehouse, alone, backend=backend, limit=limit, datasets=datasets, jobs=1)
    if made.missing:
        n = counted(len(made.missing), "partition")
        raise RunError(f"{n} of {spec.model} missing: {made.missing[0].reason}; run this again")
    with open_warehouse(warehouse, read_only=True) as opened:
        return newcomer(opened, spec.model)


def _try(alone: PoolSpec, backend: str | None, datasets: str | None) -> None:
    """Lets the pool's one model answer one document, in a warehouse that is thrown away."""
    first = alone.choose(benchmarks=[alone.benchmarks[0].name])
    with TemporaryDirectory() as folder:
        tried = extract_pool(Path(folder) / "try", first, backend=backend, limit=1, datasets=datasets, jobs=1)
    if tried.missing:
        name = alone.models[0].model
        raise InputError(f"{name} cannot answer: {tried.missing[0].reason}; the pool is unchanged")


def _page(model: str, standings: list[Newcomer]) -> str:
    """Its accuracy, its rank, and the model that fails most like it, by benchmark, in Markdown."""
    lines = [f"# {model}", "", HEADER]
    for s in standings:
        pairs = {name: value for name, value in s.focal_diversity.items() if value is not None}
        nearest = min(pairs, key=lambda name: pairs[name]) if pairs else None
        like = "–" if nearest is None else f"{nearest} (focal diversity {pairs[nearest]:.3f})"
        accuracy, rank = f"{100 * s.accuracy:.1f}", f"{s.rank} of {s.n_models}"
        lines.append(f"| {s.benchmark} | {s.n:,} | {accuracy} | {rank} | {like} |")
    return "\n".join(lines)
