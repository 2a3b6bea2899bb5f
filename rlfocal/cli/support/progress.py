"""Progress on stderr: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bars() -> Iterator[Callable[[str, float], None]]:
    """Yields `on_progress(title, share)`: one bar per title on a terminal, else a line as each title ends."""
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
    """One line of progress on stderr."""
    print(text, file=sys.stderr, flush=True)
