"""`python -m benchmarks`: commands that measure speed against a reference, and check statistical claims."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.speed.references import MAX_COST_RATIO, Cost, list_slower
from rlfocal.base.atomic import write_file
from rlfocal.base.errors import InputError, unknown_name
from rlfocal.base.options import split
from rlfocal.base.tables import Table
from rlfocal.base.wording import MISSING_CELL, count_noun, decimal
from rlfocal.cli import run_guarded
from rlfocal.cli.support.commands import run
from rlfocal.cli.support.options import Json, Location, print_json
from rlfocal.cli.support.progress import progress_line

ENGINES = ("vllm", "hf")
WIDTH = 110  # of a table in a file

app = typer.Typer(
    help="Measure speed, as ratios to a named reference in the same run, and check statistical claims.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command("extraction")
def extraction(
    documents: Annotated[int, typer.Option(min=4, help="Four-choice questions of each kind.")] = 60,
    engines: Annotated[str, typer.Option(metavar="E,...", help="vllm, hf.")] = "vllm,hf",
    model: Annotated[
        str | None,
        typer.Option(help="A model's directory or hub id.", show_default="random weights"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare our engines with lm-eval's backends: the same model and documents, in one process.

    The work is of three kinds. Five-shot questions of more than 500 tokens have single-token or five-word
    choices. Prompts ten times as long as the answer are sampled ten times. Choices are scored after each of
    four traces, for which lm-eval needs two runs. `computed` counts the prompt tokens that the engine
    computed. `unique` counts distinct prompt tokens, each shared prefix once. `max Δ` is the largest
    difference in a choice's log-likelihood, and `argmax` the share of questions on which the same choice is
    likeliest.
    """
    from benchmarks.speed.extraction import bench_extraction

    chosen = split(engines)
    for name in chosen:
        if name not in ENGINES:
            raise unknown_name("engine", name, ENGINES)
    found = bench_extraction(documents, chosen, model, progress_line)
    if as_json:
        print_json(found)
        return
    console = _make_console()
    for setting in found.setting:
        block = "" if setting.block_size is None else f", cache blocks of {setting.block_size} tokens"
        console.print(
            f"{setting.engine}: {setting.params / 1e6:,.0f}M parameters, {setting.dtype}, {setting.device}; "
            f"{setting.documents} questions of {setting.tokens:,.0f} tokens each kind{block}"
        )
    table = Table("way", "seconds", "faster", "computed", "unique", "ratio", "max Δ", "argmax")
    work = ""
    for row in found.measured:
        computed = row.computed
        if row.work != work:
            work = row.work
            table.add(work, *[""] * 7, style="bold")
        cells = [
            f"{row.seconds:.2f}",
            f"{row.times_faster:.1f}x",
            "–" if computed is None else f"{computed:,}",
            "–" if row.unique is None else f"{row.unique:,}",
            "–" if computed is None or not row.unique else f"{computed / row.unique:.2f}",
            "–" if row.max_difference is None else f"{row.max_difference:.1e}",
            "–" if row.agreement is None else f"{row.agreement:.1%}",
        ]
        table.add(f"  {row.way}", *cells)
    console.print(table)
    for row in found.measured:
        if row.share_of_peak is not None:
            console.print(f"{row.way}, {row.work}: {row.share_of_peak:.1%} of the GPU's peak")
    for engine, reason in found.failed.items():
        console.print(f"{engine} was not measured: {reason}", style="yellow")


@app.command("gpu")
def gpu(
    sizes: Annotated[str, typer.Option(metavar="S,...", help="toy, 1b, 8b.")] = "1b,8b",
    engines: Annotated[
        str | None, typer.Option(metavar="E,...", help="vllm, hf.", show_default="those installed")
    ] = None,
    documents: Annotated[int, typer.Option(min=3, help="Four-choice questions of 600 tokens.")] = 16,
    pool: Annotated[
        str | None, typer.Option(help="A pool file: check each of its architectures first.")
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The JSON file to write.")] = Path(
        "gpu-check.json"
    ),
    as_json: Json = False,
) -> None:
    """Check extraction on this machine's GPU, without a network: random weights, real vocabularies.

    Each engine's log-probs are compared with float32 on the CPU. The exit code is 1 if rounding does not
    explain a difference, or if memory exceeds the plan. RL-Focal itself trains on the CPU. Without a GPU,
    everything runs on the CPU.
    """
    from benchmarks.speed.architectures import ArchitectureCheck, check_architectures
    from benchmarks.speed.gpu import EngineCheck, check_gpu
    from rlfocal.pool.files import load_pool

    installed = [name for name in ENGINES if name == "hf" or find_spec(name)]
    chosen = installed if engines is None else split(engines)
    for name in chosen:
        if name not in ENGINES:
            raise unknown_name("engine", name, ENGINES)
    models = () if pool is None else load_pool(pool).models
    open_models = [model for model in models if not model.is_closed]
    checked = check_architectures(open_models, chosen, progress_line)
    if checked and not as_json:
        shown = Table("model", "max Δ", "flags", "passes", "tokens/s", "GB", texts=("slower", ""))
        for of in checked:
            shown.add(
                f"{of.model}, {of.architecture}, {of.engine}",
                f"{of.max_difference:.1e}",
                str(of.n_other_flags),
                str(of.n_other_passes),
                f"{of.tokens_per_second:,.0f}",
                decimal(of.peak_gb, 1),
                of.slower or "",
                "right" if of.is_right else "WRONG",
            )
        _make_console().print(shown)
    found = check_gpu(split(sizes), chosen, documents, progress_line)
    every: list[ArchitectureCheck | EngineCheck] = [*checked, *found]
    rows = [asdict(each) | {"is_right": each.is_right} for each in every]
    write_file(output, json.dumps(rows, indent=2))
    if as_json:
        print_json(found)
    else:
        table = Table("model", "max Δ", "rounding", "tokens/s", "of peak", "GB", "planned", texts=("",))
        for row in found:
            table.add(
                f"{row.size} ({row.params / 1e9:.2g}B), {row.engine}, {row.dtype}",
                f"{row.max_difference:.1e}",
                f"{row.tolerance:.1e}",
                f"{row.tokens_per_second:,.0f}",
                MISSING_CELL if row.share_of_peak is None else f"{row.share_of_peak:.1%}",
                decimal(row.peak_gb, 1),
                decimal(row.planned_gb, 1),
                "right" if row.is_right else "WRONG",
            )
        _make_console().print(table)
        typer.echo(f"on {found[0].device}; stored in {output}")
    if not all(each.is_right for each in every):
        raise typer.Exit(1)


@app.command("diversity")
def diversity(
    models: Annotated[
        int, typer.Option(min=2, max=16, help="Models, of which every pool is evaluated.")
    ] = 12,
    documents: Annotated[int, typer.Option(min=20, help="Documents of the small pool.")] = 14_042,
    many_models: Annotated[int, typer.Option(min=2, max=1000, help="Models in one large pool.")] = 100,
    many_documents: Annotated[int, typer.Option(min=20, help="Documents of that pool.")] = 1_000_000,
    as_json: Json = False,
) -> None:
    """Compare pool statistics in Python and in SQL with enumeration by their definitions.

    It generates answers in a temporary folder, at about 8 bytes per model and document. `scaled`: the
    reference was measured on 20 pools or windows, and its time multiplied. `max Δ`: the largest difference
    from the reference's values.
    """
    from benchmarks.speed.diversity import DiversitySizes, bench_diversity

    sizes = DiversitySizes(models, documents, many_models, many_documents)
    found = bench_diversity(sizes, progress_line)
    if as_json:
        print_json(found)
        return
    console = _make_console()
    console.print(f"{documents:,} documents unless stated otherwise, {found.cores} cores")
    table = Table("way", "seconds", "faster", "max Δ", "peak MB")
    work = ""
    for row in found.measured:
        if row.work != work:
            work = row.work
            table.add(work, style="bold")
        table.add(
            f"  {row.way}",
            f"{row.seconds:.3f}",
            f"{row.times_faster:,.2g}x" if row.times_faster < 10 else f"{row.times_faster:,.0f}x",
            "–" if row.max_difference is None else f"{row.max_difference:.1e}",
            "–" if row.peak_bytes is None else f"{row.peak_bytes / 1e6:,.0f}",
        )
    console.print(table)


StoreAs = Annotated[
    str | None, typer.Option("--store-as", metavar="COMMIT", help="Add the ratios to the references.")
]


@app.command("warehouse")
def warehouse(
    models: Annotated[str, typer.Option(metavar="N,...", help="Models of each pool.")] = "16,40,100",
    documents: Annotated[
        int, typer.Option(metavar="N", min=1, help="Documents of each pool; MMLU has 14042.")
    ] = 14_042,
    store_as: StoreAs = None,
    as_json: Json = False,
) -> None:
    """Measure CPU seconds and memory of an import and of the statistics in SQL.

    The scores are generated, for four choices per document. Pool sizes with more than 200,000 pools are left
    out. A ratio is the cost over that of a fixed piece of work in the same run. Beside it stands the ratio
    that the repository stores of an earlier commit.
    """
    from benchmarks.speed.warehouse import REFERENCES, bench_warehouse

    found = bench_warehouse(whole_numbers(models, "--models"), documents, progress_line)
    for pool in found if store_as is not None else ():
        REFERENCES.store(pool.costs, pool.size, str(store_as))
    if as_json:
        print_json([pool._asdict() | {"costs": [cost._asdict() for cost in pool.costs]} for pool in found])
        return
    for pool in found:
        megabytes = f"{pool.parquet_bytes / 1e6:.1f} MB of Parquet"
        typer.echo(
            f"{count_noun(pool.models, 'model')} x {count_noun(pool.documents, 'document')}: {megabytes}"
        )
        _print_costs("work", pool.costs, pool.commit)


@app.command("demo")
def demo(
    whole: Annotated[bool, typer.Option("--whole", help="Measure all models, not two.")] = False,
    store_as: StoreAs = None,
    as_json: Json = False,
) -> None:
    """Measure CPU seconds of a regeneration of the embedded pool, stage by stage.

    The seconds are those of all processes. A ratio is the cost over that of a fixed piece of work in the same
    run. Beside it stands the ratio that the repository stores of an earlier commit. The last line names
    stages that cost more than 1.5 times as much.
    """
    from benchmarks.speed.demo import REFERENCES, bench_demo, size_of

    found = bench_demo(whole=whole, on_progress=progress_line)
    if store_as is not None:
        REFERENCES.store(found.stages, size_of(whole), store_as)
    if as_json:
        print_json(found)
        return
    _print_costs("stage", found.stages, found.commit)


def _print_costs(title: str, costs: Sequence[Cost], commit: str | None) -> None:
    """Prints a row per cost, and a line that names the costs that grew since the reference's commit."""
    table = Table(title, "CPU s", "wall s", "MB", "ratio", f"at {commit or 'no commit'}", "times")
    for cost in costs:
        table.add(
            cost.name,
            f"{cost.cpu_seconds:.2f}",
            decimal(cost.wall_seconds, 1),
            decimal(cost.peak_megabytes, 0),
            f"{cost.ratio:.1f}",
            decimal(cost.last, 1),
            decimal(cost.times_slower, 2),
        )
    _make_console().print(table)
    slower = [f"{cost.name} ({cost.times_slower:.1f} times)" for cost in list_slower(costs)]
    typer.echo(
        f"SLOWER than {commit}: {', '.join(slower)}"
        if slower
        else f"nothing is {MAX_COST_RATIO:g} times as dear"
    )


@app.command("training")
def training(
    documents: Annotated[int, typer.Option(min=60, help="Generated train rows.")] = 2_000,
    seeds: Annotated[str, typer.Option(metavar="K,...", help="Seeds trained side by side.")] = "1,10",
    scales: Annotated[str, typer.Option(metavar="N,...", help="Pool sizes to time.")] = "12,24,48,96",
    queries: Annotated[int, typer.Option(min=10, help="Queries per phase for the loop.")] = 200,
    episodes: Annotated[
        int | None, typer.Option(min=1, help="Joint episodes to time.", show_default="those of a training")
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare our training's environment steps per second with those of the released algorithm's loop.

    Updates count. The loop answers one query at a time, with autograd on throughout, and records no stack
    traces. It computes all eight terms of its weighted metric, or only the two with a non-zero weight.
    """
    from benchmarks.speed.training import bench_training

    found = bench_training(
        documents,
        whole_numbers(seeds, "--seeds"),
        whole_numbers(scales, "--scales"),
        queries,
        episodes,
        on_progress=progress_line,
    )
    if as_json:
        print_json(found)
        return
    console = _make_console()
    console.print(f"{documents:,} train rows of four choices; at most {found.peak_mb:,.0f} MB of memory")
    table = Table("way", "steps", "seconds", "steps/s", "faster")
    setting = None
    for row in found.speeds:
        if (row.models, row.window) != setting:
            setting = (row.models, row.window)
            table.add(f"{row.models} models, window {row.window}", style="bold")
        way = row.way if row.way != "rl_focal" else f"rl_focal, {count_noun(row.seeds, 'seed')}"
        rate = row.steps / row.seconds
        table.add(
            f"  {way}", f"{row.steps:,}", f"{row.seconds:.2f}", f"{rate:,.0f}", f"{row.times_faster:,.1f}x"
        )
    console.print(table)
    if found.growth:
        times = ", ".join(f"{row.models} models {row.seconds:.1f} s" for row in found.growth)
        power = "" if found.exponent is None else f": as models^{found.exponent:.2f}"
        console.print(f"the same training with {times}{power}")


@app.command("decision")
def decision(
    models: Annotated[int, typer.Option(min=2, help="Models in the pool.")] = 16,
    decisions: Annotated[int, typer.Option(min=100, help="Decisions to measure.")] = 2_000,
    as_json: Json = False,
) -> None:
    """Measure the microseconds from a question to its answer, without the models' own time.

    The agents are trained on generated logits of four choices and loaded from a checkpoint. A query to a
    Router is all of its calls: those of `choose`, until enough models have answered, and that of `fuse`.
    """
    from benchmarks.speed.decision import bench_decision

    found = bench_decision(models, decisions)
    if as_json:
        print_json(found)
        return
    console = _make_console()
    table = Table(f"{found.models} models", "median µs", "99 % µs", "faster")
    for row in found.latencies:
        table.add(row.way, f"{row.median:.1f}", f"{row.p99:.1f}", f"{row.times_faster:.1f}x")
    console.print(table)


@app.command("statistics")
def statistics(
    draws: Annotated[int, typer.Option(min=10, help="Draws of each truth.")] = 1_000,
    probes: Annotated[int, typer.Option(min=2, help="Probes of each planted newcomer.")] = 60,
    benchmarks: Annotated[
        str, typer.Option("--benchmarks", "-b", metavar="B,...", help="Also probe their models.")
    ] = "",
    warehouse: Location = None,
    as_json: Json = False,
) -> None:
    """Check the docs' statistical claims on synthetic data whose truth is known, with fixed seeds.

    It counts how often intervals contain the true difference of two methods, or a newcomer's true gain. It
    also counts wrong clear verdicts of probes, broken promises, and fits in which a policy decides that is
    not better. The exit code is 1 if a share exceeds its claim by more than chance (a 99.9 % interval).
    """
    from benchmarks.claims import check_all, table_of

    names = split(benchmarks) if benchmarks else []
    checked = check_all(draws, probes, names, warehouse, progress_line)
    if as_json:
        print_json(checked)
    else:
        _make_console().print(table_of(checked))
    if not all(one.is_kept for one in checked):
        raise typer.Exit(1)


def whole_numbers(text: str, option: str) -> list[int]:
    """The numbers in the `text` of an option, such as "1,10". Raises InputError for anything else."""
    try:
        return [int(part) for part in text.split(",") if part.strip()]
    except ValueError as error:
        raise InputError(f"{option} {text!r} is not a list of whole numbers such as 1,10") from error


def _make_console() -> Console:
    return Console(width=None if sys.stdout.isatty() else WIDTH)


if __name__ == "__main__":
    run_guarded(lambda: run(app, "python -m benchmarks"))
