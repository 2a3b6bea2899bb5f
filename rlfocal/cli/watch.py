"""`rlfocal watch`: how far a pool has come, while it runs."""

from __future__ import annotations

from collections.abc import Sequence
from time import sleep
from typing import TYPE_CHECKING, Annotated

from rlfocal.base.request import Option
from rlfocal.base.wording import DASH, counted
from rlfocal.cli.support.commands import command
from rlfocal.cli.support.options import Location, Result

if TYPE_CHECKING:
    from rich.console import Group

    from rlfocal.extraction.running.watching import ModelProgress, PartitionProgress

_LISTED = 5  # running and failed partitions under the table


@command("watch", "Run a pool of LLMs")
def watch(
    pool: Annotated[
        str | None,
        Option(
            "The pool's name or its YAML file.",
            default="all that the warehouse knows",
            flags=("--pool", "-p"),
            complete="pools",
        ),
    ] = None,
    every: Annotated[
        float, Option("How often the table is drawn again.", least=0.2, metavar="SECONDS")
    ] = 2.0,
    once: Annotated[bool, Option("Print the table and end.")] = False,
    gpu_price: Annotated[
        float | None,
        Option("Price of a GPU-hour.", least=0, default="no money is shown", metavar="DOLLARS"),
    ] = None,
    warehouse: Location = None,
) -> Result:
    """Show a running extraction: models by benchmarks, with what is done, running and failed, and time left.

    Run it in a second terminal, over ssh too; it only reads. Ends when every partition is done, or with
    Ctrl-C, which leaves the extraction running. Progress within a partition is seen on the machine that
    runs it; other machines' partitions appear when they are committed.
    """
    from rich.console import Console
    from rich.live import Live

    from rlfocal.extraction.running.watching import State, read_progress
    from rlfocal.pool import load_pool
    from warehouse import open_warehouse

    chosen = None if pool is None else load_pool(pool)

    def look() -> list[ModelProgress]:
        with open_warehouse(warehouse, read_only=True) as opened:
            return read_progress(opened, chosen, gpu_price)

    first = look()

    def show() -> None:
        found, console = first, Console()
        if once or not console.is_terminal:
            console.print(_draw(found))
            return
        with Live(_draw(found), console=console, auto_refresh=False) as live:
            while any(model.count(State.DONE) < len(model.partitions) for model in found):
                sleep(every)
                found = look()
                live.update(_draw(found), refresh=True)

    return Result(first, show)


def _draw(found: Sequence[ModelProgress]) -> Group:
    from rich.console import Group
    from rich.text import Text

    from rlfocal.base.tables import Table
    from rlfocal.extraction.running.watching import State

    benchmarks = list(dict.fromkeys(p.key.benchmark for model in found for p in model.partitions))
    priced = any(model.dollars is not None for model in found)
    table = Table("model", *benchmarks, "tokens/s", "left", *["$"] * priced, *["$ left"] * priced)
    for model in found:
        speed = DASH if model.tokens_per_second is None else f"{model.tokens_per_second:,.0f}"
        money = [DASH if d is None else f"{d:,.2f}" for d in (model.dollars, model.dollars_left)]
        cells = [_cell(model, benchmark) for benchmark in benchmarks]
        table.add(model.model, *cells, speed, _duration(model.seconds_left), *money * priced)
    lines = [_summary(found)]
    for state in (State.RUNNING, State.FAILED, State.INTERRUPTED):
        those = [p for model in found for p in model.partitions if p.state is state]
        lines += [_line(p) for p in those[:_LISTED]]
        if len(those) > _LISTED:
            lines.append(f"and {len(those) - _LISTED} more {state.value}")
    return Group(table, Text("\n".join(lines)))


def _cell(model: ModelProgress, benchmark: str) -> str:
    """Partitions done of all, then what runs and what failed."""
    from rlfocal.extraction.running.watching import State

    total = sum(p.key.benchmark == benchmark for p in model.partitions)
    marks = ((State.RUNNING, "▶"), (State.FAILED, "✗"), (State.INTERRUPTED, "‖"))
    counts = [(sign, model.count(state, benchmark)) for state, sign in marks]
    return " ".join(
        [f"{model.count(State.DONE, benchmark)}/{total}", *(f"{sign}{n}" for sign, n in counts if n)]
    )


def _summary(found: Sequence[ModelProgress]) -> str:
    from rlfocal.extraction.running.watching import State

    total = sum(len(model.partitions) for model in found)
    counts = {state: sum(model.count(state) for model in found) for state in State}
    others = [f"{n:,} {state.value}" for state, n in counts.items() if n and state is not State.DONE]
    return ", ".join([f"{counts[State.DONE]:,} of {counted(total, 'partition')} done", *others])


def _line(p: PartitionProgress) -> str:
    progress = f"{p.done:,} of {DASH if p.total is None else f'{p.total:,}'} documents"
    what = progress if p.reason is None else p.reason
    return f"{p.state.value}: {p.key.model} on {p.key.benchmark}/{p.key.task}: {what}"


def _duration(seconds: float | None) -> str:
    """
    >>> _duration(59.4), _duration(3700), _duration(None)
    ('59 s', '1 h 01 min', '–')
    """
    if seconds is None:
        return DASH
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"
