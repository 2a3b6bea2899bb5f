"""Tables of leaderboards (accuracies, figures of merit, means over tasks, budgets), and of all methods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import nan

from rich.console import Console
from rich.text import Text

from rlfocal.base.names import CEILING_METHOD
from rlfocal.base.tables import Table
from rlfocal.base.wording import MISSING_CELL, cents, count_noun, decimal, interval, number_or_none, percent
from rlfocal.evaluation.leaderboard import Board, LeaderboardRow, is_ours
from rlfocal.evaluation.merits import BudgetCurve, Merits, TaskMean
from rlfocal.evaluation.promising import PROMISE_LEGEND, PromiseRecord, table_of
from rlfocal.evaluation.verdicts import explain_words, title
from rlfocal.methods import Entry
from rlfocal.statistics.selective import SelectiveFigures

_RESULTS_LEGEND = (
    "± seeds: the standard error of the mean over training seeds; ± docs: the binomial one over test "
    "documents; neither contains the other. tasks %: the mean of the tasks. asked: models per document. "
    "above: in points, with a 95 % interval over test documents, which are the same for both, and over "
    "seeds; {} such intervals, not corrected for their number (`rlfocal evaluate --merit` is). unnamed %: "
    "answers that no model gave which the method asked, and how many of these are right. reads: what a "
    "method looks at to choose and fuse."
)
_DECIDING = (
    " decides: what decides in the fits of a trained method: what it learned, or a simpler policy that it is "
    "not clearly better than on held-out train documents; then how many different pools test documents are "
    "asked, and the share of the commonest."
)

_MERITS_LEGEND = (
    "gain: accuracy / best single - 1. save: 1 - cost / best single's, for methods no less accurate. gap: "
    "shortfall from the oracle, as its share. dist: to the Pareto front of log cost and accuracy. AIQ: "
    "mean accuracy of the hull over cost. APGR, CPT: RouteLLM's, between the cheapest model and the best. "
    "ECE: of the probability given to an answer. AURC: mean share of wrong answers, if only the likeliest "
    "are given, over all numbers of them. acc@80: % right of the likeliest 80 %. cov@5: % answered with at "
    "most 5 % wrong. p: of the paired difference, by Holm's method over all methods. Curves need budgets "
    "(`rlfocal evaluate --budgets`), and costs need prices."
)

_OVER_TASKS_LEGEND = (
    "Every task counts equally; 95 % intervals. by docs: documents vary within each task, valid for these "
    "tasks. by tasks: whole tasks vary, valid for tasks like these."
)


def results_table(board: Board) -> Table:
    """The table of a leaderboard's results, with a row for each method."""
    by_task = any(s.task_mean is not None for s in board.rows)
    in_turn = any((s.mean_rounds or 0) > 1 for s in board.rows)
    columns = ["accuracy %↑", "± seeds↓", "± docs↓", *["tasks %↑"] * by_task, "asked↓"]
    columns += [*["rounds↓"] * in_turn, "¢/1k↓", f"above {board.baseline}↑"]
    columns += [f"{ours.method} above it" for ours in board.ours]
    names_own = any(s.unnamed for s in board.rows)
    columns += ["unnamed %"] * names_own
    has_trained = any(s.deciding for s in board.rows)
    texts = ("reads", *["decides"] * has_trained, *["settings"] * bool(board.trials))
    caption = _RESULTS_LEGEND.format(_count_comparisons(board)) + _DECIDING * has_trained
    words = explain_words(s.method for s in board.rows)
    table = Table("method", *columns, texts=texts, title="Methods", caption=caption, words=words)
    for s in board.rows:
        cells = [s.method, percent(s.accuracy), plus_minus(s.stderr_seeds), plus_minus(s.stderr_docs)]
        cells += [*[percent(s.task_mean)] * by_task, decimal(s.mean_pool_size, 2)]
        cells += [*[decimal(s.mean_rounds, 2)] * in_turn, cents(s.cost)]
        cells += [interval(s.against_baseline), *(interval(s.ours_above.get(o.method)) for o in board.ours)]
        cells += [_format_unnamed(s)] * names_own
        decides = deciding_in_words(s.deciding, s.n_pools, s.commonest_pool)
        cells += [
            ", ".join(s.reads) or MISSING_CELL,
            *[decides] * has_trained,
            *[s.chosen] * bool(board.trials),
        ]
        table.add(*cells, style="bold" if s.is_ours else "dim" if s.method == CEILING_METHOD else "")
    return table


def deciding_in_words(
    deciding: Sequence[tuple[str, int]], n_pools: Sequence[int], commonest: float | None
) -> str:
    """What decides in a trained method's fits, and how many different pools the fits ask.

    >>> deciding_in_words([("start", 3)], [1, 1, 1], 1.0)
    'start: 1 pool'
    >>> deciding_in_words([("learned", 2), ("start", 1)], [1, 9, 4], 0.75)
    'learned 2, start 1: 1 to 9 pools, 75 % the commonest'
    """
    if not deciding or not n_pools or commonest is None:
        return MISSING_CELL
    names = ", ".join(f"{name} {n}" for name, n in deciding) if len(deciding) > 1 else deciding[0][0]
    few, many = min(n_pools), max(n_pools)
    pools = count_noun(few, "pool") if few == many else f"{few:,} to {many:,} pools"
    return f"{names}: {pools}" + (f", {percent(commonest, 0)} % the commonest" if many > 1 else "")


def _count_comparisons(board: Board) -> int:
    """The number of intervals of differences that a leaderboard's table shows."""
    ours = [o.method for o in board.ours]
    return sum(
        (s.against_baseline is not None) + sum(s.ours_above.get(name) is not None for name in ours)
        for s in board.rows
    )


def print_table(boards: Sequence[Board], console: Console | None = None) -> None:
    """Prints, for each leaderboard, accuracies, methods' differences from others, and single models."""
    console = console or Console()
    width = min(console.width, 100)
    for board in boards:
        results, alone = results_table(board), Table("model alone", "accuracy %↑", "± docs↓", "¢/1k↓")
        columns = results.header[1:]
        differs = [name for name in columns if "above" in name]
        console.print(Text(heading(board), style="bold"))
        console.print(results.select(None, [name for name in columns if name not in differs], title=""))
        console.print(results.select(None, differs, title=""))
        for s in board.singles:
            alone.add(s.model, percent(s.accuracy), plus_minus(s.stderr_docs), cents(s.cost))
        console.print(alone, style="dim")
        for note in board.notes:
            console.print(Text(note, style="yellow"), width=width)
        console.print()


def heading(board: Board) -> str:
    """The heading of a leaderboard: its title, and its number of test documents."""
    return f"{title(board)}, {board.n:,} test documents"


def plus_minus(error: float | None) -> str:
    """A standard error in points; a dash if there is none."""
    return MISSING_CELL if error is None else f"±{percent(error)}"


def print_promises(promises: Sequence[PromiseRecord]) -> None:
    """Prints promises, and whether each is still in force."""
    console = Console()
    console.print(table_of(promises))
    console.print(Text(PROMISE_LEGEND, style="dim"), width=min(console.width, 100))


def print_merits(boards: Sequence[tuple[Board, Sequence[Merits]]]) -> None:
    """Prints figures of merit: two tables per leaderboard, and one of means over tasks."""
    if not boards:
        return
    console = Console()
    for board, merits in boards:
        ours = [s.method for s in board.ours]
        sure = "ECE", "AURC", "acc@80", "cov@5"
        gains = Table("method", "acc %", "gain", "save", "gap", "dist", *sure, title=heading(board))
        curves = Table(
            "method", "AIQ", "APGR", "CPT50", "CPT80", *(f"p {name}" for name in [board.baseline, *ours])
        )
        for m in merits:
            style = "bold" if m.method in ours else ""
            shares = map(_format_share, (m.gain, m.cost_save, m.gap_to_oracle))
            numbers = (decimal(m.pareto_distance), decimal(m.ece), *_format_selective(m.selective))
            gains.add(m.method, percent(m.accuracy), *shares, *numbers, style=style)
            p_values = (m.p_best_single, *(m.p_ours.get(name, nan) for name in ours))
            curves.add(m.method, *map(decimal, (m.aiq, m.apgr, m.cpt_50, m.cpt_80, *p_values)), style=style)
        console.print(gains)
        console.print(curves)
        of_tasks = {m.method: m.over_tasks for m in merits if m.over_tasks}
        print_over_tasks(board, of_tasks, console, paired=True)
        console.print()
    console.print(Text(_MERITS_LEGEND, style="dim"), width=min(console.width, 100))


def print_over_tasks(
    board: Board, by_method: Mapping[str, TaskMean], console: Console | None = None, *, paired: bool = False
) -> None:
    """Prints every method's mean over tasks, the highest first, with both intervals; nothing for a single
    task.

    `paired`: also the intervals of the differences from the baseline.
    """
    if not by_method:
        return
    console = console or Console()
    ours = {s.method for s in board.ours}
    ranked = sorted(by_method.items(), key=lambda item: -item[1].by_documents.mean)
    what = f"{heading(board)}: mean over {ranked[0][1].n_tasks} tasks"
    above = (f"vs {board.baseline}, by docs", "by tasks")
    table = Table("method", "tasks %", "by docs", "by tasks", *above * paired, title=what)
    for name, of in ranked:
        intervals = [f"[{percent(i.low)}, {percent(i.high)}]" for i in (of.by_documents, of.by_tasks)]
        intervals += [interval(of.above_by_documents), interval(of.above_by_tasks)] * paired
        style = "bold" if name in ours else "dim" if name == CEILING_METHOD else ""
        table.add(name, percent(of.by_documents.mean), *intervals, style=style)
    console.print(table)
    console.print(Text(_OVER_TASKS_LEGEND, style="dim"), width=min(console.width, 100))


def print_budgets(board: Board, curves: Sequence[BudgetCurve]) -> None:
    """Prints methods' accuracy in % and models asked at each budget; a dash where one cannot keep to it."""
    console = Console()
    if not curves:
        console.print(Text("None of these methods can be held to a budget.", style="yellow"))
        return
    budgets = list(dict.fromkeys(p.budget for curve in curves for p in curve.points))
    budgets.sort(key=lambda budget: (budget.endswith("c"), float(budget.rstrip("c"))))
    names = ["all" if budget == "inf" else budget for budget in budgets]
    table = Table("method", *names, title=f"{heading(board)}: accuracy in % (models asked) by budget")
    for curve in curves:
        points = [curve.find_point(budget) for budget in budgets]
        cells = [
            MISSING_CELL if p is None else f"{percent(p.accuracy)} ({p.mean_pool_size:.1f})" for p in points
        ]
        table.add(curve.method, *cells, style="bold" if is_ours(curve.method) else "")
    console.print(table)


def markdown_methods(entries: Iterable[Entry]) -> list[str]:
    """The registry of methods as a Markdown table for the docs, a row for each method."""
    table = Table("method", texts=("asks", "answers", "needs", "from; what differs"))
    for entry in entries:
        origin = "; ".join(part for part in (entry.source, entry.differs) if part)
        table.add(f"`{entry.pattern}`", entry.asks, entry.answers, entry.needs_in_words, origin)
    return table.markdown()


def _format_unnamed(row: LeaderboardRow) -> str:
    """The share of answers that no asked model gave, in %, and in brackets the share of these that are
    right."""
    return f"{percent(row.unnamed, 1)} ({percent(row.unnamed_right, 1)})" if row.unnamed else MISSING_CELL


def _format_selective(figures: SelectiveFigures | None) -> tuple[str, ...]:
    """The cells AURC, acc@80 and cov@5 of selective figures."""
    if figures is None:
        return MISSING_CELL, MISSING_CELL, MISSING_CELL
    shares = figures.accuracy_at["0.8"].mean, figures.coverage_at["0.05"].mean
    return decimal(figures.area.mean), *map(percent, shares)


def _format_share(value: float) -> str:
    return MISSING_CELL if number_or_none(value) is None else f"{100 * value:+.1f}%"
