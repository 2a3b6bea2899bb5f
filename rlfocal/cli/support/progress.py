"""Progress on stderr: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from rlfocal.base.options import Option
from rlfocal.base.wording import count_noun
from rlfocal.extraction.running.events import Event, Failure, share_of_tasks

if TYPE_CHECKING:
    from rlfocal.evaluation.conclusion import Verdicts
    from rlfocal.evaluation.leaderboard import Board
    from rlfocal.pool import PoolSpec
    from warehouse import Warehouse


@contextmanager
def progress_bars() -> Iterator[Callable[[str, float], None]]:
    """Yields `on_progress(title, share)`: a bar per title on a terminal, else a line when a title's share is
    1."""
    if not sys.stderr.isatty():
        finished: set[str] = set()

        def print_end(title: str, share: float) -> None:
            if share >= 1 and title not in finished:
                finished.add(title)
                progress_line(f"{title}: done")

        yield print_end
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    bars: dict[str, TaskID] = {}
    # Estimate speed over a long time: models of one pool, and phases of a training, run at different speeds.
    with Progress(*columns, console=Console(stderr=True), speed_estimate_period=600) as progress:

        def on_progress(title: str, share: float) -> None:
            if title not in bars:
                bars[title] = progress.add_task(title, total=1.0)
            progress.update(bars[title], completed=share)

        yield on_progress


def progress_line(text: str) -> None:
    """Prints one line of progress on stderr."""
    print(text, file=sys.stderr, flush=True)


@contextmanager
def extraction_bars(pool: PoolSpec) -> Iterator[Callable[[Event], None]]:
    """Yields the `on_progress` of an extraction, which shows a bar per model that moves with its tasks."""
    with progress_bars() as on_progress:
        yield share_of_tasks(on_progress, pool.count_tasks)


def print_extracted(extracted: int, present: int, replaced: Sequence[str]) -> None:
    """Prints how many partitions were committed now, and how many were in the warehouse before; on stderr,
    which of them were replaced, and why."""
    done = (
        f"extracted {count_noun(extracted, 'partition')} (model, task)"
        if extracted
        else "nothing was extracted"
    )
    typer.echo(f"{done}; {present} were already in the warehouse")
    for sentence in replaced:
        typer.echo(f"replaced: {sentence}", err=True)


def print_notes(location: str | None, models: Sequence[str]) -> None:
    """Prints remarks on these models' answers on stderr, a line each.

    There is a line for each model whose engine is slower than it could be, and for each task with missing
    answers. Others are for services whose responses differ from what was requested.
    """
    from rlfocal.extraction.recording import slower_models, unanswered_partitions
    from rlfocal.extraction.responses import odd_responses
    from warehouse import open_warehouse

    with open_warehouse(location, read_only=True) as warehouse:
        for sentence in slower_models(warehouse, models):
            typer.echo(f"slower: {sentence}", err=True)
        for sentence in odd_responses(warehouse, models):
            typer.echo(f"responses: {sentence}", err=True)
        for row in unanswered_partitions(warehouse, models):
            n, first = row["n_unanswered"], ", ".join(map(str, row["doc_ids"]))
            typer.echo(
                f"unanswered: {row['model']} on {row['benchmark']}/{row['task']}, {n} of "
                f"{count_noun(row['n_docs'], 'document')}, which count as wrong: {first}"
                f"{', ...' if n > len(row['doc_ids']) else ''} ({row['reason']}); the next run asks for "
                f"{row['n_to_ask'] or 'none'} of them again",
                err=True,
            )


def print_failures(failures: Sequence[Failure], what: str) -> None:
    """Prints failures on stderr, a row per model and reason; `what` is the noun for what failed."""
    from rich.console import Console

    from rlfocal.base.tables import Table

    reasons: dict[tuple[str, str], list[str]] = defaultdict(list)
    for f in failures:
        reasons[f.model, f.reason].append(f"{f.benchmark}/{f.task}")
    title = f"{count_noun(len(failures), what)} failed"
    table = Table("model", title=title, texts=("failed", "why"))
    for (model, reason), places in reasons.items():
        shown = ", ".join(places[:3]) + (f" and {len(places) - 3} more" if len(places) > 3 else "")
        table.add(model, shown, reason)
    Console(stderr=True).print(table)


All = Annotated[
    bool, Option("Print every method, interval and task before the table of verdicts.", flags=("--all",))
]


def print_everything(warehouse: Warehouse, boards: Sequence[Board]) -> None:
    """Prints every method, interval, task and note of these leaderboards."""
    from rlfocal.evaluation.merits import average_over_tasks
    from rlfocal.report.tables import print_over_tasks, print_table

    print_table(boards)
    for board in boards:
        print_over_tasks(board, average_over_tasks(warehouse, board))


def print_verdicts(verdicts: Verdicts, details: Callable[[], None] | None = None) -> None:
    """Prints conclusions, then the table of verdicts, its legend and notes.

    `details` prints more before the table, and the notes in place of this function.
    """
    from rich.console import Console
    from rich.text import Text

    from rlfocal.evaluation.verdicts import TERMINAL_LEGEND

    if not verdicts.table.rows:
        return
    console = Console()
    width = min(console.width, 100)
    for conclusion in verdicts.conclusions:
        console.print(Text(f"{conclusion.board}: {conclusion}", style="bold"), width=width)
    for sentence in verdicts.ceilings:
        console.print(Text(sentence))
    if details is not None:
        details()
    console.print(verdicts.table)
    for sentence in (TERMINAL_LEGEND, *verdicts.remarks):
        console.print(Text(sentence, style="dim"), width=width)
    if details is None:
        for note in verdicts.notes:
            console.print(Text(note, style="yellow"), width=width)
        more = "Every method: --all and `rlfocal report`; figures of merit: `rlfocal evaluate --merit`."
        console.print(Text(more, style="dim"), width=width)
