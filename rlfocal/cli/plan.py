"""`rlfocal plan`: what a regeneration would run and cost."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from rlfocal.base import options
from rlfocal.base.options import Option
from rlfocal.cli.support.commands import command
from rlfocal.cli.support.options import Json, Location, show_result

if TYPE_CHECKING:
    from rlfocal.extraction.plan import Plan

OFFLINE = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE")


@command("plan", "Run a pool of LLMs")
def plan(
    pool: options.Pool,
    models: options.Models = None,
    benchmarks: options.Benchmarks = None,
    backend: options.Backend = None,
    limit: options.Limit = None,
    datasets: options.Datasets = None,
    unconditional: options.Unconditional = False,
    gpu: Annotated[str, Option("H100, H200, A100, L40S or L4.")] = "H100",
    gpus: Annotated[
        int | None,
        Option("GPUs that work side by side.", least=1, default="this machine's, else 8", metavar="N"),
    ] = None,
    gpu_price: Annotated[
        float | None, Option("Price of a GPU-hour.", least=0, default="a round figure", metavar="DOLLARS")
    ] = None,
    warehouse: Location = None,
    as_json: Json = False,
) -> None:
    """Show what a regeneration would run: partitions, requests, tokens, GPU-hours and money. Runs no model.

    Committed partitions are left out. Documents are counted if they are available locally (the embedded pool,
    `--datasets`), otherwise taken from the benchmark's stated size. Needs no network. To count a
    benchmark's own tasks (`include_path`), their Python runs.
    """
    with _offline():
        from rlfocal.extraction.gpus import find_gpus
        from rlfocal.extraction.plan import GPUS_OF_A_BOX, plan_pool
        from rlfocal.extraction.plan.estimate import find_gpu
        from rlfocal.pool import load_pool

        chosen = load_pool(pool).choose(models, benchmarks)
        made = plan_pool(
            chosen.with_unconditional() if unconditional else chosen,
            warehouse,
            backend=backend,
            gpu=find_gpu(gpu),
            gpus=gpus or len(find_gpus()) or GPUS_OF_A_BOX,
            dollars=gpu_price,
            limit=limit,
            datasets=datasets,
        )
    show_result(asdict(made) | {"totals": _totals(made)}, lambda: _print(made), as_json=as_json)


@contextmanager
def _offline() -> Iterator[None]:
    """Keeps Hugging Face's libraries offline, if they are imported inside."""
    before = {name: os.environ.get(name) for name in OFFLINE}
    os.environ.update(dict.fromkeys(OFFLINE, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


COUNTS = ("partitions", "present", "documents", "requests")
TOKENS = ("prefill_tokens", "decode_tokens")
COSTS = ("hours", "dollars")


def _totals(made: Plan) -> dict[str, float]:
    """Sums over the models."""
    return {key: sum(getattr(m, key) for m in made.models) for key in (*COUNTS, *TOKENS, *COSTS)}


def _print(made: Plan) -> None:
    from rich.console import Console
    from rich.text import Text

    from rlfocal.base.tables import Table

    columns = ["GPUs", "to run", "done", "documents", "requests", "prefill", "decode", "hours", "$"]
    title = f"What is left to run of pool {made.pool}, in tokens and {made.gpu}-hours"
    table = Table("model", *columns, title=title)
    for model in made.models:
        table.add(model.model, f"{model.gpus}", *_cells(vars(model)))
    table.add("all", "", *_cells(_totals(made)), style="bold")
    console = Console()
    console.print(table)
    console.print()
    if made.clock_hours:
        console.print(f"On {made.gpus} x {made.gpu}: {made.clock_hours:.2f} hours at best.")
    console.print(Text("docs/extraction.md says what these estimates assume.", style="dim"))
    for line in made.warnings:
        console.print(Text(line, style="yellow"))


def _cells(figures: Mapping[str, Any]) -> list[str]:
    """Of a model, or of all."""
    return [
        *(f"{figures[key]:,}" for key in COUNTS),
        *(_tokens(figures[key]) for key in TOKENS),
        *(f"{figures[key]:.2f}" for key in COSTS),
    ]


def _tokens(n: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if n >= size:
            return f"{n / size:.1f}{unit}"
    return f"{n:.0f}"
