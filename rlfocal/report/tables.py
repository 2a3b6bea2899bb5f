"""The leaderboard on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from rlfocal.base.terminal import Listing
from rlfocal.base.wording import counted
from rlfocal.evaluation.comparable import GIVEN_ROWS
from rlfocal.evaluation.leaderboard import (
    CEILING,
    FLOOR,
    Board,
    Standing,
    cents,
    percent,
    points,
)
from rlfocal.statistics.intervals import Difference

SHOWN = 6
"""How many of the most accurate rivals are compared under a table; the report has all."""

READS = "reads, to choose and fuse: t the task's name, q the question, o the outputs of the models it asked"


def print_table(boards: Sequence[Board], console: Console | None = None) -> None:
    """One table per board, with the verdict under it.

    `tasks` is the mean of the task accuracies, `asked` the models asked per document, `rounds` how often it
    waits for models that are asked at the same time; the difference to best_single is in points, with its
    95 % interval over resampled seeds and documents (documents only if there is one seed). Under the table
    are the settings of tuned methods, and the same differences between RL-Focal's methods and their strongest
    rivals.
    """
    console = console or Console()
    width = min(console.width, 100)
    for board in boards:
        console.print(_table(board))
        console.print(Text(READS, style="dim"), width=width)
        if board.trials:
            console.print(Text(_settings(board)), width=width)
        for verdict in board.verdicts:
            console.print(Text(verdict), width=width)
        for ours in board.ours:
            if compared := _above(board, ours):
                console.print(Text(compared), width=width)
        if board.singles:
            alone = ", ".join(f"{s.model} {percent(s.accuracy)}" for s in board.singles)
            console.print(Text(f"Each model alone, in %: {alone}", style="dim"), width=width)
        for note in board.notes:
            console.print(Text(note, style="yellow"), width=width)
        console.print()


def heading(board: Board) -> str:
    fitted = "" if board.per == "benchmark" else ", fitted per task"
    split = "" if board.split == GIVEN_ROWS else f", split {board.split}"
    reads = ", with the task's name" if board.reads_task else ""
    return (
        f"{board.benchmark}, {board.protocol} protocol{fitted}{reads}{split}, {tuning(board)}, "
        f"{board.n:,} test documents"
    )


def tuning(board: Board) -> str:
    """How the methods' settings were chosen."""
    if not board.trials:
        return "default settings"
    return f"settings tuned by {counted(board.trials, 'trial')} on folds of train"


def spread(standing: Standing) -> tuple[str, str]:
    """The standard errors over seeds and over documents, in points; a dash where there are not two seeds."""
    over_seeds = "–" if standing.stderr_seeds is None else f"±{100 * standing.stderr_seeds:.2f}"
    return over_seeds, f"±{100 * standing.stderr_docs:.2f}"


def interval(difference: Difference) -> str:
    """In points: `+0.4 [−0.3, +1.1]`."""
    return f"{points(difference.mean)} [{points(difference.low)}, {points(difference.high)}]"


def _settings(board: Board) -> str:
    """The settings of every row of a tuned board."""
    tuned = [f"{s.method} {s.chosen}" for s in board.standings if s.settings]
    default = [s.method for s in board.standings if s.is_tuned and not s.settings]
    fixed = [s.method for s in board.standings if not s.is_tuned]
    parts = ("Chosen", "; ".join(tuned)), ("Best by default", ", ".join(default))
    return " ".join(
        f"{name}: {of}." for name, of in (*parts, ("No settings to tune", ", ".join(fixed))) if of
    )


def _above(board: Board, ours: Standing) -> str:
    """The difference of one of RL-Focal's methods to its strongest rivals; empty where there is none."""
    rivals = [
        s for s in board.standings if ours.method in s.ours_above and s.method not in {board.baseline, FLOOR}
    ]
    shown = [s for at, s in enumerate(rivals) if at < SHOWN or board.has_size_of(s, ours)]
    each = [
        f"{s.method}{', a constant pool of its size,' if board.has_size_of(s, ours) else ''} "
        f"{interval(s.ours_above[ours.method])}"
        for s in shown
    ]
    if not each:
        return ""
    return f"{ours.method} minus others, in points with paired 95 % intervals: {'; '.join(each)}"


def _table(board: Board) -> Listing:
    by_task = any(s.task_mean is not None for s in board.standings)
    in_turn = any((s.mean_rounds or 0) > 1 for s in board.standings)
    columns = [
        "acc %",
        "±seeds",
        "±docs",
        *["tasks"] * by_task,
        f"vs {board.baseline}",
        "reads",
        "asked",
        *["rounds"] * in_turn,
        "¢/1k",
    ]
    table = Listing("method", *columns, title=heading(board))
    for s in board.standings:
        d = s.against_baseline
        cells = [
            s.method,
            percent(s.accuracy),
            *spread(s),
            *([percent(s.task_mean) if s.task_mean is not None else "–"] if by_task else []),
            interval(d) if d else "–",
            "".join(one[0] for one in s.reads) or "–",
            f"{s.mean_pool_size:.2f}",
            *([f"{s.mean_rounds:.2f}" if s.mean_rounds is not None else "–"] if in_turn else []),
            cents(s.cost),
        ]
        table.add(*cells, style="bold" if s.is_ours else "dim" if s.method == CEILING else "")
    return table
