"""Boards on a terminal and in Markdown: accuracies, figures of merit, means over tasks, budgets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console
from rich.text import Text

from rlfocal.base.tables import Table
from rlfocal.base.wording import DASH, cents, counted, decimal, interval, known, percent
from rlfocal.evaluation.budgets import BudgetCurve
from rlfocal.evaluation.comparable import GIVEN_ROWS
from rlfocal.evaluation.leaderboard import CEILING, FLOOR, Board, Standing, is_ours
from rlfocal.evaluation.merits import Merits, mean_gain
from rlfocal.evaluation.over_tasks import OverTasks
from rlfocal.methods import Entry

SHOWN = 6
"""How many of the most accurate rivals are compared under a table; the report has all."""

READS = "reads, to choose and fuse: t the task's name, q the question, o the outputs of the models it asked"
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
            console.print(Text(str(verdict)), width=width)
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
    pool = f", {counted(len(board.other_pool), 'model')}" if board.other_pool else ""
    return (
        f"{board.benchmark}, {board.protocol} protocol{fitted}{reads}{split}, {tuning(board)}, "
        f"{board.n:,} test documents{pool}"
    )


def tuning(board: Board) -> str:
    """How the methods' settings were chosen."""
    if not board.trials:
        return "default settings"
    return f"settings tuned by {counted(board.trials, 'trial')} on folds of train"


def spread(standing: Standing) -> tuple[str, str]:
    """The standard errors over seeds and over documents, in points; a dash where there are not two seeds."""
    return plus_minus(standing.stderr_seeds), plus_minus(standing.stderr_docs)


def plus_minus(error: float | None) -> str:
    """A standard error in points."""
    return DASH if error is None else f"±{percent(error)}"


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


def _table(board: Board) -> Table:
    by_task = any(s.task_mean is not None for s in board.standings)
    in_turn = any((s.mean_rounds or 0) > 1 for s in board.standings)
    columns = ["acc %", "±seeds", "±docs", *["tasks"] * by_task, f"vs {board.baseline}", "reads", "asked"]
    table = Table("method", *columns, *["rounds"] * in_turn, "¢/1k", title=heading(board))
    for s in board.standings:
        cells = [s.method, percent(s.accuracy), *spread(s), *[percent(s.task_mean)] * by_task]
        cells += [interval(s.against_baseline), "".join(one[0] for one in s.reads) or DASH]
        cells += [decimal(s.mean_pool_size, 2), *[decimal(s.mean_rounds, 2)] * in_turn, cents(s.cost)]
        table.add(*cells, style="bold" if s.is_ours else "dim" if s.method == CEILING else "")
    return table


def print_merits(boards: Sequence[tuple[Board, Sequence[Merits]]], console: Console | None = None) -> None:
    """One table per board, then PerfGain over all of them."""
    console = console or Console()
    for board, found in boards:
        ours = [s.method for s in board.ours]
        gains = Table("method", "acc %", "gain", "save", "gap", "dist", "ECE", "Brier", title=heading(board))
        curves = Table(
            "method", "AIQ", "APGR", "CPT50", "CPT80", *(f"p {name}" for name in [board.baseline, *ours])
        )
        for m in found:
            style = "bold" if m.method in ours else ""
            shares = map(_share, (m.gain, m.cost_save, m.gap_to_oracle))
            numbers = map(decimal, (m.pareto_distance, m.ece, m.brier))
            gains.add(m.method, percent(m.accuracy), *shares, *numbers, style=style)
            p_values = (m.p_best_single, *(m.p_ours.get(name, float("nan")) for name in ours))
            curves.add(m.method, *map(decimal, (m.aiq, m.apgr, m.cpt_50, m.cpt_80, *p_values)), style=style)
        console.print(gains)
        console.print(curves)
        of_tasks = {m.method: m.over_tasks for m in found if m.over_tasks}
        print_over_tasks(board, of_tasks, console, paired=True)
        console.print()
    if len(boards) > 1:
        mean_gains = mean_gain([found for _, found in boards])
        table = Table("method", "PerfGain", title=f"Over {len(boards)} data sets")
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
    table = Table("method", "tasks %", "by docs", "by tasks", title=title)
    for name, of in ranked:
        intervals = [f"[{percent(i.low)}, {percent(i.high)}]" for i in (of.by_documents, of.by_tasks)]
        style = "bold" if name in ours else "dim" if name == CEILING else ""
        table.add(name, percent(of.by_documents.mean), *intervals, style=style)
    console.print(table)
    if paired and any(of.above_by_tasks for _, of in ranked):
        table = Table("method", f"vs {board.baseline}, by docs", "by tasks", title=f"{title}, in points")
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
    table = Table("method", *names, title=f"{heading(board)}: accuracy in % (models asked) by budget")
    for curve in curves:
        points = [curve.at(budget) for budget in budgets]
        cells = [DASH if p is None else f"{percent(p.accuracy)} ({p.mean_pool_size:.1f})" for p in points]
        table.add(curve.method, *cells, style="bold" if is_ours(curve.method) else "")
    console.print(table)


def markdown_results(
    boards: Sequence[tuple[Board, Sequence[BudgetCurve]]], budgets: Sequence[str] = ("1", "2", "4")
) -> list[str]:
    """A Markdown table of all boards: accuracy in % as it is (and models asked), then at each budget."""
    columns = [
        name + f" ≤ {budget}" if budget else name
        for name in (f"{b.benchmark} (tuned, {b.trials})" if b.trials else b.benchmark for b, _ in boards)
        for budget in ("", *budgets)
    ]
    table = Table("method", *columns)
    standings = [{s.method: s for s in board.standings} for board, _ in boards]
    curves = [{curve.method: curve for curve in found} for _, found in boards]
    for name in dict.fromkeys(s.method for board, _ in boards for s in board.standings):
        cells = []
        for of_board, of_curves in zip(standings, curves, strict=True):
            s, curve = of_board.get(name), of_curves.get(name)
            cells.append(f"{percent(s.accuracy)} ({s.mean_pool_size:.1f})" if s else DASH)
            points = [curve.at(budget) if curve else None for budget in budgets]
            cells += [percent(p.accuracy) if p else DASH for p in points]
        table.add(f"`{name}`", *cells)
    return table.markdown()


def markdown_methods(entries: Iterable[Entry]) -> list[str]:
    """The register of methods as the docs show it: a Markdown table, a row a method."""
    table = Table("method", texts=("asks", "answers", "needs", "from; what differs"))
    for one in entries:
        origin = "; ".join(part for part in (one.source, one.differs) if part)
        table.add(f"`{one.pattern}`", one.asks, one.answers, one.needs_in_words, origin)
    return table.markdown()


def _share(value: float) -> str:
    return DASH if known(value) is None else f"{100 * value:+.1f}%"
