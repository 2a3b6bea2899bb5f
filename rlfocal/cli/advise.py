"""`rlfocal advise`: which models to ask for a budget, which could go, would help, or may be replaced."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

from rlfocal.base.errors import InputError
from rlfocal.base.request import Benchmark, Models, Option
from rlfocal.base.tables import Table
from rlfocal.base.wording import cents, counted, decimal, percent, points
from rlfocal.cli.support.commands import command
from rlfocal.cli.support.options import Location, Result

if TYPE_CHECKING:
    from rlfocal.evaluation.advising import Advice, Measured, Swap, Team

BUDGETS = ("1", "2", "3", "4", "all")
STANDS_IN = (
    "Teams answer by soft vote, are chosen on train and measured on test documents; ±: standard error; "
    "intervals: 95 %, paired. They stand in for RL-Focal, which `rlfocal evaluate --models` trains on a pool."
)


@command("advise", "Learn and compare")
def advise(
    benchmark: Benchmark,
    budget: Annotated[
        Sequence[str] | None,
        Option(
            "The best team at these mean costs per document: models (1.5,4,all) or cents per 1,000 "
            "queries (50c).",
            default=f"{','.join(BUDGETS)}, unless another question is asked",
            metavar="B,...",
        ),
    ] = None,
    drop: Annotated[bool, Option("Which models could go, and at what loss.")] = False,
    add: Annotated[bool, Option("Which models outside --models would help most.")] = False,
    swap: Annotated[
        str | None,
        Option("Whether model A may become B, its quantised or newer self.", metavar="A=B"),
    ] = None,
    models: Models = None,
    warehouse: Location = None,
) -> Result:
    """Advise on a pool: the best team for a budget, what could be dropped, added or swapped.

    From stored answers alone, in seconds. --models is the pool; by default all that answered everything.
    """
    from rlfocal.data.dataset import load_dataset
    from rlfocal.data.policy import Budget
    from rlfocal.evaluation import advising
    from warehouse import open_warehouse

    pair = None if swap is None else _pair(swap)
    if add and models is None:
        raise InputError("--add needs --models: the pool that a model would be added to")
    is_all = models is None or add or pair is not None
    budgets = budget or (() if drop or add or pair else BUDGETS)
    with open_warehouse(warehouse, read_only=True, create=False) as opened:
        data = load_dataset(opened, benchmark, None if is_all else models)
        pool = list(models or data.models)
        found: dict[str, Any] = {}
        if budgets or drop or add:
            teams = advising.Teams(data, pool)
            found["best"] = teams.team(teams.winner)
            wanted = [Budget.of(text) for text in budgets]
            found |= {"budgets": advising.advise_budgets(teams, wanted)} if wanted else {}
            found |= {"rl_focal": advising.measured_within(opened, benchmark, pool, wanted)} if wanted else {}
            found |= {"drop": advising.advise_drop(teams)} if drop else {}
            found |= {"add": advising.advise_add(teams)} if add else {}
        if pair is not None:
            found["swap"] = advising.advise_swap(data, pool, *pair)
    return Result(found, lambda: _print(found, data.benchmark))


def _pair(swap: str) -> tuple[str, str]:
    model, _, other = swap.partition("=")
    if not model or not other or "=" in other:
        raise InputError(f"--swap {swap!r} is not A=B, two models")
    return model, other


def _print(found: dict[str, Any], benchmark: str) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console()
    if "budgets" in found:
        console.print(_budgets(found["budgets"], found["rl_focal"]))
        if not found["rl_focal"]:
            told = f"RL-Focal within a budget: `rlfocal evaluate -b {quote(benchmark)} --budgets B,...`"
            console.print(Text(told, style="dim"))
    for question, title in (("drop", "without"), ("add", "with")):
        if question in found:
            console.print(_models(found[question], title, found["best"]))
    if "swap" in found:
        for line in _swap(found["swap"]):
            console.print(Text(line))
    console.print(Text(STANDS_IN, style="dim"), width=min(console.width, 100))


def _budgets(found: Sequence[Advice], ours: Sequence[Measured]) -> Table:
    table = Table("budget", "acc %", "±", "asked", "¢/1k", texts=("who answers", "beside the best single"))
    for one in found:
        t = one.team
        asked = decimal(len(t.models), 1)
        table.add(
            _budget(one.about), *_accuracy(t.test, t.stderr), asked, cents(t.cost), _names(t), one.verdict
        )
        for m in ours:
            if m.budget == one.about:
                figures = *_accuracy(m.accuracy, m.stderr), decimal(m.mean_pool_size, 1), cents(m.cost)
                table.add("", *figures, m.method, "", style="bold")
    return table


def _models(found: Sequence[Advice], title: str, best: Team) -> Table:
    """A row a model: by what the best team changes, and how the new one stands to it."""
    table = Table(title, "acc %", "±", "¢/1k", texts=("in the team", "beside today's"), wraps=False)
    table.title = f"Best team: {_names(best)}"
    table.add("today", *_accuracy(best.test, best.stderr), cents(best.cost), "", "")
    for one in found:
        new = set(one.team.models)
        moved = [f"−{name}" for name in best.models if name not in new]
        moved += [f"+{name}" for name in one.team.models if name not in best.models]
        figures = *_accuracy(one.team.test, one.team.stderr), cents(one.team.cost)
        table.add(one.about, *figures, " ".join(moved), one.verdict)
    return table


def _swap(found: Swap) -> list[str]:
    c = found.change
    shift = "" if found.shift is None else f", log-probs of choices move by {found.shift:.4f} nats on average"
    return [
        f"{counted(found.flipped, 'answer')} of {found.n:,} flip{shift}.",
        f"{found.other} minus {found.model}: {points(c.mean)} points, interval {points(c.low)} to "
        f"{points(c.high)}, McNemar's p {c.p_value:.2g}.",
        *(
            f"Best team {when}: {_names(t)}, {percent(t.test, 1)} %, {cents(t.cost)} ¢/1k."
            for when, t in (("before", found.before), ("after", found.after))
        ),
        found.verdict,
    ]


def _accuracy(accuracy: float, stderr: float) -> tuple[str, str]:
    return percent(accuracy, 1), percent(stderr, 1)


def _budget(text: str) -> str:
    return "all" if text == "inf" else text


def _names(team: Team) -> str:
    return ", ".join(team.models)
