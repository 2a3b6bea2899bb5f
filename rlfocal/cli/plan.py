"""`rlfocal plan`: what a regeneration would run and cost."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from rlfocal.cli.support.commands import command
from rlfocal.cli.support.options import (
    Backend,
    Benchmarks,
    Datasets,
    Json,
    Limit,
    Location,
    Models,
    Pool,
    names,
    print_json,
)

if TYPE_CHECKING:
    from rlfocal.planning.plan import Plan
    from rlfocal.terminal import Listing

OFFLINE = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE")


@command("plan", "Run a pool of LLMs")
def plan(
    pool: Pool,
    models: Models = None,
    benchmarks: Benchmarks = None,
    limit: Limit = None,
    backend: Backend = None,
    datasets: Datasets = None,
    gpu: Annotated[str, typer.Option(help="H100, H200, A100, L40S or L4.")] = "H100",
    gpu_price: Annotated[
        float | None,
        typer.Option(min=0, metavar="DOLLARS", help="Of a GPU-hour.", show_default="a round figure"),
    ] = None,
    warehouse: Location = None,
    as_json: Json = False,
) -> None:
    """What a regeneration would run: partitions, requests, tokens, GPU-hours and money. Runs nothing.

    Partitions that are committed already are left out. Documents are counted if they are available locally
    (the embedded pool, `--datasets`), otherwise taken from the benchmark's stated size. Needs no network.
    """
    with _offline():
        from rlfocal.planning.gpus import find_gpu
        from rlfocal.planning.plan import plan_pool
        from rlfocal.pool import load_pool

        made = plan_pool(
            load_pool(pool).choose(names(models), names(benchmarks, "--benchmarks")),
            warehouse,
            backend=backend,
            gpu=find_gpu(gpu),
            dollars=gpu_price,
            limit=limit,
            datasets=datasets,
        )
    if as_json:
        print_json(asdict(made) | {"totals": _totals(made)})
    else:
        _print(made)


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


def _totals(made: Plan) -> dict[str, float]:
    """Sums over the models."""
    keys = (
        "partitions",
        "present",
        "documents",
        "requests",
        "prefill_tokens",
        "decode_tokens",
        "lm_eval_prefill_tokens",
        "hours",
        "dollars",
    )
    return {key: sum(getattr(m, key) for m in made.models) for key in keys}


def _print(made: Plan) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console()
    console.print(_benchmark_table(made))
    console.print()
    console.print(_model_table(made))
    console.print()
    for line in made.assumptions:
        console.print(Text(line, style="dim"))
    for line in made.warnings:
        console.print(Text(line, style="yellow"))


def _benchmark_table(made: Plan) -> Listing:
    from rlfocal.terminal import Listing

    columns = [
        "tasks",
        "documents",
        "requests",
        "prefill",
        "decode",
        "lm-eval\nrequests",
        "lm-eval\nprefill",
        "ratio",
    ]
    title = f"Pool {made.pool}: each benchmark's work for a model without partitions"
    table = Listing("benchmark", *columns, title=title)
    for w in made.benchmarks:
        table.add(
            w.benchmark,
            f"{w.partitions}",
            f"{w.documents:,}",
            f"{w.requests:,}",
            _tokens(w.prefill_tokens),
            _tokens(w.decode_tokens),
            f"{w.lm_eval_requests:,}",
            _tokens(w.lm_eval_prefill_tokens),
            _ratio(w.lm_eval_prefill_tokens, w.prefill_tokens),
        )
    return table


def _model_table(made: Plan) -> Listing:
    from rlfocal.terminal import Listing

    columns = ["GPUs", "to run", "done", "requests", "prefill", "decode", "hours", "$", "lm-eval"]
    title = f"What is left to run, in tokens and {made.gpu}-hours (lm-eval: of its prefill)"
    table = Listing("model", *columns, title=title)
    for m in made.models:
        table.add(
            m.model,
            f"{m.gpus}",
            f"{m.partitions}",
            f"{m.present}",
            f"{m.requests:,}",
            _tokens(m.prefill_tokens),
            _tokens(m.decode_tokens),
            f"{m.hours:.2f}",
            f"{m.dollars:.2f}",
            f"{m.cost.lm_eval_prefill_hours:.2f}",
        )
    total = _totals(made)
    table.add(
        "all",
        "",
        f"{total['partitions']:,}",
        f"{total['present']:,}",
        f"{total['requests']:,}",
        _tokens(total["prefill_tokens"]),
        _tokens(total["decode_tokens"]),
        f"{total['hours']:.2f}",
        f"{total['dollars']:.2f}",
        f"{sum(m.cost.lm_eval_prefill_hours for m in made.models):.2f}",
        style="bold",
    )
    return table


def _tokens(n: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if n >= size:
            return f"{n / size:.1f}{unit}"
    return f"{n:.0f}"


def _ratio(a: float, b: float) -> str:
    return f"{a / b:.1f}x" if b else "–"
