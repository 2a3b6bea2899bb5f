"""The command that replays a policy on stored answers under other conditions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rlfocal.base import options
from rlfocal.base.tables import Table
from rlfocal.base.wording import cents, decimal, interval, percent, points
from rlfocal.cli.support.commands import command
from rlfocal.cli.support.options import Json, Location, show_result
from rlfocal.cli.support.progress import progress_bars

if TYPE_CHECKING:
    from rlfocal.evaluation.replaying import Replay

MAX_TASKS_LISTED = 5
"""Tasks shown, of those that changed."""


@command("replay", "Learn and compare")
def replay(
    policy: Annotated[str, typer.Argument(help="A checkpoint of `rlfocal train`, or a method.")],
    benchmark: options.Benchmark,
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
    """Replay a policy on stored answers, as if models failed, were swapped, or cost otherwise.

    Use it to ask what would happen to one policy. Use `study` to train anew for each value.

    No model is asked. A checkpoint, or a method fitted to train documents as they are, decides the test
    documents under the conditions, and the result stands beside that of the policy as evaluated.

    A model that is down gives nothing and costs nothing. Trained agents replace it as a `Router(down=...)`
    does; where any other method is left without an answer, the best model on train that is up gives one.
    Prices change what a policy costs, and what one with a budget in cents decides. Runs are stored with
    `study = 'replay'`, off the leaderboard; the same conditions give the same run.
    """
    from rich.console import Console

    from rlfocal.evaluation.replaying import replay as replay_now
    from warehouse import open_warehouse

    with open_warehouse(warehouse, create=False) as opened, progress_bars() as on_progress:
        replayed = replay_now(
            opened,
            policy,
            benchmark,
            prices=prices,
            models=models,
            down=down,
            swap=swap,
            budget=budget,
            snapshot=snapshot,
            seed=seed,
            on_progress=on_progress,
        )

    def show() -> None:
        console = Console()
        typer.echo(_heading(replayed))
        console.print(_summary(replayed))
        changed = {"right to wrong": replayed.right_to_wrong, "wrong to right": replayed.wrong_to_right}
        changed["wrong to another"] = replayed.wrong_to_other
        kinds = ", ".join(f"{n:,} {kind}" for kind, n in changed.items())
        typer.echo(f"accuracy {interval(replayed.difference)} points; answers changed: {kinds}")
        if replayed.promises:
            console.print(_promises(replayed))
        if replayed.tasks:
            console.print(_tasks(replayed))

    show_result(replayed, show, as_json=as_json)


def _heading(replayed: Replay) -> str:
    before, told = replayed.before, replayed.conditions
    words = [f"without {', '.join(told['down'])}"] if "down" in told else []
    words += [f"{model} answers as {other}" for model, other in told.get("swap", {}).items()]
    words += ["at other prices"] * ("prices" in told)
    held = "" if before.budget is None else f" within {before.budget}"
    what = f"{before.method}{held} on {before.n:,} test documents of {before.benchmark}"
    return f"{what}: {'; '.join(words) or 'nothing differs'}"


def _summary(replayed: Replay) -> Table:
    before, after = replayed.before, replayed.after
    table = Table("", "as evaluated", "replayed")
    table.add("accuracy %", percent(before.accuracy), percent(after.accuracy))
    table.add("cents per 1,000 queries", cents(before.cost), cents(after.cost))
    table.add("rounds", decimal(before.mean_rounds, 2), decimal(after.mean_rounds, 2))
    table.add("models asked", decimal(before.mean_pool_size, 2), decimal(after.mean_pool_size, 2))
    table.add("run", before.run_id, after.run_id)
    return table


def _promises(replayed: Replay) -> Table:
    table = Table("promised wrong %", "answered %", "replayed", "wrong %", "replayed", title="promises")
    for promise in replayed.promises:
        table.add(f"at most {100 * promise.target:g}", *map(percent, (*promise.coverage, *promise.error)))
    return table


def _tasks(replayed: Replay) -> Table:
    table = Table("task", "as evaluated %", "replayed %", "points", title="largest changes")
    for task, (before, after) in list(replayed.tasks.items())[:MAX_TASKS_LISTED]:
        table.add(task, percent(before), percent(after), points(after - before))
    return table
