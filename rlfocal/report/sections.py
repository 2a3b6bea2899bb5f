"""The sections of the report's page and of exported files, one per leaderboard: their tables, figures and
documents, drawn in several processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from rlfocal.base.errors import InputError, RunError
from rlfocal.base.tables import Table
from rlfocal.base.wording import MISSING_CELL, cents, decimal, percent
from rlfocal.evaluation.auditing import LabelAudit, audit_labels
from rlfocal.evaluation.comparable import SINGLE_PREFIX, BoardKey, ComparableRuns
from rlfocal.evaluation.leaderboard import Board, make_board
from rlfocal.evaluation.notes import query_models
from rlfocal.evaluation.verdicts import known_table, title
from rlfocal.extraction.running.processes import Send, run_each
from rlfocal.extraction.running.runner import cores
from rlfocal.pool import load_benchmarks
from rlfocal.report.explained import make_explanation_tables
from rlfocal.report.figures import Figure, figures_of
from rlfocal.report.pools import PoolFigures, pool_choice
from rlfocal.report.tables import results_table
from warehouse import Warehouse, open_warehouse
from warehouse.locations import Location
from warehouse.opening import BenchmarkCopy
from warehouse.scripts import script

MAX_MODELS_SPELLED_OUT = 20
"""A pool of so many models or more is written as "all models" if it has all of them."""
MAX_SUSPECTS_LISTED = 50
"""The most documents of a benchmark in the table of labels that are probably wrong."""
MAX_PAGE_ANSWERS = 150_000
"""The most models' answers on a page, over all benchmarks; if there are more, documents are sampled."""
MAX_PAGE_DOCUMENTS, MIN_PAGE_DOCUMENTS = 2_000, 40
"""The most documents of a benchmark on a page, and the fewest in a sample."""
MAX_QUESTION_CHARACTERS, MAX_CHOICE_CHARACTERS = 1_200, 200
"""The most characters of a question, and of a choice or an answer, on a page."""
DRAWING_MODULES = ("altair", "pandas", "rlfocal.report.sections")
"""The modules that drawing needs, imported once for all processes."""


def every_method_table(boards: Sequence[Board]) -> Table:
    """A table of methods by leaderboards, sorted by how close a method comes to the best on its boards.

    If it were sorted by accuracy, a method evaluated only on easy boards would be on top.
    """
    table = Table(
        "method",
        *map(title, boards),
        title="Every method on every benchmark",
        caption="Accuracy on test documents in %, the mean over seeds. The oracle is a ceiling, no method.",
    )
    by_method = [
        {s.method: s for s in board.rows if not s.method.startswith(SINGLE_PREFIX)} for board in boards
    ]
    behind: dict[str, list[float]] = {}
    for board, of in zip(boards, by_method, strict=True):
        for name, s in of.items():
            behind.setdefault(name, []).append(board.best_accuracy - s.accuracy)
    for name in sorted(behind, key=lambda name: (sum(behind[name]) / len(behind[name]), name)):
        standings = [of.get(name) for of in by_method]
        ours = any(s is not None and s.is_ours for s in standings)
        cells = [MISSING_CELL if s is None else percent(s.accuracy) for s in standings]
        table.add(name, *cells, style="bold" if ours else "")
    return table


def _pool_in_words(pool: Sequence[str], models: Sequence[str]) -> str:
    """The names of a pool's models; "all models" for all of at least MAX_MODELS_SPELLED_OUT.

    >>> _pool_in_words(["a", "b"], ["b", "a"])
    'a, b'
    """
    is_all = len(models) >= MAX_MODELS_SPELLED_OUT and set(pool) == set(models)
    return "all models" if is_all else ", ".join(pool)


def _models_table(warehouse: Warehouse, board: Board) -> Table:
    """A table with a row for each model alone, on all test documents that it answered (`model_scores` in
    SQL)."""
    table = Table(
        "model",
        *("accuracy %↑", "from", "to", "Brier↓", "log-loss↓", "documents", "¢/1k↓"),
        title="Models alone",
        caption="On the test documents that the warehouse holds; from, to: Wilson's 95 % interval. "
        "¢/1k: cents per 1,000 queries.",
    )
    prices = {single.model: single.cost for single in board.singles}
    for model, n, accuracy, low, high, brier, log_loss in query_models(
        warehouse, "model_scores", board.benchmark, board.models
    ):
        shares = (percent(accuracy), percent(low), percent(high))
        table.add(model, *shares, decimal(brier), decimal(log_loss), f"{n:,}", cents(prices.get(model)))
    return table


def _pools_table(warehouse: Warehouse, board: Board) -> Table:
    """A table of the pools that RL-Focal's methods chose most, with all models and the best pool in
    hindsight."""
    table = Table(
        "method",
        *("share %", "models", "focal diversity", "plurality %"),
        texts=("pool",),
        title="Pools that RL-Focal chose",
        caption="share: of its decisions. Focal diversity is 0 where the models of a pool always fail "
        "together and 1 where no two ever do.",
    )

    def add(name: str, pool: PoolFigures, share: str) -> None:
        numbers = decimal(pool.focal_diversity), percent(pool.plurality_accuracy)
        table.add(name, share, str(len(pool.models)), *numbers, _pool_in_words(pool.models, board.models))

    for s in board.ours:
        choice = pool_choice(warehouse, board.benchmark, [run.run_id for run in s.runs], board.models)
        if choice is None:
            continue
        for pool in choice.chosen_pools:
            add(s.method, pool, percent(pool.share))
        if s is board.ours[-1]:
            add("all models", choice.whole_pool, MISSING_CELL)
            add("best in hindsight", choice.best_pool, MISSING_CELL)
    return table


def labels_table(warehouse: Warehouse, board: Board, *, confidential: bool) -> Table:
    """A table of documents whose label is probably wrong; empty if the benchmark cannot be audited.

    Questions of confidential documents are left out unless `confidential`.
    """
    audit = _audit_labels(warehouse, warehouse.snapshot(), board.benchmark, tuple(board.models))
    if audit is None:
        return Table("")
    registered = load_benchmarks().get(board.benchmark)
    is_open = confidential or registered is None or not registered.confidential
    table = audit.table(MAX_SUSPECTS_LISTED, with_texts=is_open)
    table.caption = " ".join([*audit.sentences(), table.caption])
    return table


@lru_cache(maxsize=1)  # a benchmark's boards are drawn one after another
def _audit_labels(
    warehouse: Warehouse, snapshot: int, benchmark: str, models: tuple[str, ...]
) -> LabelAudit | None:
    try:
        return audit_labels(warehouse, benchmark, models)
    except InputError:
        return None


def documents(
    warehouse: Warehouse, board: Board, boards: int, *, confidential: bool
) -> dict[str, Any] | None:
    """The test documents of a leaderboard for the page's script, or a random sample of many; None without
    any.

    `boards`: the number of boards on the page. Texts of confidential documents are left out unless
    `confidential`. The keys of a document are short. `i` is its id, `t` its task's position, and `c` says
    whether it has choices. `s` has each model's answer (-1: none), `p` percents of answers by model, `y` the
    right answer (-1: no model's). `f` has, by method, the models asked by rounds, the answer, whether it is
    right, and its probability. `q`, `a` and `g` are the texts of question, answers and gold.
    """
    runs = {standing.runs[0].run_id: standing.method for standing in board.ours}
    of = [run.run_id for standing in board.rows for run in standing.runs][:1]
    limit = max(min(MAX_PAGE_ANSWERS // len(board.models) // boards, MAX_PAGE_DOCUMENTS), MIN_PAGE_DOCUMENTS)
    hidden = [name for name, registered in load_benchmarks().items() if registered.confidential]
    about: dict[str, Any] = {"benchmark": board.benchmark, "models": list(board.models), "limit": limit}
    about |= {"runs": list(runs) or of, "hidden": [] if confidential else hidden, "show": confidential}
    about |= {"longest": MAX_QUESTION_CHARACTERS}
    stored = warehouse.query(script("queries/documents"), about).to_pylist()
    if not stored:
        return None
    tasks = list(dict.fromkeys(row["task"] for row in stored))
    rank = {model: place for place, model in enumerate(board.models)}
    shown = [_pack_document(row, rank, runs) | {"t": tasks.index(row["task"])} for row in stored]
    seeds = {standing.method: standing.runs[0].seed for standing in board.ours}
    return {"models": board.models, "tasks": tasks, "n": board.n, "documents": shown, "seeds": seeds}


def _pack_document(row: dict[str, Any], rank: dict[str, int], runs: dict[str, str]) -> dict[str, Any]:
    is_choice = row["label"] is not None
    slots: dict[str, int] = {}

    def slot(answer: str) -> int:
        return int(answer) if is_choice else slots.setdefault(answer, len(slots))

    slots_said = [-1] * len(rank)
    shares: list[list[list[int]]] = [[] for _ in rank]
    for entry in row["said"] or ():
        place = rank[entry["model"]]
        slots_said[place] = -1 if entry["said"] is None else slot(entry["said"])
        shares[place] = [[slot(part["answer"]), part["percent"]] for part in entry["shares"]]
    right = row["label"] if is_choice else slots.get(row["gold"], -1)
    packed: dict[str, Any] = {"i": row["doc_id"], "c": is_choice, "s": slots_said, "y": right}
    packed["p"] = [[percent for _, percent in sorted(of)] for of in shares] if is_choice else shares
    packed["f"] = {
        runs[entry["run_id"]]: [
            [[rank[m] for m in names if m in rank] for names in entry["rounds"]],
            -1 if entry["said"] is None else slot(entry["said"]),
            int(bool(entry["correct"])),
            None if entry["probability"] is None else round(100 * entry["probability"]),
        ]
        for entry in row["decided"] or ()
        if entry["run_id"] in runs
    }
    if row["is_open"]:
        packed["q"] = row["question"] or ""
        texts: Sequence[str] = row["choices"] or () if is_choice else list(slots)
        packed["a"] = [text[:MAX_CHOICE_CHARACTERS] for text in texts]
        if not is_choice and right < 0:
            packed["g"] = (row["gold"] or "")[:MAX_CHOICE_CHARACTERS]
    return packed


@dataclass(frozen=True)
class Section:
    """The tables, figures and documents of one leaderboard, for the page and the export."""

    title: str
    board: Board
    tables: Mapping[str, Table]
    figures: Mapping[str, Figure]
    explanations: tuple[tuple[str, tuple[Table, ...]], ...]
    """Pairs of a heading and tables on what a method of RL-Focal's learned."""
    documents: dict[str, Any] | None
    """The decided documents that the page shows one by one; None if there are none."""


def draw_side_by_side(
    warehouse: Warehouse,
    comparable: Mapping[BoardKey, ComparableRuns],
    *,
    confidential: bool,
    on_progress: Callable[[float], None] | None = None,
) -> list[Section]:
    """The sections of these leaderboards in their order, as of one snapshot, drawn in a process per core.

    `on_progress` is called with the share of boards that are drawn. Raises RunError if a process fails.
    """
    drawn: dict[BoardKey, Section] = {}

    def on_event(_: str, event: tuple[BoardKey, Section]) -> None:
        key, drawn[key] = event
        if on_progress is not None:
            on_progress(len(drawn) / len(keys))

    keys = list(comparable)
    about = warehouse.location, warehouse.snapshot(), len(keys), confidential
    at_once = min(cores(), len(keys))
    if at_once < 2:
        _draw_some(partial(on_event, ""), *about, comparable)
    else:
        parts = _deal(comparable, at_once)
        jobs = {f"drawing {n}": (*about, part) for n, part in enumerate(parts)}
        ended = run_each(_draw_some, jobs, at_once=at_once, on_event=on_event, preload=DRAWING_MODULES)
        if failed := [reason for reason in ended.values() if reason is not None]:
            raise RunError(failed[0])
    return [drawn[key] for key in keys]


def _deal(
    comparable: Mapping[BoardKey, ComparableRuns], n_parts: int
) -> list[dict[BoardKey, ComparableRuns]]:
    """The leaderboards in parts of similar work: the largest first, each to the part with the least work."""
    parts: list[dict[BoardKey, ComparableRuns]] = [{} for _ in range(n_parts)]
    for key in sorted(comparable, key=lambda key: (-comparable[key].n, key)):
        least = min(parts, key=lambda part: sum(1000 + of.n for of in part.values()))
        least[key] = comparable[key]
    return parts


def _draw(
    warehouse: Warehouse, key: BoardKey, comparable: ComparableRuns, boards: int, confidential: bool
) -> Section:
    board = make_board(warehouse, key, comparable)
    tables = {
        "verdicts": known_table(board),
        "results": results_table(board),
        "models": _models_table(warehouse, board),
        "pools": _pools_table(warehouse, board),
        "labels": labels_table(warehouse, board, confidential=confidential),
    }
    return Section(
        title(board),
        board,
        {name: table for name, table in tables.items() if table.rows},
        figures_of(warehouse, board),
        tuple(make_explanation_tables(warehouse, board)),
        documents(warehouse, board, boards, confidential=confidential),
    )


def _draw_some(
    send: Send,
    location: Location,
    snapshot: int,
    boards: int,
    confidential: bool,
    comparable: Mapping[BoardKey, ComparableRuns],
) -> None:
    """Draws some leaderboards in a process of its own, and sends a pair of key and section for each."""
    with open_warehouse(location, snapshot=snapshot) as warehouse:
        in_memory = BenchmarkCopy(warehouse)
        for key, runs in comparable.items():
            in_memory.copy(key.benchmark)
            send((key, _draw(warehouse, key, runs, boards, confidential)))
