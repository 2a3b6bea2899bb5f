"""How `regenerate` and `evaluate` end: one table of what matters, and with `--all` every figure before it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Annotated

from rlfocal.base.request import Option

if TYPE_CHECKING:
    from rlfocal.evaluation.leaderboard import Board
    from warehouse import Warehouse

All = Annotated[
    bool, Option("Print every method, interval and task before the table of verdicts.", flags=("--all",))
]


def print_verdicts(
    warehouse: Warehouse, boards: Sequence[Board], named: Collection[str] = (), *, everything: bool = False
) -> None:
    """Of each board the usual rows and methods in `named`; `everything`: first all that was evaluated."""
    from rich.console import Console
    from rich.text import Text

    from rlfocal.evaluation.merits import over_tasks
    from rlfocal.evaluation.verdicts import MEANING, verdict_table
    from rlfocal.report.tables import print_over_tasks, print_table

    if not boards:
        return
    console = Console()
    width = min(console.width, 100)
    if everything:
        print_table(boards)
        for board in boards:
            print_over_tasks(board, over_tasks(warehouse, board))
    console.print(verdict_table(boards, named))
    console.print(Text(MEANING, style="dim"), width=width)
    if not everything:
        for note in dict.fromkeys(note for board in boards for note in board.notes):
            console.print(Text(note, style="yellow"), width=width)
        more = "Every method: --all and `rlfocal report`; figures of merit: `rlfocal evaluate --merit`."
        console.print(Text(more, style="dim"), width=width)
