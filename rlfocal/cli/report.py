"""Commands that show results: report, advise, sql."""

from __future__ import annotations

import webbrowser
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows import report_path
from rlfocal.base import options
from rlfocal.base.errors import InputError
from rlfocal.base.options import Option
from rlfocal.base.tables import Table
from rlfocal.base.wording import cents, interval, number_or_none, percent
from rlfocal.cli.support.commands import Command, command
from rlfocal.cli.support.options import Json, Location, SnapshotOrTime, number_or_time, show_result
from rlfocal.cli.support.progress import progress_bars
from rlfocal.evaluation.verdicts import ceiling_sentence, verdict

if TYPE_CHECKING:
    from rlfocal.evaluation.advising import Advice, SoftVoteTeam


@command("report", "Learn and compare")
def report(
    output: options.Report = None,
    benchmarks: options.Benchmarks = None,
    show: Annotated[bool, Option("Open it in the browser.", flags=("--open",))] = False,
    force: Annotated[bool, Option("Rewrite it even if nothing has changed.")] = False,
    export: Annotated[
        Path | None,
        Option(
            "Also write every figure (SVG, PNG) and table (CSV, Markdown, LaTeX) into this folder.",
            metavar="DIR",
        ),
    ] = None,
    methods: Annotated[
        options.Names | None,
        Option(
            "Only these in exported tables.",
            default="all",
            flags=("--methods", "--method"),
            metavar="M,...",
            is_listed=True,
        ),
    ] = None,
    columns: Annotated[
        options.Names | None,
        Option(
            "In exported tables only the columns that begin with these words, as in accuracy,asked.",
            default="all",
            metavar="C,...",
            is_listed=True,
        ),
    ] = None,
    confidential: Annotated[
        bool, Option("Show questions that may not be published, such as GPQA's.")
    ] = False,
    snapshot: options.Snapshot = None,
    warehouse: Location = None,
) -> None:
    """Write one HTML page to explore what was evaluated: accuracy, cost, pools, risk, learning, documents.

    A file already written from the same snapshot and version of rlfocal is not written again.
    """
    from rlfocal.evaluation.leaderboard import comparable_boards
    from rlfocal.report import write_report
    from rlfocal.report.export import check_chosen, export_report
    from warehouse import open_warehouse

    if columns and export is None:
        raise InputError("--columns chooses what --export writes: add --export DIR, or leave it out")
    files = []
    with (
        open_warehouse(warehouse, read_only=True, create=False, snapshot=snapshot) as opened,
        progress_bars() as on_progress,
    ):
        if methods or columns:
            boards = comparable_boards(opened, benchmarks)
            check_chosen(opened, boards, methods or (), columns or ())
        drawn = partial(on_progress, "report")
        path = write_report(
            opened,
            output or report_path(warehouse),
            benchmarks=benchmarks,
            confidential=confidential,
            force=force,
            on_progress=drawn,
        )
        if export is not None:
            written = partial(on_progress, "export")
            chosen = {"benchmarks": benchmarks, "methods": methods, "columns": columns}
            files = export_report(opened, export, on_progress=written, **chosen)
    if files:
        typer.echo(f"{len(files)} files in {export}")
    typer.echo(str(path))
    if show:
        webbrowser.open(path.resolve().as_uri())


BUDGETS = ("1", "2", "3", "4", "all")
_CONDITIONS = {"budgets": "budget", "drop": "without", "add": "with"}
_ADVICE_LEGEND = (
    "Teams answer by soft vote, are chosen on train and measured on test documents. vs: the difference in "
    "points, with its paired 95 % interval. A budget's team is compared with the best single model, other "
    "teams with the best team. Teams stand for RL-Focal, which `rlfocal evaluate --models` trains on a pool."
)


@command("advise", "Learn and compare")
def advise(
    benchmark: options.Benchmark,
    budget: Annotated[
        options.Names | None,
        Option(
            "The best team at these mean costs per document: models (1.5,4,all) or cents per 1,000 "
            "queries (50c).",
            default=f"{','.join(BUDGETS)}, unless another question is asked",
            metavar="B,...",
            is_listed=True,
        ),
    ] = None,
    drop: Annotated[bool, Option("Which models could go, and at what loss.")] = False,
    add: Annotated[bool, Option("Which models outside --models would help most.")] = False,
    models: options.Models = None,
    warehouse: Location = None,
    as_json: Json = False,
) -> None:
    """Advise on a pool: the best team for a budget, what could be dropped or added.

    Use it to choose models from stored answers, in seconds. Use `evaluate` to compare methods. --models is
    the pool; by default it is all models that answered every document.
    """
    from rlfocal.data.loading import load_dataset
    from rlfocal.data.policy import Budget
    from rlfocal.evaluation import advising
    from rlfocal.evaluation.advising import gain_of_like_pools, room
    from warehouse import open_warehouse

    if add and models is None:
        raise InputError("--add needs --models: the pool that a model would be added to")
    budgets = budget or (() if drop or add else BUDGETS)
    with open_warehouse(warehouse, read_only=True, create=False) as opened:
        data = load_dataset(opened, benchmark, None if add else models)
        pool = list(models or data.models)
        of_pool = vars(advising.find_ceiling(data, pool))
        advice: dict[str, Any] = {"ceiling": {name: number_or_none(value) for name, value in of_pool.items()}}
        teams = advising.Teams(data, pool)
        advice["best"] = teams.team(teams.winner)
        wanted = [Budget.parse(text) for text in budgets]
        advice |= {"budgets": advising.advise_budgets(teams, wanted)} if wanted else {}
        advice |= {"drop": advising.advise_drop(teams)} if drop else {}
        advice |= {"add": advising.advise_add(teams)} if add else {}
        here, n_labels = room(data.correct[:, [data.models.index(name) for name in pool]]), len(data.train)
        measured = gain_of_like_pools(here, n_labels)
        advice["like_pools"] = measured._asdict() | {"sentence": measured.sentence(here, n_labels)}
    show_result(advice, lambda: _print(advice, data.benchmark), as_json=as_json)


def _print(advice: dict[str, Any], benchmark: str) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console()
    of_pool = advice["ceiling"]
    if told := ceiling_sentence(benchmark, of_pool["n_none_right"], of_pool["n"]):
        console.print(Text(told))
    teams = Table("", "acc %", "±", "¢/1k", "vs", texts=("team", "verdict"), kept=("verdict",))
    teams.add("best team", *_figures(advice["best"]), "", ", ".join(advice["best"].models), "")
    for question in ("budgets", "drop", "add"):
        for row in advice.get(question, ()):
            teams.add(f"{_CONDITIONS[question]} {row.about}", *_row(row))
    console.print(teams)
    console.print(Text(advice["like_pools"]["sentence"]), width=min(console.width, 100))
    ours = f"RL-Focal within a budget: `rlfocal evaluate -b {quote(benchmark)} --budgets B,...`."
    console.print(Text(f"{_ADVICE_LEGEND} {ours}", style="dim"), width=min(console.width, 100))


def _row(advice: Advice) -> tuple[str, ...]:
    told = verdict(advice.difference) or "same team"
    return *_figures(advice.team), interval(advice.difference), ", ".join(advice.team.models), told


def _figures(team: SoftVoteTeam) -> tuple[str, str, str]:
    return percent(team.test, 1), percent(team.stderr, 1), cents(team.cost)


_SNAPSHOT = ", snapshot := 'now'"


class _SqlCommand(Command):
    """A command whose help lists the warehouse's tables, views and macros, except macros that are parts of
    others."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        from warehouse.scripts import list_definitions

        lines = []
        for kind in ("table", "view", "macro"):
            shown = [d for d in list_definitions() if d.kind == kind and not d.parameters.startswith("(of_")]
            names = (f"`{d.name}{d.parameters.replace(_SNAPSHOT, '')}`" for d in shown)
            lines.append(f"{kind.capitalize()}s: {', '.join(names)}.")
        lines.append("Every macro also takes `snapshot`. `FROM documentation` describes all, columns too.")
        self.help = "\n\n".join([self.help or "", *lines])
        super().format_help(ctx, formatter)


@command("sql", "Data in and out", cls=_SqlCommand)
def sql(
    statement: Annotated[str, typer.Argument(help='For example: "FROM accuracy ORDER BY accuracy DESC".')],
    format: Annotated[str, Option("The format of the answer: table, csv or json.")] = "table",
    snapshot: SnapshotOrTime = None,
    warehouse: Location = None,
    as_json: Json = False,
) -> None:
    """Query the warehouse in SQL (DuckDB's). A query changes nothing.

    For example `FROM pool_diversity('lab-mmlu', ['lab-llama', 'lab-phi'])`, `FROM all_pools('lab-mmlu', 3)`.
    Arguments with `:=` are optional. warehouse/README.md is the guide.
    """
    from rlfocal.exchange.sql import run_sql

    output = "json" if as_json else format
    typer.echo(run_sql(warehouse, statement, output, snapshot=number_or_time(snapshot)))
