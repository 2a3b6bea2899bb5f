"""Commands that run a pool or change it: regenerate, extract, add-model, remove-model."""

from __future__ import annotations

from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows import quieten
from rlfocal.agents import RL_FOCAL
from rlfocal.cli.support import completion
from rlfocal.cli.support.commands import command
from rlfocal.cli.support.extraction import (
    extraction_bars,
    print_extracted,
    print_extraction,
    print_failures,
    print_slower,
)
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
    Unconditional,
    names,
    print_json,
)
from rlfocal.cli.support.progress import IN_ALL, progress_bars, with_total
from rlfocal.errors import InputError
from rlfocal.wording import counted

if TYPE_CHECKING:
    from rlfocal.pool import PoolSpec

PoolArgument = Annotated[
    str, typer.Argument(help="The pool's name or its YAML file.", autocompletion=completion.pools)
]


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
        print_slower(warehouse, [model.model for model in chosen.models])
        if summary.report is not None:
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
    unconditional: Unconditional = False,
    warehouse: Location = None,
    as_json: Json = False,
) -> None:
    """Run every benchmark on every model of a pool, and commit the answers. A second run extracts nothing.

    One process per model; a partition (model, task) is committed whole or not at all, and a killed run
    continues where it stopped. A model that fails affects only its own partitions (exit code 1).
    """
    from rlfocal.jobs.runner import extract_pool
    from rlfocal.pool import load_pool

    chosen = load_pool(pool).choose(names(models), names(benchmarks, "--benchmarks"))
    if unconditional:
        chosen = chosen.with_unconditional()
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
        print_slower(warehouse, [model.model for model in chosen.models])
    if report.missing:
        raise typer.Exit(1)


@command("add-model", "Run a pool of LLMs")
def add_model(
    pool: PoolArgument,
    entry: Annotated[
        Path, typer.Argument(help="YAML with model, hf_repo, params_b and the other keys of a pool entry.")
    ],
    backend: Backend = None,
    limit: Limit = None,
    datasets: Datasets = None,
    seeds: Annotated[
        int, typer.Option(min=1, metavar="K", help="Seeds of RL-Focal, trained with and without the model.")
    ] = 1,
    no_train: Annotated[
        bool, typer.Option("--no-train", help="Do not train RL-Focal with and without the model.")
    ] = False,
    until_clear: Annotated[
        bool,
        typer.Option(
            "--until-clear",
            help="Extract 100, 200, 400, ... documents of each task, and stop once it is clear that no best "
            "pool includes the model.",
        ),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Add the model even if its first answers are implausible.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The HTML page to write.", show_default=".rlfocal/MODEL.html"),
    ] = None,
    warehouse: Location = None,
    as_json: Json = False,
) -> None:
    """Check an entry, try the model, add it to the pool, run the pool's benchmarks, and say what it brings.

    The page shows accuracy by task, diversity to every model, which model it copies, the best pools and
    RL-Focal with and without it, which model it makes redundant, and what it costs. Nothing changes if the
    entry is wrong, or if a working model could not have given the first 20 answers. A pool that ships with
    rlfocal is copied to ./pools (in a checkout of rlfocal, ./.rlfocal/pools); its name then means the copy.
    `remove-model` undoes it.
    """
    from rlfocal.atomic import write_file
    from rlfocal.newcomers import add_model as add

    with progress_bars() as on_progress:
        found = add(
            pool,
            entry,
            warehouse=warehouse,
            backend=backend,
            limit=limit,
            datasets=None if datasets is None else str(datasets),
            seeds=0 if no_train else seeds,
            until_clear=until_clear,
            force=force,
            on_progress=on_progress,
            say=lambda line: typer.echo(line, err=True),
        )
    page = output or REPORT.parent / f"{found.model}.html"
    write_file(page, found.to_html())
    if as_json:
        print_json(found)
    else:
        typer.echo(found.to_text(get_terminal_size().columns))
        typer.echo(f"page: {page}")
    if found.missing:
        print_failures(found.missing, "partition")
        raise typer.Exit(1)


@command("remove-model", "Run a pool of LLMs")
def remove_model(
    pool: Annotated[
        str,
        typer.Argument(
            metavar="POOL",
            help="The pool's name or its YAML file; leave it out for a model in no pool.",
            show_default=False,
            autocompletion=completion.pools,
        ),
    ],
    model: Annotated[
        str | None,
        typer.Argument(help="Its name.", show_default=False, autocompletion=completion.model),
    ] = None,
    keep_answers: Annotated[
        bool, typer.Option("--keep-answers", help="Change only the pool's file.")
    ] = False,
    benchmarks: Benchmarks = None,
    warehouse: Location = None,
    as_json: Json = False,
) -> None:
    """Remove a model from a pool: the reverse of add-model. Repeating it writes nothing.

    Restores the pool's file to the byte, and deletes the model's answers to the pool's benchmarks and the
    runs there of pools with it. Earlier snapshots keep them. Without a POOL, deletes only the model's answers
    (to the named benchmarks, or all); past evaluations stay.
    """
    if model is None:
        if keep_answers:
            raise InputError("--keep-answers changes a pool's file; name the pool before the model")
        _remove_answers(pool, benchmarks, warehouse, as_json=as_json)
        return
    if benchmarks is not None:
        raise InputError("--benchmarks is for a model without a pool: give the model alone")
    from rlfocal.newcomers import remove_model as remove

    removed = remove(pool, model, warehouse=warehouse, keep_answers=keep_answers)
    if as_json:
        print_json(removed)
    else:
        typer.echo(str(removed))


def _remove_answers(model: str, benchmarks: str | None, warehouse: str | None, *, as_json: bool) -> None:
    from warehouse import open_warehouse
    from warehouse.upkeep.corrections import remove_model as remove

    with open_warehouse(warehouse, create=False) as opened:
        n = remove(opened, model, names(benchmarks, "--benchmarks"))
        result = {"partitions": n, "snapshot": opened.snapshot()}
    if as_json:
        print_json(result)
    elif n:
        typer.echo(f"{counted(n, 'partition')} of {model} removed")
    else:
        typer.echo(f"nothing to do: {model} is already removed")
