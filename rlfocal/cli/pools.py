"""Commands that run a pool or change it: regenerate, extract, add-model, remove-model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows import RegenerationRequest, quieten, report_path
from rlfocal.base.errors import InputError
from rlfocal.base.names import RL_FOCAL
from rlfocal.base.request import Benchmarks, Option
from rlfocal.base.wording import counted
from rlfocal.cli.support import completion
from rlfocal.cli.support.commands import command
from rlfocal.cli.support.extraction import (
    All,
    extraction_bars,
    print_extracted,
    print_failures,
    print_notes,
    print_verdicts,
)
from rlfocal.cli.support.options import Json, Location, Result, print_json
from rlfocal.cli.support.progress import IN_ALL, progress_bars, with_total
from rlfocal.extraction import ExtractionRequest
from rlfocal.new_model import AddModelRequest

if TYPE_CHECKING:
    from rlfocal.pool import PoolSpec


@command("regenerate", "Run a pool of LLMs", RegenerationRequest, without=["minutes_per_model"])
def regenerate(
    request: RegenerationRequest, everything: All = False, warehouse: Location = None, as_json: Json = False
) -> None:
    """The main job: extract what is missing, train, evaluate, report.

    Runs the Prefect flow of flows/regenerate.py here and now; a server named by PREFECT_API_URL records it.
    If a model fails, the others are still evaluated and reported; the exit code is then 1.
    """
    chosen = request.load_pool()
    sizes = [(len(chosen.models), "model"), (len(chosen.benchmarks), "benchmark")]
    typer.echo(f"pool {chosen.name}: {', '.join(counted(*size) for size in sizes)}", err=True)
    quieten()
    from rlfocal.evaluation.parallel import PRELOAD
    from rlfocal.extraction.running.runner import import_for_engines
    from rlfocal.report.sections import PRELOAD as DRAWING

    # While this process imports Prefect.
    import_for_engines(request.backend or chosen.backend, and_then=(*PRELOAD, *DRAWING))
    from rich.console import Console

    from flows.regenerate import run
    from rlfocal.upkeep.drift import LISTED, headline, table
    from rlfocal.upkeep.drift import as_json as drift_as_json
    from warehouse import open_warehouse

    with progress_bars() as on_progress:
        summary = run(replace(request, location=warehouse), with_total(on_progress, _weights(chosen)))
        on_progress(IN_ALL, 1.0)
    if as_json:
        drift = summary.drift and drift_as_json(summary.drift)
        print_json(
            {name: value for name, value in vars(summary).items() if name != "boards"} | {"drift": drift}
        )
    else:
        print_extracted(summary.extracted, summary.present)
        print_notes(warehouse, [model.model for model in chosen.models])
        with open_warehouse(warehouse, read_only=True) as opened:
            print_verdicts(opened, summary.boards, everything=everything)
        if summary.report is not None:
            typer.echo(f"report: {summary.report}")
        if summary.drift and summary.drift.beyond:
            typer.echo(headline(summary.drift))
            Console().print(table(summary.drift, LISTED))
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


@command("extract", "Run a pool of LLMs", ExtractionRequest)
def extract(request: ExtractionRequest, warehouse: Location = None) -> Result:
    """Run every benchmark on every model of a pool, and commit the answers. A second run extracts nothing.

    One process per model; a partition (model, task) is committed whole or not at all, and a killed run
    continues where it stopped. A model that fails affects only its own partitions (exit code 1).
    """
    from rlfocal.extraction import run_extraction

    chosen = request.load_pool()
    with extraction_bars(chosen) as on_progress:
        report = run_extraction(replace(request, location=warehouse, on_progress=on_progress))

    def show() -> None:
        print_extracted(len(report.committed), report.n_skipped)
        if report.missing:
            print_failures(report.missing, "partition")
        print_notes(warehouse, [model.model for model in chosen.models])

    found = {"extracted": report.committed, "skipped": report.n_skipped, "missing": report.missing}
    return Result(found, show, is_failure=bool(report.missing))


@command("add-model", "Run a pool of LLMs", AddModelRequest, arguments=["pool", "entry"])
def add_model(
    request: AddModelRequest,
    no_train: Annotated[bool, Option("Do not train RL-Focal with and without the model.")] = False,
    output: Annotated[
        Path | None,
        Option("The HTML page to write.", default=".rlfocal/MODEL.html", flags=("--output", "-o")),
    ] = None,
    warehouse: Location = None,
    as_json: Json = False,
) -> None:
    """Check an entry, try the model, add it to the pool, run the pool's benchmarks, and say what it brings.

    The terminal shows a summary; the page also has diversity to every model, and the best pools and RL-Focal
    with and without it. Nothing changes if the entry is wrong, or if a working model could not have given the
    first 20 answers. A pool that ships with rlfocal is copied to ./pools (in a checkout of rlfocal,
    ./.rlfocal/pools); its name then means the copy. `remove-model` undoes it.
    """
    from rich.console import Console

    from rlfocal.base.atomic import write_file
    from rlfocal.new_model.adding import run_add_model

    request = replace(request, warehouse=warehouse, seeds=0 if no_train else request.seeds)
    with progress_bars() as on_progress:
        found = run_add_model(replace(request, on_progress=on_progress, say=partial(typer.echo, err=True)))
    page = output or report_path(warehouse).with_name(f"{found.model}.html")
    write_file(page, found.to_html())
    if as_json:
        print_json(found)
    else:
        typer.echo(found.title)
        for table in found.tables[:2]:
            Console().print(table)
        typer.echo("\n".join([*found.sentences, f"page: {page}"]))
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
    keep_answers: Annotated[bool, Option("Change only the pool's file.")] = False,
    benchmarks: Benchmarks = None,
    warehouse: Location = None,
) -> Result:
    """Remove a model from a pool: the reverse of add-model. Repeating it writes nothing.

    Restores the pool's file to the byte, and deletes the model's answers to the pool's benchmarks and the
    runs there of pools with it. Earlier snapshots keep them. Without a POOL, deletes only the model's answers
    (to the named benchmarks, or all); past evaluations stay.
    """
    if model is None:
        if keep_answers:
            raise InputError("--keep-answers changes a pool's file; name the pool before the model")
        return _remove_answers(pool, benchmarks, warehouse)
    if benchmarks is not None:
        raise InputError("--benchmarks is for a model without a pool: give the model alone")
    from rlfocal.new_model import remove_model as remove

    return Result(remove(pool, model, warehouse=warehouse, keep_answers=keep_answers))


def _remove_answers(model: str, benchmarks: Sequence[str] | None, warehouse: str | None) -> Result:
    from warehouse import open_warehouse
    from warehouse.corrections import remove_model as remove

    with open_warehouse(warehouse, create=False) as opened:
        n = remove(opened, model, benchmarks)
        result = {"partitions": n, "snapshot": opened.snapshot()}
    removed = f"{counted(n, 'partition')} of {model} removed"
    return Result(result, removed if n else f"nothing to do: {model} is already removed")
