"""The report as one self-contained HTML file: no network, no script, light and dark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from platform import python_version

from markupsafe import Markup

from rlfocal.base.atomic import write_file
from rlfocal.base.errors import InputError
from rlfocal.base.tables import render
from rlfocal.base.wording import cents, decimal, percent, points
from rlfocal.evaluation.comparable import SINGLE
from rlfocal.evaluation.leaderboard import CEILING, FLOOR, Board, Standing, leaderboard
from rlfocal.evaluation.studies.findings import Findings, load
from rlfocal.report.curves import caption, learning
from rlfocal.report.drift import drift_part
from rlfocal.report.explained import explained_part
from rlfocal.report.figures import Drawn, figures_of
from rlfocal.report.inputs import add_mark, inputs_digest, is_made_from
from rlfocal.report.paper import paper_tables
from rlfocal.report.pools import PoolChoice, pool_choice
from rlfocal.report.tables import spread, tuning
from warehouse import Warehouse

PACKAGES = ("rlfocal", "duckdb", "lm_eval", "torch", "transformers")


@dataclass(frozen=True)
class TaskTable:
    """Accuracy of every model on every task's test documents."""

    models: tuple[str, ...]
    """By falling accuracy over all tasks."""
    tasks: tuple[tuple[str, int, tuple[float, ...]], ...]
    """(task, documents, accuracy per model)."""

    def shade(self, accuracy: float) -> str:
        """Where an accuracy stands between the lowest (0) and the highest (1) of the table."""
        every = [value for _, _, values in self.tasks for value in values]
        low, high = min(every), max(every)
        return f"{(accuracy - low) / (high - low):.2f}" if high > low else "0.5"


@dataclass(frozen=True)
class Ours:
    """How one of RL-Focal's methods learned, and which pools it asked."""

    method: str
    learning_figure: Markup
    learning_caption: str
    pool_figure: Markup
    choice: PoolChoice | None
    explained: Markup


@dataclass(frozen=True)
class Section:
    """What the page shows of one board."""

    anchor: str
    board: Board
    span: float
    """Half the width of the difference plot, as a fraction."""
    figures: tuple[Drawn, ...]
    ours: tuple[Ours, ...]
    tasks: TaskTable | None


def write_report(
    warehouse: Warehouse,
    path: str | Path,
    *,
    benchmarks: Sequence[str] | None = None,
    made_at: datetime | None = None,
    paper: bool = False,
    force: bool = False,
    on_progress: Callable[[float], None] | None = None,
) -> Path:
    """Write the report of everything evaluated so far, and return its path.

    `paper`: with the paper's accuracy tables, our figures beside theirs.

    A file made from the same snapshot, studies and code stays as it is, unless `force`.
    `on_progress` is given the share of benchmarks that are drawn.

    Raises InputError for a directory, and if the warehouse holds no evaluation (of the named benchmarks).
    """
    target = Path(path)
    if target.is_dir():
        raise InputError(f"{target} is a directory; give the report a file, as in {target / 'report.html'}")
    inputs = report_inputs(warehouse, benchmarks, made_at, paper)
    if not force and is_made_from(target, inputs):
        return target
    boards = leaderboard(warehouse, benchmarks)
    if not boards:
        of = f" of {', '.join(benchmarks)}" if benchmarks else ""
        raise InputError(f"the warehouse holds no evaluation{of}; run `rlfocal evaluate` first")
    target.parent.mkdir(parents=True, exist_ok=True)  # a path that cannot be one ends before the drawing
    page = render(
        "rlfocal.report",
        "report.html.j2",
        {f.__name__: f for f in (cents, decimal, percent, points, spread, tuning)},
        sections=_sections(warehouse, boards, on_progress),
        overview=_overview(boards),
        studies=_studies(warehouse, benchmarks),
        drift=drift_part(warehouse),
        paper=paper_tables(warehouse) if paper else (),
        facts=_facts(warehouse, made_at or datetime.now(UTC)),
    )
    write_file(target, add_mark(page, inputs))
    return target


def report_inputs(
    warehouse: Warehouse,
    benchmarks: Sequence[str] | None = None,
    made_at: datetime | None = None,
    paper: bool = False,
) -> str:
    """A digest of everything that `write_report` would make the page from."""
    settings = {"benchmarks": benchmarks, "made_at": made_at, "paper": paper}
    return inputs_digest(warehouse, **settings, versions=_versions())


def _sections(
    warehouse: Warehouse, boards: Sequence[Board], on_progress: Callable[[float], None] | None
) -> list[Section]:
    shown: set[tuple[str, TaskTable]] = set()
    sections = []
    for number, board in enumerate(boards):
        tasks = _task_table(board)
        is_new = tasks is not None and (board.benchmark, tasks) not in shown
        shown |= {(board.benchmark, tasks)} if tasks else set()
        sections.append(_section(warehouse, board, tasks if is_new else None, f"board{number}"))
        if on_progress is not None:
            on_progress((number + 1) / len(boards))
    return sections


def _section(warehouse: Warehouse, board: Board, tasks: TaskTable | None, anchor: str) -> Section:
    ours = tuple(_ours(warehouse, board, standing, f"{anchor}-{standing.method}") for standing in board.ours)
    figures = figures_of(warehouse, board, anchor)
    return Section(anchor, board, _span(board.standings), figures, ours, tasks)


def _ours(warehouse: Warehouse, board: Board, standing: Standing, anchor: str) -> Ours:
    # Not at the top: drawing imports matplotlib, which a page that is still true must not wait for.
    from rlfocal.report.figures.ours import learning_curves, pool_diversity

    method, runs = standing.method, [run.run_id for run in standing.runs]
    phases = learning(warehouse, runs)
    choice = pool_choice(warehouse, board.benchmark, runs, board.models)
    about = f"{method} learned on {board.benchmark}"
    return Ours(
        method,
        Markup(learning_curves(phases, about, f"{anchor}-learning") if phases else ""),
        caption(phases) if phases else "",
        Markup(pool_diversity(choice, f"{anchor}-pools", board.benchmark) if choice else ""),
        choice,
        explained_part(warehouse, board, standing),
    )


def _span(standings: Sequence[Standing]) -> float:
    """Wide enough for every method but the ceiling and the floor, which would flatten the rest."""
    ends = [
        abs(end)
        for s in standings
        if s.against_baseline and s.method not in {CEILING, FLOOR}
        for end in (s.against_baseline.low, s.against_baseline.high)
    ]
    return max([0.02, *ends]) * 1.08


def _studies(warehouse: Warehouse, benchmarks: Sequence[str] | None) -> list[tuple[Findings, Markup]]:
    """What studies of this warehouse found, newest last, with their figures."""
    from rlfocal.report.studies import figure

    files = sorted(warehouse.location.studies.glob("*.json"), key=lambda path: path.stat().st_mtime)
    found = [load(path) for path in files]
    wanted = [f for f in found if benchmarks is None or f.benchmark in benchmarks]
    return [(f, Markup(figure(f, f"study{at}"))) for at, f in enumerate(wanted)]


def _overview(boards: Sequence[Board]) -> list[tuple[str, list[Standing | None]]]:
    """Methods × boards, the methods by how close they come to the best on the boards that have them.

    By accuracy itself, a method evaluated only on easy boards would be on top.
    """
    found: dict[str, list[Standing | None]] = {}
    for at, board in enumerate(boards):
        for s in board.standings:
            if not s.method.startswith(SINGLE):
                found.setdefault(s.method, [None] * len(boards))[at] = s

    def mean(cells: Sequence[Standing | None]) -> float:
        known = [s.accuracy - board.best_accuracy for s, board in zip(cells, boards, strict=True) if s]
        return sum(known) / len(known)

    return sorted(found.items(), key=lambda item: (-mean(item[1]), item[0]))


def _task_table(board: Board) -> TaskTable | None:
    if not board.singles:
        return None
    models = tuple(single.model for single in board.singles)
    by_task = zip(*(single.tasks for single in board.singles), strict=True)
    tasks = ((of[0][0], of[0][1], tuple(accuracy for _, _, accuracy in of)) for of in by_task)
    return TaskTable(models, tuple(tasks))


def _facts(warehouse: Warehouse, made_at: datetime) -> dict[str, str]:
    return {
        "warehouse": warehouse.location.name,
        "snapshot": str(warehouse.snapshot()),
        "made": made_at.strftime("%Y-%m-%d %H:%M UTC"),
        "versions": _versions(),
    }


def _versions() -> str:
    return ", ".join([f"Python {python_version()}", *map(_versioned, PACKAGES)])


def _versioned(package: str) -> str:
    try:
        return f"{package.replace('_', '-')} {version(package)}"
    except PackageNotFoundError:
        return f"{package.replace('_', '-')} (source)"
