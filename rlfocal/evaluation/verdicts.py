"""The verdicts on RL-Focal's methods on a benchmark: a row for each, beside the best rival."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from rlfocal.base.names import CEILING_METHOD
from rlfocal.base.tables import Table
from rlfocal.base.wording import MISSING_CELL, cents, count_noun, decimal, interval, percent, points

if TYPE_CHECKING:
    from rlfocal.evaluation.comparable import BoardKey
    from rlfocal.evaluation.leaderboard import Board, LeaderboardRow
    from rlfocal.statistics.intervals import Interval

LEVEL_MARGIN = 0.03
"""Two methods are level if the interval of their difference in accuracy contains 0 and stays within ± this.
"""
BY_TASK = "best_single+task"
"""A reference method: it costs one call, and needs the tasks' names."""
MAX_VERDICT_ROWS = 6
"""The most methods that are shown of a board that has none of RL-Focal's methods."""
COLUMN_MEANINGS = {
    "acc %": "share of test documents answered right",
    "asked": "models asked per document, on average",
    "¢/1k": "cents per 1,000 queries, by the prices of the models asked",
    "change": "points since the last completed run in this warehouse",
    "points vs rival": "accuracy above that of the best rival, with the 95 % interval paired over test "
    "documents and seeds",
}
"""The meaning of each heading of a table of verdicts, whose arrow is left out here."""
TERMINAL_LEGEND = (
    "asked: models asked per document; ¢/1k: cents per 1,000 queries; [low, high]: the 95 % interval. "
    "level: within ±3 points of the best rival; undecided: the interval is wider. The rival is the best on "
    "these test documents. `rlfocal methods NAME` explains a method, docs/glossary.md the words."
)
"""The line below a table of verdicts in a terminal."""
VERDICT_LEGEND = (
    "↑: more is better, ↓: less is. level: the interval holds 0 and is within ±3 points; undecided: it holds "
    "0 and is wider. The best rival is best on these test documents, which favours it; best so far: usual "
    "methods are missing, as named below."
)
METHOD_SENTENCES = {
    "best_single": "the model that is best on train, alone",
    BY_TASK: "of each task, the model that is best on its train documents",
    "plurality": "what most of all models say",
    "rl_focal": "agents ask a few models at once and fuse what they say",
    "rl_focal_literal": "the same, as the paper's text has it",
    "rl_focal_sequential": "agents ask one model after the other until they are sure",
    "gated_log_linear": "a gate asks a few models, whose weighted log-probs decide",
    CEILING_METHOD: "right where any model is: a ceiling, no method",
}
"""Short descriptions of well-known methods, for the tables of verdicts."""


def verdict(difference: Interval | None) -> str:
    """The verdict on a difference in accuracy, by its interval; empty if `difference` is None."""
    if difference is None:
        return ""
    if -LEVEL_MARGIN <= difference.low <= 0 <= difference.high <= LEVEL_MARGIN:
        return "level"
    if difference.low <= 0 <= difference.high:
        return "undecided"
    return "ahead" if difference.low > 0 else "behind"


def verdict_table(
    boards: Sequence[Board],
    methods: Collection[str] = (),
    earlier_accuracies: Mapping[tuple[BoardKey, str], float] | None = None,
) -> Table:
    """One table of several boards: the baseline, these methods, the best rival and RL-Focal's methods.

    `earlier_accuracies`: for each board and method, an accuracy to show changes from, in points.
    """
    changes = [] if earlier_accuracies is None else ["change↑"]
    texts = ("method", "verdict")
    columns = ("acc %↑", "asked↓", "¢/1k↓", *changes, "points vs rival↑")
    shown = dict.fromkeys(s.method for board in boards for s in _select_rows(board, methods))
    table = Table(
        "benchmark",
        *columns,
        texts=texts,
        kept=texts[:1],
        title="Verdicts",
        caption=VERDICT_LEGEND,
        words=explain_words(shown),
    )
    for board in boards:
        name = title(board)
        for s in _select_rows(board, methods):
            was = None if earlier_accuracies is None else earlier_accuracies.get((board.key, s.method))
            change = "new" if was is None else points(s.accuracy - was)
            versus, told = _compare_with_rival(s, board)
            cells = [*_write_figures(s), *[change] * len(changes), versus, s.method, told]
            table.add(name, *cells, style="bold" if s.is_ours else "")
            name = ""
    return table


def best_of_ours(board: Board) -> LeaderboardRow | None:
    """The most accurate of RL-Focal's methods; None if none was evaluated."""
    return max(board.ours, key=lambda s: s.accuracy, default=None)


def find_rival_difference(row: LeaderboardRow, board: Board) -> Interval | None:
    """The difference of one of RL-Focal's methods to the best rival; None for other methods, and without a
    rival."""
    return None if board.rival is None else board.rival.ours_above.get(row.method)


def known_table(board: Board) -> Table:
    """A table of RL-Focal's methods beside well-known references, the best rival and the oracle."""
    columns = ("acc %↑", "asked↓", "¢/1k↓", "points vs rival↑")
    rival = [] if board.rival is None else [board.rival.method]
    names = dict.fromkeys(
        ["best_single", BY_TASK, "plurality", *rival, *(s.method for s in board.ours), CEILING_METHOD]
    )
    of_name = {s.method: s for s in board.rows}
    shown = [of_name[name] for name in names if name in of_name]
    words = explain_words([s.method for s in shown])
    table = Table(
        "method", *columns, texts=("verdict",), title="Who wins", caption=VERDICT_LEGEND, words=words
    )
    for s in shown:
        style = "bold" if s.is_ours else "dim" if s.method == CEILING_METHOD else ""
        table.add(s.method, *_write_figures(s), *_compare_with_rival(s, board), style=style)
    return table


def explain_words(methods: Iterable[str]) -> dict[str, str]:
    """The meaning of each heading of a table of verdicts, and a description of each of these methods."""
    from rlfocal.methods import entries

    words = dict(COLUMN_MEANINGS)
    for name in methods:
        plain = name.removesuffix("+task") if name not in METHOD_SENTENCES else name
        if (entry := entries().get(plain.partition(":")[0])) is not None:
            words[name] = METHOD_SENTENCES.get(plain) or f"asks {entry.asks}; answers with {entry.answers}"
    return words


def ceiling_sentence(benchmark: str, n_none_right: int | None, n: int) -> str:
    """A sentence on the highest accuracy of any policy that returns a model's answer.

    `n_none_right` of `n` documents no model answers right. The text is empty if that is None or 0.
    """
    from rlfocal.statistics.intervals import clopper_pearson  # scipy, for which no help text should wait

    if not n_none_right:
        return ""
    beta = clopper_pearson(n_none_right, n)
    low, high = percent(1 - beta.high, 1), percent(1 - beta.low, 1)
    return (
        f"{benchmark}: no policy that returns a model's answer can exceed {percent(1 - beta.mean, 1)} % "
        f"({low} to {high}): on {percent(beta.mean, 1)} % of {count_noun(n, 'test document')} no model is "
        "right."
    )


def unnamed_sentence(board: Board, methods: Collection[str] = ()) -> str:
    """A sentence on how often the methods of a table of verdicts gave an answer that is no asked model's own.

    A model's own answer is its likeliest choice, or its most frequent free answer. Empty if none did.
    """
    told = [
        f"{s.method} on {percent(s.unnamed, 1)} % of documents (right on {percent(s.unnamed_right, 1)} % of "
        "these)"
        for s in _select_rows(board, methods)
        if s.unnamed
    ]
    return f"{title(board)}: some answers were no asked model's own: {', '.join(told)}." if told else ""


def overview_table(boards: Sequence[Board]) -> Table:
    """A table with a row for each board: the best of RL-Focal's methods beside the best other method."""
    columns = ("acc %↑", "asked↓", "points vs rival↑")
    words = {"method": "the most accurate of RL-Focal's", "best rival": "the most accurate of the others"}
    texts = ("verdict", *words)
    table = Table("benchmark", *columns, texts=texts, title="Who wins", words=COLUMN_MEANINGS | words)
    for board in boards:
        ours, rival = best_of_ours(board), board.rival
        apart = None if ours is None else find_rival_difference(ours, board)
        figures = (MISSING_CELL, MISSING_CELL) if ours is None else _write_figures(ours)[:2]
        names = [MISSING_CELL if s is None else s.method for s in (ours, rival)]
        table.add(
            title(board), *figures, interval(apart) or MISSING_CELL, verdict(apart) or MISSING_CELL, *names
        )
    return table


def _write_figures(row: LeaderboardRow) -> tuple[str, str, str]:
    """The cells of accuracy, models asked and cost."""
    return percent(row.accuracy, 1), decimal(row.mean_pool_size, 1), cents(row.cost)


def _compare_with_rival(row: LeaderboardRow, board: Board) -> tuple[str, str]:
    """The cells of the difference to the best rival, and of the verdict."""
    if row is board.rival:
        best = "best so far" if board.missing else "best rival"
        return "", best if board.ours else "best; RL-Focal was not evaluated"
    if not row.is_ours or board.rival is None:
        return "", ""
    difference = find_rival_difference(row, board)
    return interval(difference), verdict(difference)


def _select_rows(board: Board, methods: Collection[str]) -> list[LeaderboardRow]:
    """The rows of a table of verdicts: the baseline, others by falling accuracy, then RL-Focal's methods."""
    wanted = {*methods, board.baseline, *([board.rival.method] if board.rival else [])}
    wanted |= {BY_TASK} if board.ours else set()
    if not board.ours and not methods:
        wanted |= {s.method for s in board.rows[:MAX_VERDICT_ROWS]}
    rest = [s for s in board.rows if s.method in wanted and not s.is_ours]
    return [*sorted(rest, key=lambda s: s.method != board.baseline), *board.ours]


def title(board: Board) -> str:
    """The title of a board: the benchmark, and how the evaluation differs from the default one."""
    differs = [board.protocol] if board.protocol != "frozen" else []
    differs += ["per task"] if board.per == "task" else []
    differs += [board.split] if board.split != "test" else []
    differs += ["+task"] if board.reads_task else []
    differs += [f"{board.trials} trials"] if board.trials else []
    differs += [count_noun(len(board.other_pool), "model")] if board.other_pool else []
    return f"{board.benchmark} ({', '.join(differs)})" if differs else board.benchmark
