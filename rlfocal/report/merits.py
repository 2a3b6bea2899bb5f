"""Figures of merit and curves over budgets on a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan

from rich.console import Console
from rich.text import Text

from rlfocal.base.terminal import Listing
from rlfocal.evaluation.budgets import BudgetCurve
from rlfocal.evaluation.leaderboard import CEILING, Board, percent
from rlfocal.evaluation.merits import Merits, mean_gain
from rlfocal.evaluation.over_tasks import OverTasks
from rlfocal.report.tables import heading, interval

_MEANING = (
    "gain: accuracy / best single - 1. save: 1 - cost / best single's, for methods no less accurate. gap: "
    "shortfall from the oracle, as its share. dist: to the Pareto front of log cost and accuracy. AIQ: "
    "mean accuracy of the hull over cost. APGR, CPT: RouteLLM's, between the cheapest model and the best. "
    "ECE, Brier: of the probability given to an answer. p: of the paired difference, by Holm's method over "
    "all methods. Curves need budgets (`rlfocal evaluate --budgets`), and costs need prices."
)

_OVER_TASKS = (
    "Every task counts equally; 95 % intervals. by docs: documents resampled within each task, valid for "
    "these tasks. by tasks: whole tasks resampled, valid for tasks like these, but too narrow with fewer "
    "than 20."
)


def print_merits(boards: Sequence[tuple[Board, Sequence[Merits]]], console: Console | None = None) -> None:
    """One table per board, then PerfGain over all of them."""
    console = console or Console()
    for board, found in boards:
        ours = [s.method for s in board.ours]
        gains = Listing(
            "method", "acc %", "gain", "save", "gap", "dist", "ECE", "Brier", title=heading(board)
        )
        curves = Listing(
            "method", "AIQ", "APGR", "CPT50", "CPT80", *(f"p {name}" for name in [board.baseline, *ours])
        )
        for m in found:
            style = "bold" if m.method in ours else ""
            shares = (_share(value) for value in (m.gain, m.cost_save, m.gap_to_oracle))
            numbers = (_number(value) for value in (m.pareto_distance, m.ece, m.brier))
            gains.add(m.method, percent(m.accuracy), *shares, *numbers, style=style)
            p_values = (m.p_best_single, *(m.p_ours.get(name, float("nan")) for name in ours))
            over = (m.aiq, m.apgr, m.cpt_50, m.cpt_80, *p_values)
            curves.add(m.method, *map(_number, over), style=style)
        console.print(gains)
        console.print(curves)
        of_tasks = {m.method: m.over_tasks for m in found if m.over_tasks}
        print_over_tasks(board, of_tasks, console, paired=True)
        console.print()
    if len(boards) > 1:
        mean_gains = mean_gain([found for _, found in boards])
        table = Listing("method", "PerfGain", title=f"Over {len(boards)} data sets")
        for name, gain in sorted(mean_gains.items(), key=lambda item: -item[1]):
            table.add(name, _share(gain))
        console.print(table)
    console.print(Text(_MEANING, style="dim"), width=min(console.width, 100))


def print_over_tasks(
    board: Board, found: Mapping[str, OverTasks], console: Console | None = None, *, paired: bool = False
) -> None:
    """Every method's mean over tasks, by falling mean, with both intervals; nothing of a single task.

    `paired`: also those of the differences to best_single.
    """
    if not found:
        return
    console = console or Console()
    ours = {s.method for s in board.ours}
    ranked = sorted(found.items(), key=lambda item: -item[1].by_documents.mean)
    title = f"{heading(board)}: mean over {ranked[0][1].n_tasks} tasks"
    table = Listing("method", "tasks %", "by docs", "by tasks", title=title)
    for name, of in ranked:
        intervals = [f"[{percent(i.low)}, {percent(i.high)}]" for i in (of.by_documents, of.by_tasks)]
        style = "bold" if name in ours else "dim" if name == CEILING else ""
        table.add(name, percent(of.by_documents.mean), *intervals, style=style)
    console.print(table)
    if paired and any(of.above_by_tasks for _, of in ranked):
        table = Listing("method", f"vs {board.baseline}, by docs", "by tasks", title=f"{title}, in points")
        for name, of in ranked:
            if of.above_by_documents and of.above_by_tasks:
                table.add(name, interval(of.above_by_documents), interval(of.above_by_tasks))
        console.print(table)
    console.print(Text(_OVER_TASKS, style="dim"), width=min(console.width, 100))


def print_budgets(board: Board, curves: Sequence[BudgetCurve], console: Console | None = None) -> None:
    """Accuracy in % at each budget, and the models asked per document; a dash where it cannot be kept."""
    console = console or Console()
    if not curves:
        console.print(Text("None of these methods can be held to a budget.", style="yellow"))
        return
    budgets = list(dict.fromkeys(p.budget for curve in curves for p in curve.points))
    budgets.sort(key=lambda budget: (budget.endswith("c"), float(budget.rstrip("c"))))
    names = ["all" if budget == "inf" else budget for budget in budgets]
    table = Listing("method", *names, title=f"{heading(board)}: accuracy in % (models asked) by budget")
    for curve in curves:
        points = [curve.at(budget) for budget in budgets]
        cells = ["–" if p is None else f"{percent(p.accuracy)} ({p.mean_pool_size:.1f})" for p in points]
        table.add(curve.method, *cells, style="bold" if curve.method.startswith("rl_focal") else "")
    console.print(table)


def _share(value: float) -> str:
    return "–" if isnan(value) else f"{100 * value:+.1f}%"


def _number(value: float) -> str:
    return "–" if isnan(value) else f"{value:.3f}"


def markdown_results(
    boards: Sequence[tuple[Board, Sequence[BudgetCurve]]], budgets: Sequence[str] = ("1", "2", "4")
) -> list[str]:
    """A Markdown table of all boards: accuracy in % as it is (and models asked), then at each budget."""
    columns = [
        name + f" ≤ {budget}" if budget else name
        for name in (f"{b.benchmark} (tuned, {b.trials})" if b.trials else b.benchmark for b, _ in boards)
        for budget in ("", *budgets)
    ]
    rows = ["| method | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    standings = [{s.method: s for s in board.standings} for board, _ in boards]
    curves = [{curve.method: curve for curve in found} for _, found in boards]
    for name in dict.fromkeys(s.method for board, _ in boards for s in board.standings):
        cells = []
        for of_board, of_curves in zip(standings, curves, strict=True):
            s, curve = of_board.get(name), of_curves.get(name)
            cells.append(f"{percent(s.accuracy)} ({s.mean_pool_size:.1f})" if s else "–")
            points = [curve.at(budget) if curve else None for budget in budgets]
            cells += [percent(p.accuracy) if p else "–" for p in points]
        rows.append(f"| `{name}` | " + " | ".join(cells) + " |")
    return rows
