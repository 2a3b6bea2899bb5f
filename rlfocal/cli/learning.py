"""Commands that learn from the warehouse: train, evaluate, methods."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from rlfocal.cli.support import completion
from rlfocal.cli.support.commands import command
from rlfocal.cli.support.listing import ListsMethods
from rlfocal.cli.support.options import Json, Location, Models, Seeds, Snapshot, names, print_json
from rlfocal.cli.support.progress import progress_bars
from rlfocal.methods.trained import TRAINED

Benchmark = Annotated[
    str,
    typer.Option(
        "--benchmark",
        "-b",
        help="A benchmark of the warehouse.",
        autocompletion=completion.benchmark,
    ),
]
RLFocalMethod = Annotated[
    str,
    typer.Option(
        help=f"Which of RL-Focal's methods: {', '.join(TRAINED)}; +task after one of "
        "the first two: agents that read the tasks' names."
    ),
]
Per = Annotated[
    Literal["benchmark", "task"],
    typer.Option(
        help="Fit one policy for the benchmark, or one for each of its tasks (best_single included)."
    ),
]


@command("train", "Learn and compare")
def train(
    benchmark: Benchmark,
    method: RLFocalMethod = TRAINED[0],
    models: Models = None,
    seeds: Seeds = 3,
    per: Per = "benchmark",
    snapshot: Snapshot = None,
    tensorboard: Annotated[
        bool,
        typer.Option("--tensorboard", help="Write TensorBoard logs of each training beside its checkpoint."),
    ] = False,
    warehouse: Location = None,
    as_json: Json = False,
) -> None:
    """Train RL-Focal on a benchmark's train rows and save one checkpoint per seed (and task).

    Agents that are already trained are not trained again; `rlfocal evaluate` uses these checkpoints.
    """
    from rlfocal.evaluation import train as run
    from warehouse import open_warehouse

    with open_warehouse(warehouse, read_only=True) as opened, progress_bars() as on_progress:
        report = run(
            opened,
            benchmark,
            method=method,
            models=names(models),
            seeds=seeds,
            per=per,
            snapshot=snapshot,
            tensorboard=tensorboard,
            on_progress=on_progress,
        )
    if as_json:
        print_json(report)
    else:
        typer.echo("\n".join(map(str, report.checkpoints)))
        held = len(report.checkpoints) - report.trained
        typer.echo(f"{report.trained} trained now, {held} before")
        if tensorboard:
            typer.echo(f"see them with: tensorboard --logdir {report.checkpoints[0].parent.parent}")


@command("evaluate", "Learn and compare", cls=ListsMethods)
def evaluate(
    benchmark: Benchmark,
    methods: Annotated[
        str | None,
        typer.Option(
            metavar="M,...|all",
            help="The methods to run; `single:<model>` is one too; all: every method the data allow.",
            show_default="the usual ones",
        ),
    ] = None,
    models: Models = None,
    seeds: Seeds = 3,
    per: Per = "benchmark",
    protocol: Annotated[
        str,
        typer.Option(
            help="frozen: methods see no test label; online: each is revealed after its answer; both."
        ),
    ] = "frozen",
    split: Annotated[
        str,
        typer.Option(
            metavar="given|[train-]last|[train-]random|[train-]tasks",
            help="given: as the documents are marked; last: test on the last 20 % of each task; random: on "
            "20 % of each task, drawn with seed 0; tasks: on a fifth of the tasks, held out (tasks:2/5: "
            "another fifth); train-last, train-random, train-tasks: of the train documents alone.",
        ),
    ] = "given",
    budgets: Annotated[
        str | None,
        typer.Option(
            metavar="B,...",
            help="Also run at these mean costs per document: models (1,2,4,all) or cents per 1,000 queries "
            "(50c). Methods are fitted once and decide at each budget.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="METHOD.NAME=VALUE",
            help="A setting of one method (knn.k=20) or of all that have it (encoder=DIR); may be repeated. "
            "Such runs stay off the leaderboard.",
        ),
    ] = None,
    tune: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="N",
            show_default="no tuning",
            help="First choose each method's settings by N trials on three folds of train, the defaults "
            "first; on tables of their own, where methods without settings to tune stand, too.",
        ),
    ] = 0,
    snapshot: Snapshot = None,
    force: Annotated[
        bool, typer.Option("--force", help="Repeat runs, and trials, that the warehouse already has.")
    ] = False,
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Methods to run at once.",
            show_default="1; with --methods all: the cores",
        ),
    ] = None,
    warehouse: Location = None,
    as_json: Json = False,
) -> None:
    """Fit methods on train rows, decide on test rows, store the result and print the table.

    The methods are listed below. By default, RL-Focal runs beside the usual references.
    Runs that the warehouse already has for the same data are shown, not repeated.
    """
    from rlfocal.evaluation import evaluate as run
    from rlfocal.evaluation.budgets import budget_curves
    from rlfocal.evaluation.over_tasks import over_tasks
    from rlfocal.extraction.running.runner import cores
    from rlfocal.report import leaderboard, print_table
    from rlfocal.report.tables import print_budgets, print_over_tasks
    from warehouse import open_warehouse

    with open_warehouse(warehouse, create=False) as opened:
        with progress_bars() as on_progress:
            report = run(
                opened,
                benchmark,
                methods=names(methods, "--methods"),
                models=names(models),
                seeds=seeds,
                per=per,
                protocol=protocol,
                split=split,
                budgets=names(budgets, "--budgets") or (),
                snapshot=snapshot,
                force=force,
                settings=settings or (),
                tune=tune,
                at_once=jobs or (cores() if methods == "all" else 1),
                on_progress=on_progress,
            )
        for model, reason in report.left_out:
            typer.echo(f"left out: {model}, which {reason}", err=True)
        for method, reason in report.skipped:
            typer.echo(f"left out: {method}, which {reason}", err=True)
        if as_json:
            print_json(report.rows)
        else:
            boards = leaderboard(opened, runs={row.run_id for row in report.rows})
            print_table(boards)
            for board in boards:
                print_over_tasks(board, over_tasks(opened, board))
                if budgets is not None:
                    print_budgets(board, budget_curves(opened, board))


@command("merit", "Learn and compare")
def merit(
    benchmarks: Annotated[
        str | None,
        typer.Option("--benchmarks", "-b", metavar="B,...", help="Which benchmarks.", show_default="all"),
    ] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Accuracies and budgets side by side, as a Markdown table.")
    ] = False,
    warehouse: Location = None,
    as_json: Json = False,
) -> None:
    """Compare evaluated methods by the field's figures of merit.

    PerfGain, CostSave, gap to the oracle, ParetoDist, AIQ, APGR and CPT, calibration, p-values of paired
    differences, corrected for the number of methods compared, and means over tasks with their intervals.
    """
    from rlfocal.evaluation.budgets import budget_curves
    from rlfocal.evaluation.merits import merits
    from rlfocal.report import leaderboard
    from rlfocal.report.tables import heading, markdown_results, print_merits
    from warehouse import open_warehouse

    with open_warehouse(warehouse, read_only=True, create=False) as opened:
        boards = leaderboard(opened, names(benchmarks, "--benchmarks"))
        if markdown:
            rows = markdown_results([(board, budget_curves(opened, board)) for board in boards])
            typer.echo("\n".join(rows))
            return
        found = [(board, merits(opened, board)) for board in boards]
    if as_json:
        print_json([{"board": heading(board), "methods": of_board} for board, of_board in found])
    elif not found:
        typer.echo("nothing has been evaluated yet: run `rlfocal evaluate --benchmark B`", err=True)
    else:
        print_merits(found)


@command("methods", "Learn and compare")
def methods(
    markdown: Annotated[
        bool,
        typer.Option("--markdown", help="Print a Markdown table, with requirements, sources and deviations."),
    ] = False,
    as_json: Json = False,
) -> None:
    """List the methods that `rlfocal evaluate` knows: which models each asks, how it answers, its needs."""
    from rich.console import Console

    from rlfocal.base.tables import Table
    from rlfocal.methods import entries
    from rlfocal.report.tables import markdown_methods

    if as_json:
        facts = ["name", "role", "asks", "answers", "kinds", "protocols", "argument", "fewest_models"]
        facts += ["needs", "source", "differs", "has_budgets", "space"]
        print_json([{fact: getattr(one, fact) for fact in facts} for one in entries().values()])
        return
    if markdown:
        typer.echo("\n".join(markdown_methods(entries().values())))
        return
    table = Table("method", texts=("asks", "answers", "needs"))
    for one in entries().values():
        table.add(one.pattern, one.asks, one.answers, one.needs_in_words)
    Console().print(table)
