"""The command `replay`, which replays policies on stored answers under scenarios."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rlfocal.base import options
from rlfocal.base.options import Option
from rlfocal.base.tables import Table
from rlfocal.base.wording import cents, decimal, interval, percent, points
from rlfocal.cli.support.commands import command
from rlfocal.cli.support.options import Json, Location, show_result
from rlfocal.cli.support.progress import progress_bars

if TYPE_CHECKING:
    from rlfocal.scenarios.replaying import Replay

MAX_TASKS_LISTED = 5
"""The most tasks that are listed, those with the largest changes first."""


@command("replay", "Learn and compare")
def replay(
    policies: Annotated[
        list[str], typer.Argument(metavar="POLICY...", help="Checkpoints of `rlfocal train`, or methods.")
    ],
    benchmark: options.Benchmark,
    scenarios: Annotated[
        list[str] | None,
        Option(
            f"{options.SCENARIO} May be repeated, to compare.",
            default="none",
            flags=("--scenario",),
            metavar="KIND=VALUE,...",
        ),
    ] = None,
    prices: options.PricesFile = None,
    models: options.Models = None,
    down: options.Down = None,
    swap: options.Swap = None,
    budget: options.OneBudget = None,
    snapshot: options.Snapshot = None,
    seed: options.Seed = 0,
    warehouse: Location = None,
    as_json: Json = False,
) -> None:
    """Replay policies on stored answers, as if models failed or cost otherwise, or labels were few.

    No model is asked. A checkpoint, or a method fitted to train documents, decides the test documents under a
    scenario. The result is shown beside that of the policy as evaluated. With several policies or scenarios,
    each pair is a row of a table. --down, --swap, --prices and --models hold in every scenario.

    A model that is down gives nothing and costs nothing. Trained agents replace it as a `Router(down=...)`
    does; where any other method is left without an answer, the best model on train that is up gives one.
    Prices change what a policy costs, and what one with a budget in cents decides. Runs are stored with
    `study = 'replay'`, off the leaderboard; the same scenario gives the same run.
    """
    from rich.console import Console

    from rlfocal.scenarios.replaying import replay as replay_now
    from warehouse import open_warehouse

    given: dict[str, Any] = {"prices": prices, "models": models, "down": down, "swap": swap, "budget": budget}
    with open_warehouse(warehouse, create=False) as opened, progress_bars() as on_progress:
        given |= {"snapshot": snapshot, "seed": seed, "on_progress": on_progress}
        rows = [
            (policy, scenario, replay_now(opened, policy, benchmark, scenario=scenario or None, **given))
            for policy in policies
            for scenario in scenarios or [""]
        ]
    replays = [replayed for *_, replayed in rows]
    if len(replays) == 1:
        show_result(replays[0], lambda: _print_one(replays[0]), as_json=as_json)
    else:
        show_result(replays, lambda: Console().print(_make_table(rows)), as_json=as_json)


def _print_one(replayed: Replay) -> None:
    from rich.console import Console

    console = Console()
    typer.echo(_make_heading(replayed))
    console.print(_make_summary(replayed))
    changed = {"right to wrong": replayed.right_to_wrong, "wrong to right": replayed.wrong_to_right}
    changed["wrong to another"] = replayed.wrong_to_other
    kinds = ", ".join(f"{n:,} {kind}" for kind, n in changed.items())
    typer.echo(f"accuracy {interval(replayed.difference)} points; answers changed: {kinds}")
    if replayed.promises:
        console.print(_tabulate_promises(replayed))
    if replayed.tasks:
        console.print(_tabulate_tasks(replayed))


def _make_table(rows: Sequence[tuple[str, str, Replay]]) -> Table:
    numbers = ("as evaluated %", "replayed %", "points", "asked", "¢/1k")
    table = Table("policy", *numbers, texts=("scenario",))
    for policy, scenario, replayed in rows:
        before, after = replayed.before, replayed.after
        accuracies = percent(before.accuracy), percent(after.accuracy), interval(replayed.difference)
        size, cost = decimal(after.mean_pool_size, 2), cents(after.cost)
        table.add(Path(policy).name, *accuracies, size, cost, scenario or _describe_scenario(replayed))
    return table


def _make_heading(replayed: Replay) -> str:
    before = replayed.before
    held = "" if before.budget is None else f" within {before.budget}"
    what = f"{before.method}{held} on {before.n:,} test documents of {before.benchmark}"
    return f"{what}: {_describe_scenario(replayed)}"


def _describe_scenario(replayed: Replay) -> str:
    differences = dict(replayed.conditions)
    words = [f"without {', '.join(differences.pop('down'))}"] if "down" in differences else []
    words += [f"{model} answers as {other}" for model, other in differences.pop("swap", {}).items()]
    words += ["at other prices"] * bool(differences.pop("prices", None))
    words += [f"never with {', '.join(differences.pop('drop'))}"] if "drop" in differences else []
    words += [f"{name} = {value}" for name, value in differences.items()]
    return "; ".join(words) or "nothing differs"


def _make_summary(replayed: Replay) -> Table:
    before, after = replayed.before, replayed.after
    table = Table("", "as evaluated", "replayed")
    table.add("accuracy %", percent(before.accuracy), percent(after.accuracy))
    table.add("cents per 1,000 queries", cents(before.cost), cents(after.cost))
    table.add("rounds", decimal(before.mean_rounds, 2), decimal(after.mean_rounds, 2))
    table.add("models asked", decimal(before.mean_pool_size, 2), decimal(after.mean_pool_size, 2))
    table.add("run", before.run_id, after.run_id)
    return table


def _tabulate_promises(replayed: Replay) -> Table:
    table = Table("promised wrong %", "answered %", "replayed", "wrong %", "replayed", title="promises")
    for promise in replayed.promises:
        table.add(f"at most {100 * promise.target:g}", *map(percent, (*promise.coverage, *promise.error)))
    return table


def _tabulate_tasks(replayed: Replay) -> Table:
    table = Table("task", "as evaluated %", "replayed %", "points", title="largest changes")
    for task, (before, after) in list(replayed.tasks.items())[:MAX_TASKS_LISTED]:
        table.add(task, percent(before), percent(after), points(after - before))
    return table
