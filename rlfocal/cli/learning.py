"""Commands that learn from the warehouse: train, evaluate, methods, explain, open-ended."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlfocal.base import options
from rlfocal.base.options import Option, takes
from rlfocal.base.tables import Table
from rlfocal.base.wording import MISSING_CELL, decimal, percent
from rlfocal.cli.support.commands import command
from rlfocal.cli.support.options import Json, Location, print_json, show_result
from rlfocal.cli.support.progress import All, print_everything, print_verdicts, progress_bars
from rlfocal.evaluation import EvaluationRequest, TrainingRequest

if TYPE_CHECKING:
    from rlfocal.evaluation.openended import OpenEndedReport
    from rlfocal.methods import Entry


@command("train", "Learn and compare")
@takes(TrainingRequest, without=("force",))
def train(request: TrainingRequest, warehouse: Location = None, as_json: Json = False) -> None:
    """Train RL-Focal on a benchmark's train rows and save one checkpoint per seed (and task).

    Use it to get checkpoints for a router or for `replay`. Use `evaluate` to learn how good they are: it
    trains what is missing, and uses checkpoints that exist.
    """
    from rlfocal.evaluation.fitting import train as train_now
    from warehouse import open_warehouse

    with open_warehouse(warehouse, read_only=True) as opened, progress_bars() as on_progress:
        report = train_now(opened, **vars(request), on_progress=on_progress)
    lines = [*map(str, report.checkpoints), str(report)]
    if request.tensorboard:
        lines.append(f"see them with: tensorboard --logdir {report.checkpoints[0].parent.parent}")
    show_result(report, "\n".join(lines), as_json=as_json)


@command("evaluate", "Learn and compare")
@takes(
    EvaluationRequest,
    without=("at_once", "beside", "on_progress"),
    settings=Annotated[list[str] | None, options.Setting],  # Typer repeats an option of a list
)
def evaluate(
    request: EvaluationRequest,
    at_once: Annotated[
        int | None,
        Option(
            "Methods to run at once.",
            1,
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

    Use it to compare methods. Use `train` for checkpoints alone, and `explain` to see what a method learned.

    `rlfocal methods` lists the methods. By default, RL-Focal runs beside the usual references.
    Runs that the warehouse already has for the same data are shown, not repeated.
    """
    from rlfocal.evaluation.conclusion import conclude, summarise
    from rlfocal.evaluation.leaderboard import leaderboard
    from rlfocal.evaluation.merits import budget_curves, merits
    from rlfocal.evaluation.notes import note_split
    from rlfocal.evaluation.promising import stored_promises
    from rlfocal.evaluation.running import run_evaluation
    from rlfocal.extraction.running.runner import cores
    from rlfocal.report.tables import heading, print_budgets, print_merits, print_promises
    from warehouse import open_warehouse

    with open_warehouse(warehouse, create=False) as opened:
        with progress_bars() as on_progress:
            at_once = at_once or (cores() if request.methods == ["all"] else 1)
            report = run_evaluation(opened, replace(request, at_once=at_once, on_progress=on_progress))
        for sentence in report.remarks():
            typer.echo(sentence, err=True)
        every = leaderboard(opened, [request.benchmark]) if merit else []
        figures = [(board, merits(opened, board)) for board in every]
        boards = leaderboard(opened, runs={row.run_id for row in report.rows})
        if as_json:
            of_boards = [
                {
                    "conclusion": conclude(board),
                    "board": heading(board),
                    "notes": board.notes,
                    "methods": of_methods,
                }
                for board, of_methods in figures
            ]
            of_run = {run.run_id: conclude(b) for b in boards for s in b.rows for run in s.runs}
            noted = [
                {"conclusion": of_run.get(row.run_id)}
                | asdict(row)
                | {"train_and_test": note_split(opened, row.benchmark, row.models, row.split, row.run_id)}
                for row in report.rows
            ]
            print_json(of_boards if merit else noted)
            return
        for board in boards if request.budgets else ():
            print_budgets(board, budget_curves(opened, board))
        named = request.methods if request.methods and request.methods != ["all"] else ()
        print_merits(figures)
        details = partial(print_everything, opened, boards) if everything else None
        print_verdicts(summarise(boards, named), details)
        if request.target_errors:
            print_promises(stored_promises(opened, [row.run_id for row in report.rows]))


@command("methods", "Learn and compare")
def methods(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[METHOD...]",
            help="Describe only these methods, in full.",
            show_default="all, in a table",
        ),
    ] = None,
    markdown: Annotated[
        bool, Option("Print a Markdown table, with requirements, sources and deviations.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List the methods that `rlfocal evaluate` knows: which models each asks, how it answers, its needs."""
    from rich.console import Console

    from rlfocal.methods import entries, entry_of
    from rlfocal.report.tables import markdown_methods

    facts = ["name", "role", "asks", "answers", "kinds", "protocols", "argument", "fewest_models"]
    facts += ["needs", "source", "differs", "has_budgets", "space"]
    chosen = list(map(entry_of, names)) if names else list(entries().values())
    described = [{fact: getattr(entry, fact) for fact in facts} for entry in chosen]
    if markdown:
        show_result(described, "\n".join(markdown_methods(chosen)), as_json=as_json)
        return
    if names:
        show_result(described, "\n\n".join(map(_describe_method, chosen)), as_json=as_json)
        return
    table = Table("method", texts=("asks", "answers", "needs"))
    for entry in chosen:
        table.add(entry.pattern, entry.asks, entry.answers, entry.needs_in_words)
    show_result(described, lambda: Console().print(table), as_json=as_json)


def _describe_method(entry: Entry) -> str:
    facts = {
        "asks": entry.asks,
        "answers": entry.answers,
        "needs": entry.needs_in_words,
        "from": entry.source,
    }
    facts |= {"differs": entry.differs, "--tune": ", ".join(entry.space)}
    return "\n".join([entry.pattern, *(f"  {name}: {fact}" for name, fact in facts.items() if fact)])


@command("explain", "Learn and compare")
def explain(
    benchmark: options.Benchmark,
    method: Annotated[str, Option("The method to explain: rl_focal or rl_focal_sequential.")] = "rl_focal",
    models: options.Models = None,
    seed: Annotated[int, Option("The seed of the agents.", least=0, metavar="K")] = 0,
    per: options.Per = "benchmark",
    split: Annotated[
        str,
        Option(
            "The split of train and test documents; `rlfocal evaluate --help` lists all.",
            metavar="given|last|random|tasks",
        ),
    ] = "given",
    warehouse: Location = None,
    as_json: Json = False,
) -> None:
    """Explain what RL-Focal learned: which models it asks first, believes and could drop, and where it stops.

    Use it after `evaluate`, which says how good a method is. Use `replay` to try other conditions.

    It reads stored outputs on test documents, and the checkpoint of `rlfocal evaluate` or `train`. If there
    is no checkpoint, it trains now. The result is kept beside the warehouse, so that `rlfocal report` shows
    it.
    """
    from rich.console import Console
    from rich.text import Text

    from rlfocal.evaluation.explaining import explain as run
    from rlfocal.report.explained import heading, tables
    from warehouse import open_warehouse

    with open_warehouse(warehouse, read_only=True, create=False) as opened, progress_bars() as on_progress:
        explanation = run(
            opened,
            benchmark,
            method=method,
            models=models,
            seed=seed,
            per=per,
            split=split,
            on_progress=on_progress,
        )

    def show() -> None:
        console = Console()
        console.print(Text(heading(explanation), style="bold"))
        console.print(Text(f"{explanation.n:,} test documents, {percent(explanation.accuracy)} % right"))
        for table in tables(explanation):
            console.print("", table, Text(table.caption, style="dim"), sep="\n")

    show_result(explanation, show, as_json=as_json)


@command("open-ended", "Learn and compare")
def open_ended(
    scores: Annotated[
        Path, Option("Parquet, CSV or JSONL: task, doc_id, model, score[, split].", metavar="FILE")
    ],
    seeds: options.Seeds = 5,
    as_json: Json = False,
) -> None:
    """Train a Decider that routes each document of a stream to one model, based on earlier scores.

    Use it where answers have scores, from a judge for example. Use `evaluate` where they are right or wrong.

    FILE has a row per document and model, in the order of the stream; if a task has no `split`, its first
    80 % are train. The Decider learns on these, then runs frozen on the test documents. Its mean score is
    shown beside those of the best single model on train, a random model and the oracle.
    """
    from rich.console import Console

    from rlfocal.evaluation.openended import evaluate_scores, read_scores

    table = read_scores(scores)
    with progress_bars() as on_progress:
        report = evaluate_scores(table, seeds, on_progress=lambda share: on_progress("decider", share))
    show_result(report, lambda: Console().print(_table(report)), as_json=as_json)


def _table(report: OpenEndedReport) -> Table:
    """A table of mean scores, the highest first; the Decider's row has its difference from the best single
    model."""
    title = f"{report.n_test:,} test documents after {report.n_train:,} train documents"
    table = Table("method", "mean score", "± seeds", "vs best_single", "picked %", title=title)
    above = report.above_best_single
    told = f"{above.mean:+.4f} [{above.low:+.4f}, {above.high:+.4f}]"
    rows = {"decider": (report.decider, decimal(report.stderr_seeds, 4), told, MISSING_CELL)}
    rows |= {
        name: (getattr(report, name), MISSING_CELL, MISSING_CELL, MISSING_CELL)
        for name in ("random", "oracle")
    }
    for model, score in report.singles.items():
        name = "best_single" if model == report.best_single else f"single:{model}"
        rows[name] = score, MISSING_CELL, MISSING_CELL, percent(report.picked[model], 1)
    for name, (score, *cells) in sorted(rows.items(), key=lambda row: -row[1][0]):
        table.add(name, decimal(score, 4), *cells, style="bold" if name == "decider" else "")
    return table
