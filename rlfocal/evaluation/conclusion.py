"""The main result of a board in one sentence: the best of RL-Focal's methods beside the best other method."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import TYPE_CHECKING, Any, Literal, Self

from rlfocal.base.tables import Table
from rlfocal.base.wording import count_noun, decimal, interval, percent
from rlfocal.evaluation.verdicts import (
    BY_TASK,
    best_of_ours,
    ceiling_sentence,
    find_rival_difference,
    title,
    unnamed_sentence,
    verdict,
    verdict_table,
)

if TYPE_CHECKING:
    from rlfocal.evaluation.leaderboard import Board, LeaderboardRow

Case = Literal["ahead", "level and cheaper", "level", "undecided", "behind", "unopposed", "not evaluated"]
MIN_SAVING = 0.05
"""The least share of the rival's cost (of its calls, if prices are unknown) that a method has to save to be
called cheaper."""
_PHRASES: dict[Case, str] = {
    "ahead": "answers better than",
    "level and cheaper": "answers as well as",
    "level": "answers as well as",
    "behind": "answers worse than",
}


@dataclass(frozen=True)
class Conclusion:
    """The main result of a board, for the terminal, the page, the artifact and JSON."""

    board: str
    """The title of the board."""
    case: Case
    sentence: str
    caveats: tuple[str, ...]
    """Short sentences on what the main sentence leaves open."""
    notes: tuple[str, ...]
    """The board's notes, which explain the caveats and name commands."""

    def __str__(self) -> str:
        return " ".join((self.sentence, *self.caveats))


@dataclass(frozen=True)
class Verdicts:
    """The results of several boards, as a terminal shows them."""

    conclusions: tuple[Conclusion, ...]
    ceilings: tuple[str, ...]
    """Sentences on the highest possible accuracy, one a benchmark."""
    table: Table
    remarks: tuple[str, ...]
    """Sentences on answers of the table's methods that no asked model gave."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on the data of the boards."""
        return tuple(dict.fromkeys(note for conclusion in self.conclusions for note in conclusion.notes))

    def to_json(self) -> dict[str, Any]:
        """The verdicts as a dict of JSON values, which `from_json` reads."""
        conclusions = [vars(conclusion) for conclusion in self.conclusions]
        return vars(self) | {"conclusions": conclusions, "table": self.table.to_json()}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """The verdicts from the values that `to_json` returned, as JSON reads them."""
        conclusions = (
            Conclusion(**of | {"caveats": tuple(of["caveats"]), "notes": tuple(of["notes"])})
            for of in values["conclusions"]
        )
        table = Table.from_json(values["table"])
        return cls(tuple(conclusions), tuple(values["ceilings"]), table, tuple(values["remarks"]))


def summarise(boards: Sequence[Board], methods: Collection[str] = ()) -> Verdicts:
    """The verdicts of boards; the table also shows these methods."""
    ceilings = (ceiling_sentence(board.benchmark, board.n_none_right, board.n) for board in boards)
    remarks = (unnamed_sentence(board, methods) for board in boards)
    return Verdicts(
        tuple(map(conclude, boards)),
        tuple(filter(None, dict.fromkeys(ceilings))),
        verdict_table(boards, methods),
        tuple(filter(None, remarks)),
    )


def conclude(board: Board) -> Conclusion:
    """The conclusion of a board: the most accurate of RL-Focal's methods, compared with the best rival."""
    ours, rival = best_of_ours(board), board.rival
    case, sentence = _conclude(ours, rival, board)
    return Conclusion(title(board), case, sentence, tuple(_list_caveats(ours, rival, board)), board.notes)


def _conclude(ours: LeaderboardRow | None, rival: LeaderboardRow | None, board: Board) -> tuple[Case, str]:
    if ours is None and rival is None:
        return "not evaluated", "Neither RL-Focal nor a method that it is compared with was evaluated."
    if ours is None or rival is None:
        only = ours or rival
        assert only is not None
        size = decimal(only.mean_pool_size, 1)
        figures = (
            f"{percent(only.accuracy, 1)} % of {count_noun(board.n, 'test document')} at {size} models each"
        )
        if ours is not None:
            return "unopposed", f"{ours.method} answers {figures}; nothing was evaluated beside it."
        said = f"The best of the others, {only.method}, answers {figures}"
        return "not evaluated", f"RL-Focal was not evaluated. {said}{_describe_best_single(only, board)}."
    case = _find_case(ours, rival, board)
    name, price = _name_answerer(rival, board), _describe_price(ours, rival)
    subject = f"{ours.method} ({percent(ours.accuracy, 1)} %)"
    apart = f"{interval(find_rival_difference(ours, board))} points"
    if case == "undecided":
        point = f"It is undecided whether {subject} answers as well as {name} ({apart}, {price}): "
        point += _say_what_decides(board)
    else:
        point = f"{subject} {_PHRASES[case]} {name} ({apart}) {price}"
    return case, f"{point}{_describe_best_single(rival, board)}."


def _find_case(ours: LeaderboardRow, rival: LeaderboardRow, board: Board) -> Case:
    match verdict(find_rival_difference(ours, board)):
        case "ahead":
            return "ahead"
        case "behind":
            return "behind"
        case "level":
            calls = _divide(ours.mean_pool_size, rival.mean_pool_size)
            paid = _divide(ours.cost, rival.cost)
            saved = 1 - next((share for share in (paid, calls) if share is not None), 1.0)
            return "level and cheaper" if saved >= MIN_SAVING else "level"
        case _:
            return "undecided"


def _name_answerer(row: LeaderboardRow, board: Board) -> str:
    """A method in words: `the best single model` or `all 12 models together` for example, else its name."""
    known = {"best_single": "the best single model", BY_TASK: "the best single model of each task"}
    if row.method in known:
        return known[row.method]
    n = len(board.models)
    asks_all = n > 1 and row.mean_pool_size > n - 0.05
    return f"all {n} models together by {row.method}" if asks_all else row.method


def _describe_price(ours: LeaderboardRow, rival: LeaderboardRow) -> str:
    """The calls of one method relative to another and, where prices are known, its cost."""
    calls = _divide(ours.mean_pool_size, rival.mean_pool_size)
    if calls is None:
        return f"at {decimal(ours.mean_pool_size, 1)} models a document"
    paid = _divide(ours.cost, rival.cost)
    return f"at {_portion(calls, 'calls')}" + ("" if paid is None else f" and {_portion(paid, 'cost')}")


def _divide(numerator: float | None, denominator: float | None) -> float | None:
    """The ratio of two figures; None where either is unknown or the second is 0."""
    return numerator / denominator if numerator is not None and denominator else None


def _portion(share: float, unit: str) -> str:
    """
    >>> _portion(0.446, "calls"), _portion(1.02, "cost"), _portion(5, "calls")
    ('45 % of the calls', '1.0 times the cost', '5.0 times the calls')
    """
    return f"{100 * share:.2g} % of the {unit}" if share < 1 - MIN_SAVING else f"{share:.1f} times the {unit}"


def _say_what_decides(board: Board) -> str:
    n = count_noun(board.n, "test document")
    if board.n_to_decide is None:
        return (
            f"results differ so much between seeds that no number of documents would decide it, {n} or more"
        )
    return f"{n} are too few, and about {_round_up(board.n_to_decide):,} would decide it"


def _round_up(n: int) -> int:
    """A number of documents, rounded up to two significant digits.

    >>> _round_up(7), _round_up(1901)
    (7, 2000)
    """
    step: int = 10 ** max(floor(log10(n)) - 1, 0)
    return ceil(n / step) * step


def _describe_best_single(rival: LeaderboardRow, board: Board) -> str:
    """A phrase with the accuracy of the best single model; empty if it was not evaluated or is the rival."""
    for standing in board.rows:
        if standing.method == board.baseline and standing is not rival:
            return f"; {_name_answerer(standing, board)} has {percent(standing.accuracy, 1)} %"
    return ""


def _list_caveats(ours: LeaderboardRow | None, rival: LeaderboardRow | None, board: Board) -> Iterator[str]:
    if board.missing:
        were = "was" if len(board.missing) == 1 else "were"
        yield f"{count_noun(len(board.missing), 'usual method')} {were} not evaluated: one may be better."
    lucky = [s.method for s in (*board.ours, *([rival] if rival else [])) if ours and s.has_one_seed]
    if lucky:
        yield f"One seed of {', '.join(lucky)}: training luck is left out; `--seeds 5` includes it."
    if board.split_note is not None:
        yield "Train and test documents differ by more than chance explains."
