"""An extraction on a terminal: a bar per model while it runs, a summary at its end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from rlfocal.base.wording import counted
from rlfocal.cli.support.progress import progress_bars
from rlfocal.extraction.running.events import Event, Failure, share_of_tasks

if TYPE_CHECKING:
    from rlfocal.pool import PoolSpec


@contextmanager
def extraction_bars(pool: PoolSpec) -> Iterator[Callable[[Event], None]]:
    """Yields the `on_progress` of `extract_pool`: a bar per model, over its tasks."""
    with progress_bars() as on_progress:
        yield share_of_tasks(on_progress, sum(len(benchmark.tasks) for benchmark in pool.benchmarks))


def print_extracted(extracted: int, present: int) -> None:
    """Partitions committed now, and those that were there already."""
    done = (
        f"extracted {counted(extracted, 'partition')} (model, task)" if extracted else "nothing was extracted"
    )
    typer.echo(f"{done}; {present} were already in the warehouse")


def print_notes(location: str | None, models: Sequence[str]) -> None:
    """One line on stderr for each model whose engine takes a slower way, and each task it left unanswered."""
    from rlfocal.extraction.recording import slower_models, unanswered_partitions
    from warehouse import open_warehouse

    with open_warehouse(location, read_only=True) as warehouse:
        for sentence in slower_models(warehouse, models):
            typer.echo(f"slower: {sentence}", err=True)
        for row in unanswered_partitions(warehouse, models):
            n, first = row["n_unanswered"], ", ".join(map(str, row["doc_ids"]))
            typer.echo(
                f"unanswered: {row['model']} on {row['benchmark']}/{row['task']}, {n} of "
                f"{counted(row['n_docs'], 'document')}, which count as wrong: {first}"
                f"{', ...' if n > len(row['doc_ids']) else ''} ({row['reason']}); the next run asks for "
                f"{row['n_to_ask'] or 'none'} of them again",
                err=True,
            )


def print_failures(failures: Sequence[Failure], what: str) -> None:
    """One line per model and reason, on stderr; `what` is what failed."""
    from rich.console import Console

    from rlfocal.base.tables import Table

    reasons: dict[tuple[str, str], list[str]] = defaultdict(list)
    for f in failures:
        reasons[f.model, f.reason].append(f"{f.benchmark}/{f.task}")
    title = f"{counted(len(failures), what)} failed"
    table = Table("model", title=title, texts=("failed", "why"))
    for (model, reason), places in reasons.items():
        shown = ", ".join(places[:3]) + (f" and {len(places) - 3} more" if len(places) > 3 else "")
        table.add(model, shown, reason)
    Console(stderr=True).print(table)
