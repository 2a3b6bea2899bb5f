"""The commands before a regeneration: `plan` says what it would run and cost, `prefetch` downloads models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rlfocal.base import options
from rlfocal.base.environment import set_variables
from rlfocal.base.options import Option, takes
from rlfocal.base.wording import count_noun
from rlfocal.cli.support.commands import command
from rlfocal.cli.support.options import Json, Location, show_result
from rlfocal.cli.support.progress import progress_bars
from rlfocal.extraction import PoolRequest

if TYPE_CHECKING:
    from rlfocal.extraction.plan import Plan

OFFLINE = dict.fromkeys(("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE"), "1")
"""Environment variables that keep Hugging Face's libraries offline, if set before these are imported."""


@command("plan", "Run a pool of LLMs")
@takes(PoolRequest, without=("jobs",))
def plan(
    request: PoolRequest,
    unconditional: options.Unconditional = False,
    gpu: Annotated[str, Option("H100, H200, A100, L40S or L4.")] = "H100",
    gpus: Annotated[
        int | None,
        Option("GPUs that work side by side.", least=1, default="this machine's, else 8", metavar="N"),
    ] = None,
    gpu_price: Annotated[
        float | None,
        Option(
            "The price of a GPU-hour, in dollars.",
            least=0,
            default="a round figure",
            metavar="DOLLARS",
        ),
    ] = None,
    check: Annotated[
        bool,
        Option(
            "Ask the hub whether each entry would run: licence, revision, architecture, tokenizer, longest "
            "prompt, memory. Loads tokenizers, no weights."
        ),
    ] = False,
    warehouse: Location = None,
    as_json: Json = False,
) -> None:
    """Show what a regeneration would run, without a model: partitions, requests, tokens, GPU-hours and money.

    Committed partitions are left out. Documents are counted if they are available locally (the embedded pool,
    `--datasets`), otherwise taken from the benchmark's stated size. The command needs no network. To count a
    benchmark's own tasks (`include_path`), their Python runs.
    """
    if check:
        _check(request, gpu, as_json=as_json)
        return
    with set_variables(OFFLINE):
        from rlfocal.extraction.estimate import find_gpu
        from rlfocal.extraction.gpus import find_gpus
        from rlfocal.extraction.plan import GPUS_OF_A_BOX, plan_pool

        chosen = request.load_pool()
        made = plan_pool(
            chosen.with_unconditional() if unconditional else chosen,
            warehouse,
            backend=request.backend,
            gpu=find_gpu(gpu),
            gpus=gpus or len(find_gpus()) or GPUS_OF_A_BOX,
            dollars=gpu_price,
            limit=request.limit,
            datasets=request.datasets,
        )
    show_result(asdict(made) | {"totals": _add_up(made)}, lambda: _print(made), as_json=as_json)


@command("prefetch", "Run a pool of LLMs")
@takes(PoolRequest, without=("backend", "limit", "jobs"))
def prefetch(request: PoolRequest, as_json: Json = False) -> None:
    """Download a pool's data sets, tokenizers and weights, before a GPU is paid for.

    The command needs no GPU. Started again, it continues where it stopped. If a model cannot be downloaded,
    the others are, and the exit code is 1. A regeneration downloads by itself what is missing, while other
    models run.
    """
    from rlfocal.base.errors import InputError, describe_error
    from rlfocal.extraction.tasks import load_tasks
    from rlfocal.pool.downloads import download
    from rlfocal.pool.hub import pin_revision

    chosen = request.load_pool()
    gigabytes: dict[str, float] = {}
    failures: dict[str, str] = {}
    with progress_bars() as on_progress:
        on_progress("data sets", 0.0)
        load_tasks(chosen.benchmarks, None, request.datasets)
        on_progress("data sets", 1.0)
        for model in chosen.models:
            try:
                gigabytes[model.model] = download(pin_revision(model), on_progress)
            except (InputError, OSError) as error:
                failures[model.model] = describe_error(error)

    def show() -> None:
        for failed in failures.values():
            typer.echo(failed)
        total = sum(gigabytes.values())
        typer.echo(f"{count_noun(len(gigabytes), 'model')} here, {total:.1f} GB from the hub")

    show_result(
        {"gigabytes": gigabytes, "failures": failures}, show, as_json=as_json, is_failure=bool(failures)
    )


def _check(request: PoolRequest, gpu: str, *, as_json: bool) -> None:
    """Checks and prints every entry of the pool; exits with code 1 if an entry, or this machine, has a
    fault."""
    from rich.console import Console

    from rlfocal.extraction.estimate import find_gpu
    from rlfocal.extraction.plan.checking import check_pool, check_table
    from rlfocal.extraction.tasks import load_tasks

    chosen = request.load_pool()
    backend = request.backend or chosen.backend
    with progress_bars() as on_progress:
        tasks = load_tasks(chosen.benchmarks, request.limit, request.datasets)
        checks, faults = check_pool(
            chosen, tasks, backend=backend, gpu=find_gpu(gpu), on_progress=on_progress
        )
    faults += [fault for each in checks for fault in each.faults]

    def show() -> None:
        Console().print(check_table(checks))
        for fault in faults:
            typer.echo(fault)
        typer.echo(f"{count_noun(len(faults), 'fault')} of {count_noun(len(checks), 'model')}")

    show_result({"entries": checks, "faults": faults}, show, as_json=as_json, is_failure=bool(faults))


COUNT_FIELDS = ("partitions", "present", "documents", "requests")
TOKEN_FIELDS = ("prefill_tokens", "decode_tokens")
COST_FIELDS = ("hours", "dollars")
FIGURE_TITLES = (
    ("prefill_hours", "prefill"),
    ("decode_hours", "decode"),
    ("start_hours", "start"),
    ("weights_gb", "GB"),
    ("download_gb", "download"),
    ("planned_before", "done: plan"),
    ("measured_before", "actual"),
)
"""The figures of a model and their column titles; the last two are shown only if they are known."""


def _add_up(made: Plan) -> dict[str, float]:
    """The sums of the plan's figures over its models."""
    return {
        key: sum(getattr(m, key) for m in made.models)
        for key in (*COUNT_FIELDS, *TOKEN_FIELDS, *COST_FIELDS, *dict(FIGURE_TITLES))
    }


def _print(made: Plan) -> None:
    from rich.console import Console
    from rich.text import Text

    from rlfocal.base.tables import Table

    columns = ["GPUs", "to run", "done", "documents", "requests", "prefill", "decode", "hours", "$"]
    title = f"What is left to run of pool {made.pool}, in tokens and {made.gpu}-hours"
    table = Table("model", *columns, title=title)
    for model in made.models:
        table.add(model.model, f"{model.gpus}", *_format_cells(vars(model)))
    table.add("all", "", *_format_cells(_add_up(made)), style="bold")
    console = Console()
    console.print(table)
    console.print()
    shown = FIGURE_TITLES if any(model.measured_before for model in made.models) else FIGURE_TITLES[:-2]
    items = Table(
        "model", *(title for _, title in shown), title="Hours by item; GB of weights here or to download"
    )
    for model in made.models:
        items.add(model.model, *_format_items(vars(model), shown))
    items.add("all", *_format_items(_add_up(made), shown), style="bold")
    console.print(items)
    console.print()
    if made.clock_hours:
        console.print(f"On {made.gpus} x {made.gpu}: {made.clock_hours:.2f} hours at best.")
    if made.download_hours:
        console.print(f"Downloads: {made.download_hours:.2f} hours, before and while models run.")
    console.print(Text("docs/extraction.md says what these estimates assume.", style="dim"))
    for line in made.warnings:
        console.print(Text(line, style="yellow"))


def _format_cells(figures: Mapping[str, Any]) -> list[str]:
    """The cells of one model's row, or of the row of totals."""
    return [
        *(f"{figures[key]:,}" for key in COUNT_FIELDS),
        *(_format_tokens(figures[key]) for key in TOKEN_FIELDS),
        *(f"{figures[key]:.2f}" for key in COST_FIELDS),
    ]


def _format_items(figures: Mapping[str, Any], shown: Sequence[tuple[str, str]]) -> list[str]:
    return [f"{figures[key]:,.0f}" if key.endswith("_gb") else f"{figures[key]:.2f}" for key, _ in shown]


def _format_tokens(n: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if n >= size:
            return f"{n / size:.1f}{unit}"
    return f"{n:.0f}"
