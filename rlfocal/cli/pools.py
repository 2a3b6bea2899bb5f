"""Commands that run a pool or change it: regenerate, extract, add-model, probe, remove-model."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows import RegenerationRequest, quieten, report_path
from rlfocal.base import options
from rlfocal.base.errors import InputError
from rlfocal.base.options import POOL_HELP, Option, takes
from rlfocal.base.wording import count_noun
from rlfocal.cli.support.commands import AUTO_VALUE, command
from rlfocal.cli.support.options import (
    Json,
    Location,
    complete_model,
    complete_pools,
    print_json,
    show_result,
)
from rlfocal.cli.support.progress import (
    All,
    extraction_bars,
    print_everything,
    print_extracted,
    print_failures,
    print_notes,
    print_verdicts,
    progress_bars,
)
from rlfocal.extraction import ExtractionRequest
from rlfocal.new_model import AdditionRequest

if TYPE_CHECKING:
    from flows.summaries import Summary

SHOWN_AS_TABLES = ("boards", "verdicts", "evaluated_from")
"""The fields of a regeneration's summary that are left out of its JSON."""


@command("regenerate", "Run a pool of LLMs")
@takes(RegenerationRequest, without=("location", "minutes_per_model"))
def regenerate(
    request: RegenerationRequest,
    everything: All = False,
    warehouse: Location = None,
    as_json: Json = False,
) -> None:
    """Extract missing answers, train, evaluate and report: the main job, and all of it.

    Use it for a pool that is to be kept up to date. Use `extract` for the models' answers alone.

    It runs the Prefect flow of flows/regenerate.py here and now; a server named by PREFECT_API_URL records
    it. If a model fails, the others are still evaluated and reported; the exit code is then 1.
    """
    request = replace(request, location=warehouse)
    chosen = request.load_pool()
    sizes = [(len(chosen.models), "model"), (len(chosen.benchmarks), "benchmark")]
    typer.echo(f"pool {chosen.name}: {', '.join(count_noun(*size) for size in sizes)}", err=True)
    quieten()
    from flows.summaries import find_summary, keep_summary

    summary = find_summary(request)
    if summary is None:
        summary = _run(request, request.backend or chosen.backend)
        keep_summary(request, summary)
    from rich.console import Console

    from rlfocal.new_model.asking_again import recheck_table
    from rlfocal.upkeep.drift import MAX_ROWS_LISTED, headline, table
    from rlfocal.upkeep.drift import as_json as drift_as_json

    if as_json:
        drift = summary.drift and drift_as_json(summary.drift)
        shown = {name: value for name, value in vars(summary).items() if name not in SHOWN_AS_TABLES}
        conclusions = () if summary.verdicts is None else summary.verdicts.conclusions
        print_json({"conclusions": list(conclusions)} | shown | {"drift": drift})
    else:
        print_extracted(summary.extracted, summary.present, summary.replaced)
        print_notes(warehouse, [model.model for model in chosen.models])
        if summary.verdicts is not None:
            runs = {row.run_id for row in summary.evaluations}
            print_verdicts(
                summary.verdicts, partial(_print_everything, warehouse, runs) if everything else None
            )
        if summary.report is not None:
            typer.echo(f"report: {summary.report}")
        if summary.changed:
            Console().print(recheck_table(summary.changed))
        if summary.drift and summary.drift.exceeded_limits:
            typer.echo(headline(summary.drift))
            Console().print(table(summary.drift, MAX_ROWS_LISTED))
    if summary.gaps:
        print_failures(summary.gaps, "step")
        raise typer.Exit(1)


def _print_everything(warehouse: str | None, runs: Collection[str]) -> None:
    from rlfocal.evaluation.leaderboard import leaderboard
    from warehouse import open_warehouse

    with open_warehouse(warehouse, read_only=True) as opened:
        print_everything(opened, leaderboard(opened, runs=runs))


def _run(request: RegenerationRequest, backend: str) -> Summary:
    """Runs the flow of a regeneration, while bars show its progress."""
    from rlfocal.evaluation.running import EVALUATION_MODULES
    from rlfocal.extraction.running.runner import import_for_engines
    from rlfocal.report.sections import DRAWING_MODULES as DRAWING

    # While this process imports Prefect.
    import_for_engines(backend, and_then=(*EVALUATION_MODULES, *DRAWING))
    from flows.regenerate import run

    with progress_bars() as on_progress:
        return run(request, on_progress)


@command("extract", "Run a pool of LLMs")
@takes(ExtractionRequest)
def extract(request: ExtractionRequest, warehouse: Location = None, as_json: Json = False) -> None:
    """Run every benchmark on every model of a pool, and commit the answers. Nothing is trained.

    Use it where the GPUs are, or to query answers in SQL. `regenerate` extracts, then trains and reports.
    A second run extracts nothing.

    One process per model; a partition (model, task) is committed whole or not at all, and a killed run
    continues where it stopped. A model that fails affects only its own partitions (exit code 1).
    """
    from rlfocal.extraction.running.runner import extract as extract_now

    chosen = request.load_pool()
    with extraction_bars(chosen) as on_progress:
        report = extract_now(location=warehouse, on_progress=on_progress, **vars(request))

    def show() -> None:
        print_extracted(len(report.committed), report.n_skipped, report.replaced)
        if report.missing:
            print_failures(report.missing, "partition")
        print_notes(warehouse, [model.model for model in chosen.models])

    result = {"extracted": report.committed, "skipped": report.n_skipped, "missing": report.missing}
    result |= {"replaced": report.replaced}
    show_result(result, show, as_json=as_json, is_failure=bool(report.missing))


@command("add-model", "Run a pool of LLMs")
@takes(AdditionRequest)
def add_model(
    pool: Annotated[str, typer.Argument(help=POOL_HELP, autocompletion=complete_pools)],
    entry: Annotated[
        str,
        typer.Argument(
            help="YAML with model, hf_repo (of a service's: served), params_b and other keys of a pool entry."
        ),
    ],
    request: AdditionRequest,
    probe: Annotated[
        str | None,
        Option(
            "Change nothing: ask the N documents that tell most, or as many as a verdict takes, and say "
            "whether to add the model.",
            metavar="[N]",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        Option("The page to write, in Markdown.", default=".rlfocal/MODEL.md", flags=("--output", "-o")),
    ] = None,
    warehouse: Location = None,
    as_json: Json = False,
) -> None:
    """Add a new model to a pool and run the pool's benchmarks on it, or with --probe first ask a sample.

    Use --probe to learn from a few hundred documents whether a model that is not in the pool is worth adding.
    Use `probe` to learn whether a model of the pool still answers as it did.

    The entry is checked and the model tried first.
    The terminal shows a summary; the page also has accuracy by task, diversity to every model, and what the
    best pools gain by it. Nothing changes if the entry is wrong, or if a working model could not have given
    the first 20 answers. A pool that ships with rlfocal is copied to ./pools (in a checkout of rlfocal,
    ./.rlfocal/pools); its name then means the copy. `remove-model` undoes it. With --probe, all of it begins
    with a few hundred documents; their answers are kept, and not asked for again once the model joins.
    """
    if probe is not None:
        refused = {"--limit": request.limit is not None, "--force": request.force, "--output": output}
        if given := [name for name, is_given in refused.items() if is_given]:
            raise InputError(
                f"a probe adds no model, so {given[0]} has no meaning with --probe; leave it out"
            )
        _probe_newcomer(pool, entry, _documents(probe), request, warehouse, as_json=as_json)
        return
    from rich.console import Console

    from rlfocal.base.atomic import write_file
    from rlfocal.new_model.adding import add_model as add_now

    with progress_bars() as on_progress:
        say = partial(typer.echo, err=True)
        newcomer = add_now(
            pool, entry, **vars(request), warehouse=warehouse, on_progress=on_progress, say=say
        )
    page = output or report_path(warehouse).with_name(f"{newcomer.model}.md")
    write_file(page, newcomer.to_markdown())
    if as_json:
        print_json(newcomer)
    else:
        typer.echo(newcomer.title)
        for table in newcomer.tables[:3]:
            Console().print(table)
        typer.echo("\n".join([*newcomer.sentences, f"page: {page}"]))
    if newcomer.missing:
        print_failures(newcomer.missing, "partition")
        raise typer.Exit(1)


def _documents(probe: str) -> int | None:
    """The number of documents that `--probe` asks for; None: until the verdict is clear."""
    if probe == AUTO_VALUE:
        return None
    if not probe.isdigit() or not int(probe):
        raise InputError(f"--probe {probe!r}: give the number of documents, or none")
    return int(probe)


def _probe_newcomer(
    pool: str, entry: str, n: int | None, request: AdditionRequest, warehouse: str | None, *, as_json: bool
) -> None:
    from rich.console import Console

    from rlfocal.new_model.page import probe_sentences, worth_table
    from rlfocal.new_model.probe import probe_newcomer

    where: dict[str, Any] = {
        "warehouse": warehouse, "backend": request.backend, "datasets": request.datasets
    }  # fmt: skip
    with progress_bars() as on_progress:
        probe = probe_newcomer(pool, entry, n=n, on_progress=on_progress, **where)
    if as_json:
        print_json(probe)
        return
    Console().print(worth_table(f"{probe.model} for pool {probe.pool}", probe.assessments))
    given = [word for name, value in where.items() if value for word in (f"--{name}", value)]
    command = shlex.join(["rlfocal", "add-model", pool, entry, *given])
    place = given[:2] if warehouse else []
    typer.echo("\n".join(probe_sentences(probe, command, shlex.join(["rlfocal", "sql", *place]))))


@command("probe", "Run a pool of LLMs")
def probe(
    benchmark: options.Benchmark,
    model: Annotated[
        str, Option("A model of the pool that answered the benchmark.", flags=("--model", "-m"), metavar="M")
    ],
    pool: Annotated[
        str | None,
        Option("The pool with its entry.", default="the first that has it", flags=("--pool", "-p")),
    ] = None,
    backend: options.Backend = None,
    datasets: options.Datasets = None,
    warehouse: Location = None,
    as_json: Json = False,
) -> None:
    """Ask a model of a pool some documents again, and say whether its answers have changed.

    Use it for a service that may have swapped its model, or for a new quantization. Use `add-model --probe`
    for a model that is not in the pool.

    It asks a thousandth to a hundredth of a benchmark. If answers changed by more than `diff` allows, the
    exit code is 1.
    """
    from rich.console import Console

    from rlfocal.new_model.asking_again import ask_again, recheck_table

    with progress_bars() as on_progress:
        recheck = ask_again(
            benchmark,
            model,
            pool=pool,
            warehouse=warehouse,
            backend=backend,
            datasets=datasets,
            on_progress=on_progress,
        )

    def show() -> None:
        Console().print(recheck_table([recheck]))

    show_result(recheck, show, as_json=as_json, is_failure=recheck.changed is not None)


@command("remove-model", "Run a pool of LLMs")
def remove_model(
    pool: Annotated[
        str | None,
        typer.Argument(
            metavar="POOL",
            help="The pool's name or its YAML file. Without one, only stored answers are deleted.",
            show_default=False,
            autocompletion=complete_pools,
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL",
            help="The name of the model to remove.",
            show_default=False,
            autocompletion=complete_model,
        ),
    ] = None,
    keep_answers: Annotated[bool, Option("Change only the pool's file.")] = False,
    benchmarks: options.Benchmarks = None,
    warehouse: Location = None,
    as_json: Json = False,
) -> None:
    """Remove a model from a pool: the reverse of add-model. If repeated, it writes nothing.

    It restores the pool's file to the byte, and deletes the model's answers to the pool's benchmarks, and the
    runs there of pools with it. Earlier snapshots keep them. Without a POOL, it deletes only the model's
    answers (to the named benchmarks, or all); past evaluations stay.
    """
    if pool is None:
        raise InputError("no model is named; give MODEL, or POOL and MODEL")
    if model is None:
        if keep_answers:
            raise InputError("--keep-answers changes a pool's file; name the pool before the model")
        _remove_answers(pool, benchmarks, warehouse, as_json=as_json)
        return
    if benchmarks is not None:
        raise InputError("--benchmarks is for a model without a pool: give the model alone")
    from rlfocal.new_model import remove_model as remove

    removed = remove(pool, model, warehouse=warehouse, keep_answers=keep_answers)
    show_result(removed, as_json=as_json)


def _remove_answers(
    model: str, benchmarks: Sequence[str] | None, warehouse: str | None, *, as_json: bool
) -> None:
    from warehouse import open_warehouse
    from warehouse.corrections import remove_model as remove

    with open_warehouse(warehouse, create=False) as opened:
        n = remove(opened, model, benchmarks)
        result = {"partitions": n, "snapshot": opened.snapshot()}
    removed = f"{count_noun(n, 'partition')} of {model} removed"
    text = removed if n else f"nothing to do: {model} is already removed"
    show_result(result, text, as_json=as_json)
