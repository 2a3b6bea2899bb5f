"""`rlfocal explain`: what trained agents learned, in three tables."""

from __future__ import annotations

from typing import Annotated

from rlfocal.base.request import Benchmark, Models, Option, Per
from rlfocal.base.wording import percent
from rlfocal.cli.support.commands import command
from rlfocal.cli.support.options import Location, Result
from rlfocal.cli.support.progress import progress_bars


@command("explain", "Learn and compare")
def explain(
    benchmark: Benchmark,
    method: Annotated[str, Option("The method to explain: rl_focal or rl_focal_sequential.")] = "rl_focal",
    models: Models = None,
    seed: Annotated[int, Option("The seed of the agents.", least=0, metavar="K")] = 0,
    per: Per = "benchmark",
    split: Annotated[
        str,
        Option("The split, as for `rlfocal evaluate`.", metavar="given|last|random|tasks"),
    ] = "given",
    warehouse: Location = None,
) -> Result:
    """Explain what RL-Focal learned: which models it asks first, believes and could drop, and where it stops.

    Uses stored outputs on test rows and the checkpoint of `rlfocal evaluate` or `train` (trained now if it is
    missing). The result is kept beside the warehouse, so that `rlfocal report` shows it.
    """
    from rich.console import Console
    from rich.text import Text

    from rlfocal.evaluation.explaining import explain as run
    from rlfocal.report.explained import heading, tables
    from warehouse import open_warehouse

    with open_warehouse(warehouse, read_only=True, create=False) as opened, progress_bars() as on_progress:
        found = run(
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
        console.print(Text(heading(found), style="bold"))
        console.print(Text(f"{found.n:,} test documents, {percent(found.accuracy)} % right"))
        for table in tables(found):
            console.print("", table, Text(table.caption, style="dim"), sep="\n")

    return Result(found, show)
