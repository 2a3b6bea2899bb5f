"""Commands that learn from the warehouse: train, evaluate, methods."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from rlfocal.base.request import Option
from rlfocal.cli.support.commands import command
from rlfocal.cli.support.listing import ListsMethods
from rlfocal.cli.support.options import Json, Location, Result, print_json
from rlfocal.cli.support.progress import progress_bars
from rlfocal.cli.support.verdicts import All, print_verdicts
from rlfocal.evaluation import EvaluationRequest, TrainingRequest


@command("train", "Learn and compare", TrainingRequest, without=["force"])
def train(request: TrainingRequest, warehouse: Location = None) -> Result:
    """Train RL-Focal on a benchmark's train rows and save one checkpoint per seed (and task).

    Agents that are already trained are not trained again; `rlfocal evaluate` uses these checkpoints.
    """
    from rlfocal.evaluation.training import run_training
    from warehouse import open_warehouse

    with open_warehouse(warehouse, read_only=True) as opened, progress_bars() as on_progress:
        report = run_training(opened, replace(request, on_progress=on_progress))
    lines = [*map(str, report.checkpoints), str(report)]
    if request.tensorboard:
        lines.append(f"see them with: tensorboard --logdir {report.checkpoints[0].parent.parent}")
    return Result(report, "\n".join(lines))


@command("evaluate", "Learn and compare", EvaluationRequest, cls=ListsMethods)
def evaluate(
    request: EvaluationRequest,
    at_once: Annotated[
        int | None,
        Option(
            "Methods to run at once.",
            least=1,
            default="1; with --methods all: the cores",
            flags=("--jobs",),
            metavar="N",
        ),
    ] = None,
    everything: All = False,
    merit: Annotated[
        bool,
        Option(
            "Also the field's figures of merit, of everything evaluated on the benchmark: gain, cost saved, "
            "gap to the oracle, ParetoDist, AIQ, APGR, CPT, calibration, p-values by Holm's method, and the "
            "means over tasks with their intervals."
        ),
    ] = False,
    warehouse: Location = None,
    as_json: Json = False,
) -> None:
    """Fit methods on train rows, decide on test rows, store the result and print a verdict.

    The methods are listed below. By default, RL-Focal runs beside the usual references.
    Runs that the warehouse already has for the same data are shown, not repeated.
    """
    from rlfocal.evaluation.budgets import budget_curves
    from rlfocal.evaluation.leaderboard import leaderboard
    from rlfocal.evaluation.merits import merits
    from rlfocal.evaluation.running import run_evaluation
    from rlfocal.extraction.running.runner import cores
    from rlfocal.report.tables import heading, print_budgets, print_merits
    from warehouse import open_warehouse

    jobs = at_once or (cores() if request.methods == ["all"] else 1)
    with open_warehouse(warehouse, create=False) as opened:
        with progress_bars() as on_progress:
            report = run_evaluation(opened, replace(request, at_once=jobs, on_progress=on_progress))
        for sentence in report.omissions():
            typer.echo(sentence, err=True)
        every = leaderboard(opened, [request.benchmark]) if merit else []
        figures = [(board, merits(opened, board)) for board in every]
        if as_json:
            of_boards = [{"board": heading(board), "methods": found} for board, found in figures]
            print_json(of_boards if merit else report.rows)
            return
        boards = leaderboard(opened, runs={row.run_id for row in report.rows})
        for board in boards if request.budgets else ():
            print_budgets(board, budget_curves(opened, board))
        named = request.methods if request.methods and request.methods != ["all"] else ()
        print_merits(figures)
        print_verdicts(opened, boards, named, everything=everything)


@command("methods", "Learn and compare")
def methods(
    markdown: Annotated[
        bool,
        Option("Print a Markdown table, with requirements, sources and deviations."),
    ] = False,
) -> Result:
    """List the methods that `rlfocal evaluate` knows: which models each asks, how it answers, its needs."""
    from rich.console import Console

    from rlfocal.base.tables import Table
    from rlfocal.methods import entries
    from rlfocal.report.tables import markdown_methods

    facts = ["name", "role", "asks", "answers", "kinds", "protocols", "argument", "fewest_models"]
    facts += ["needs", "source", "differs", "has_budgets", "space"]
    known = entries().values()
    found = [{fact: getattr(one, fact) for fact in facts} for one in known]
    if markdown:
        return Result(found, "\n".join(markdown_methods(known)))
    table = Table("method", texts=("asks", "answers", "needs"))
    for one in known:
        table.add(one.pattern, one.asks, one.answers, one.needs_in_words)
    return Result(found, lambda: Console().print(table))
