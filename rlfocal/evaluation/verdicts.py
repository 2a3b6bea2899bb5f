"""What a benchmark says of RL-Focal's methods: each beside the best rival, in a sentence and in a table."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlfocal.base.tables import Table
from rlfocal.base.wording import cents, counted, decimal, percent, points

if TYPE_CHECKING:
    from rlfocal.evaluation.comparable import BoardKey
    from rlfocal.evaluation.leaderboard import Board, Standing
    from rlfocal.statistics.intervals import Difference, Interval

LEVEL = 0.03
"""Two methods are level if the interval of their difference lies within this of zero."""
UNDECIDED = "undecided"
BY_TASK = "best_single+task"
"""A reference: it costs one call, where tasks are told."""
ROWS = 6
"""How many methods are shown of a board without RL-Focal's."""
MEANING = (
    "Intervals: 95 %, paired over test documents and seeds; level: within ±3 points. The best rival is the "
    "best on these test documents, which favours it; best_single is chosen on train. ¢/1k: cents per 1,000 "
    "queries."
)
_SHARES = {"a tenth": 1 / 10, "a fifth": 1 / 5, "a quarter": 1 / 4, "a third": 1 / 3}
_SHARES |= {"half": 1 / 2, "two thirds": 2 / 3, "three quarters": 3 / 4}


@dataclass(frozen=True)
class Verdict:
    """One method beside the best rival."""

    method: str
    """Empty where RL-Focal was not evaluated."""
    words: str
    """For a row that names both already."""
    sentence: str

    def __str__(self) -> str:
        return self.sentence


def verdict(ours: Standing, rival: Standing | None) -> Verdict:
    """`ours` beside the best rival, by the paired interval of their difference."""
    if rival is None:
        alone = f"{ours.method} reaches {percent(ours.accuracy)} %; no other method was evaluated."
        return Verdict(ours.method, "no rival was evaluated", alone)
    if (difference := rival.ours_above.get(ours.method)) is None:
        words = "no document in common"
        return Verdict(ours.method, words, f"{ours.method} and {rival.method} have {words}.")
    at = _calls(ours.mean_pool_size, rival.mean_pool_size)
    interval = f"interval {points(difference.low)} to {points(difference.high)}"
    if difference.excludes_zero:
        told = f"is {distance(difference)} {rival.method}{at}; {interval}."
    elif is_level(difference):
        told = f"is level with {rival.method}{at}; {interval}."
    else:
        told = f"is {UNDECIDED} against {rival.method}{at}; {interval}."
    return Verdict(ours.method, words_of(difference, at), f"{ours.method} {told}")


def words_of(difference: Difference, at: str = "") -> str:
    """How one stands to another, for a row; `at`: for how many calls, said where they are level."""
    if is_level(difference):
        return f"level{at}"
    apart = distance(difference) if difference.excludes_zero else UNDECIDED
    return f"{apart}, {points(difference.low)} to {points(difference.high)}"


def is_level(difference: Interval) -> bool:
    """Whether the interval is narrow enough to call two accuracies level."""
    return -LEVEL <= difference.low <= 0 <= difference.high <= LEVEL


def distance(difference: Interval) -> str:
    """`3.1 points behind`, of what is compared with another."""
    size = f"{abs(100 * difference.mean):.1f} points"
    return f"{size} {'above' if difference.mean > 0 else 'behind'}"


def unevaluated(best: Standing | None) -> Verdict:
    """Of a board without RL-Focal; `best`: its most accurate method."""
    leads = f"; of the methods shown, {best.method} leads with {percent(best.accuracy)} %" if best else ""
    return Verdict("", "", f"RL-Focal was not evaluated{leads}.")


def verdict_table(
    boards: Sequence[Board],
    named: Collection[str] = (),
    before: Mapping[tuple[BoardKey, str], float] | None = None,
) -> Table:
    """Of each board the best rival beside best_single, the methods in `named`, and RL-Focal's verdicts.

    `before`: earlier accuracies, for a column of changes in points.
    """
    changes = [] if before is None else ["change"]
    texts = ("method", "against the best rival")
    table = Table("benchmark", "acc %", "asked", "¢/1k", *changes, texts=texts, kept=texts[:1])
    for board in boards:
        words = {one.method: one.words for one in board.verdicts}
        words[BY_TASK] = "the best on train of each task"
        shown = _shown(board, named)
        if board.rival is not None:
            words[board.rival.method] = (
                f"the best rival{_beside(board, shown)}" if board.ours else "best; RL-Focal was not evaluated"
            )
        name = title(board)
        for s in shown:
            was = None if before is None else before.get((board.key, s.method))
            change = "new" if was is None else points(s.accuracy - was)
            cells = [
                percent(s.accuracy, 1),
                decimal(s.mean_pool_size, 1),
                cents(s.cost),
                *[change] * len(changes),
            ]
            style = "bold" if s.is_ours else ""
            table.add(name, *cells, s.method, words.get(s.method, ""), style=style)
            name = ""
    return table


def _shown(board: Board, named: Collection[str]) -> list[Standing]:
    """RL-Focal's methods last; the others by falling accuracy, after best_single where it has a row."""
    ours = {s.method for s in board.ours}
    wanted = {*named, *([board.rival.method] if board.rival else [])}
    if not (ours and board.rival):
        wanted |= {board.baseline}
    wanted |= {BY_TASK} if ours else set()
    if not ours and not named:
        wanted |= {s.method for s in board.standings[:ROWS]}
    rest = [s for s in board.standings if s.method in wanted - ours]
    return [*sorted(rest, key=lambda s: s.method != board.baseline), *board.ours]


def _beside(board: Board, shown: Sequence[Standing]) -> str:
    """What best_single reaches, in words, unless it has a row of its own."""
    of = [s for s in board.standings if s.method == board.baseline and s not in shown]
    return f"; {board.baseline} {percent(of[0].accuracy, 1)}" if of else ""


def title(board: Board) -> str:
    """The benchmark, and how its protocol differs from the usual."""
    differs = [board.protocol] if board.protocol != "frozen" else []
    differs += ["per task"] if board.per == "task" else []
    differs += [board.split] if board.split != "test" else []
    differs += ["+task"] if board.reads_task else []
    differs += [f"{board.trials} trials"] if board.trials else []
    differs += [counted(len(board.other_pool), "model")] if board.other_pool else []
    return f"{board.benchmark} ({', '.join(differs)})" if differs else board.benchmark


def _calls(asked: float, by_rival: float) -> str:
    """
    >>> _calls(4, 12), _calls(5, 2), _calls(4.4, 12), _calls(2, 2), _calls(1, 0)
    (' at a third of the calls', ' at 2.5 times the calls', ' at 37 % of the calls', ' at as many calls', '')
    """
    if not by_rival:
        return ""
    ratio = asked / by_rival
    if 0.95 <= ratio <= 1.05:
        return " at as many calls"
    name, share = min(_SHARES.items(), key=lambda item: abs(item[1] - ratio))
    if abs(share - ratio) < 0.02:
        return f" at {name} {'' if name == 'half' else 'of '}the calls"
    return f" at {100 * ratio:.0f} % of the calls" if ratio < 1 else f" at {ratio:.1f} times the calls"
