"""Commands that run a pool: regenerate, extract, add-model."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows import quieten
from rlfocal.agents import RL_FOCAL
from rlfocal.cli.support import completion
from rlfocal.cli.support.commands import command
from rlfocal.cli.support.extraction import extraction_bars, print_extracted, print_extraction, print_failures
from rlfocal.cli.support.options import (
    REPORT,
    Backend,
    Benchmarks,
    Datasets,
    EngineJobs,
    Json,
    Limit,
    Location,
    Models,
    Output,
    Pool,
    ReplaceDocuments,
    Seeds,
    names,
    print_json,
)
from rlfocal.cli.support.progress import IN_ALL, progress_bars, with_total
from rlfocal.errors import InputError
from rlfocal.wording import counted

if TYPE_CHECKING:
    from rlfocal.pool import PoolSpec


@command("regenerate", "Run a pool of LLMs")
def regenerate(
    pool: Pool,
    models: Models = None,
    benchmarks: Benchmarks = None,
    backend: Backend = None,
    limit: Limit = None,
    datasets: Datasets = None,
    jobs: EngineJobs = None,
    seeds: Seeds = 3,
    output: Output = REPORT,
    warehouse: Location = None,
    as_json: Json = False,
) -> None:
    """The main job: extract what is missing, train, evaluate, report.

    Runs the Prefect flow of flows/regenerate.py here and now; a server named by PREFECT_API_URL records it.
    If a model fails, the others are still evaluated and reported; the exit code is then 1.
    """
    from rlfocal.pool import load_pool

    chosen = load_pool(pool).choose(names(models), names(benchmarks, "--benchmarks"))
    sizes = [(len(chosen.models), "model"), (len(chosen.benchmarks), "benchmark")]
    typer.echo(f"pool {chosen.name}: {', '.join(counted(*size) for size in sizes)}", err=True)
    quieten()
    from flows.idle import find_done
    from rlfocal.drift import sentences
    from rlfocal.report import leaderboard, print_table
    from warehouse import open_warehouse

    asked: dict[str, Any] = {
        "pool": pool,
        "warehouse": warehouse,
        "benchmarks": names(benchmarks, "--benchmarks"),
        "models": names(models),
        "limit": limit,
        "datasets": None if datasets is None else str(datasets),
        "backend": backend,
        "seeds": seeds,
        "report": str(output),
    }
    with progress_bars() as on_progress:
        summary = find_done(**asked, on_progress=on_progress)
        if summary is None:
            from flows.regenerate import run

            summary = run(with_total(on_progress, _weights(chosen)), **asked, jobs=jobs)
            on_progress(IN_ALL, 1.0)
    if as_json:
        print_json(summary)
    else:
        with open_warehouse(warehouse, read_only=True) as opened:
            print_table(leaderboard(opened, runs={row.run_id for row in summary.evaluations}))
        print_extracted(summary.extracted, summary.present)
        typer.echo(f"report: {summary.report}")
        if summary.drift and summary.drift.beyond:
            typer.echo("\n".join(sentences(summary.drift)))
    if summary.gaps:
        print_failures(summary.gaps, "step")
        raise typer.Exit(1)


def _weights(pool: PoolSpec) -> dict[str, float]:
    """Roughly how long each part of a regeneration takes, in units of a tiny model's task."""
    # So that it fits the embedded pool and, by its plan, the paper's: training is as long whatever the model.
    models = {f"extract {m.model}": 1 + 2 * (m.active_params_b or m.params_b) for m in pool.models}
    tasks = {b.name: len(b.tasks) for b in pool.benchmarks}
    extracting = {title: sum(tasks.values()) * weight for title, weight in models.items()}
    training = {f"{name} {method}": 4.0 * n for name, n in tasks.items() for method in RL_FOCAL[:2]}
    return extracting | training


@command("extract", "Run a pool of LLMs")
def extract(
    pool: Pool,
    models: Models = None,
    benchmarks: Benchmarks = None,
    backend: Backend = None,
    limit: Limit = None,
    datasets: Datasets = None,
    jobs: EngineJobs = None,
    replace_documents: ReplaceDocuments = False,
    warehouse: Location = None,
    as_json: Json = False,
) -> None:
    """Run every benchmark on every model of a pool, and commit the answers. A second run extracts nothing.

    One process a model; a partition (model, task) is committed whole or not at all, and a killed run
    continues where it stopped. A model that fails affects only its own partitions (exit code 1).
    """
    from rlfocal.jobs.runner import extract_pool
    from rlfocal.pool import load_pool

    chosen = load_pool(pool).choose(names(models), names(benchmarks, "--benchmarks"))
    with extraction_bars(chosen) as on_progress:
        report = extract_pool(
            warehouse,
            chosen,
            backend=backend,
            limit=limit,
            datasets=datasets,
            jobs=jobs,
            replace_documents=replace_documents,
            on_progress=on_progress,
        )
    if as_json:
        print_json({"extracted": report.committed, "skipped": report.n_skipped, "missing": report.missing})
    else:
        print_extraction(report)
    if report.missing:
        raise typer.Exit(1)


@command("add-model", "Run a pool of LLMs")
def add_model(
    pool: Annotated[
        str, typer.Argument(help="The pool's name or its YAML file.", autocompletion=completion.pools)
    ],
    entry: Annotated[
        Path, typer.Argument(help="YAML with model, hf_repo, params_b and the other keys of a pool entry.")
    ],
    backend: Backend = None,
    limit: Limit = None,
    datasets: Datasets = None,
    warehouse: Location = None,
    as_json: Json = False,
) -> None:
    """Check an entry, try the model, add it to the pool, and run the pool's benchmarks on it.

    Prints its accuracy and its diversity to the others. A wrong entry, or a model that cannot answer
    one document, changes nothing.
    """
    from rlfocal.jobs.runner import extract_pool
    from rlfocal.pool import add_to_pool, find_pool, load_entry, load_pool
    from rlfocal.report import newcomer, print_newcomer
    from warehouse import check_location, open_warehouse

    spec = load_entry(entry)
    known = load_pool(pool)
    check_location(warehouse)
    alone = known.model_copy(update={"models": (spec,)})
    if spec in known.models:  # an earlier call was interrupted: extract what is missing
        file = find_pool(pool)
        typer.echo(f"{spec.model} is already in {file}", err=True)
    else:
        if spec.model in {m.model for m in known.models}:
            raise InputError(
                f"pool {pool!r} already has a model {spec.model!r}, with other settings; "
                f"give {entry} another name"
            )
        _try(alone, backend, datasets)
        file = add_to_pool(pool, spec, entry)
        typer.echo(f"added {spec.model} to {file}", err=True)
    with extraction_bars(alone) as on_progress:
        report = extract_pool(
            warehouse, alone, backend=backend, limit=limit, datasets=datasets, jobs=1, on_progress=on_progress
        )
    with open_warehouse(warehouse, read_only=True) as opened:
        seen = newcomer(opened, spec.model)
    if as_json:
        print_json({"pool": file, "missing": report.missing, "benchmarks": seen})
    else:
        print_extraction(report)
        print_newcomer(seen)
    if report.missing:
        raise typer.Exit(1)


def _try(alone: PoolSpec, backend: str | None, datasets: Path | None) -> None:
    """Let the pool's one model answer one document, in a warehouse that is thrown away."""
    from rlfocal.jobs.runner import extract_pool

    name = alone.models[0].model
    typer.echo(f"trying {name} on one document ...", err=True)
    first = alone.choose(benchmarks=[alone.benchmarks[0].name])
    with TemporaryDirectory() as folder:
        tried = extract_pool(Path(folder) / "try", first, backend=backend, limit=1, datasets=datasets, jobs=1)
    if tried.missing:
        raise InputError(f"{name} cannot answer: {tried.missing[0].reason}; the pool is unchanged")
