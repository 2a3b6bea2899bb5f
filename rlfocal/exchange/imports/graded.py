"""Answers that come with a grade: stored so that each is right or wrong exactly as its grade says.

The warehouse calls an answer right if it equals the document's gold answer. So an answer graded right is
stored as the gold answer, whatever its wording, and one graded wrong as what it says, if that differs from
the gold answer. If no gold answer is given, the one that most models graded right gave stands for it. All
right answers are thus one answer, but wrong ones as many as there are wordings: on free texts such as code,
votes therefore look better than they are.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

from rlfocal.base.wording import counted
from rlfocal.exchange.imports.gathered import Gathered
from warehouse.answers import normalise

UNKNOWN = "unknown right answer"
"""Stands for the gold answer if none is given and no answer graded right says anything."""

_COMPARED = ("question", "gold")


@dataclass(frozen=True)
class GradedAnswer:
    """One model's answer to one document."""

    model: str
    said: tuple[str, ...]
    """Canonical forms of it, the most exact first; empty: it said nothing."""
    right: bool
    text: str | None = None
    attempt: int | None = None
    """Which of several answers to the document, from 0."""
    n_tokens: int | None = None
    n_prompt_tokens: int | None = None
    cost: float | None = None
    """US dollars."""


class GradedRows(Gathered):
    """Rows of graded answers: `add` them one by one; `settle` then decides what they are stored as."""

    def __init__(self) -> None:
        super().__init__()
        self._answers: defaultdict[int, list[tuple[int, GradedAnswer]]] = defaultdict(list)
        """(row, answer) by their document's row"""
        self._n: Counter[str] = Counter()

    def add(self, where: str, number: int, document: Mapping[str, Any], answer: GradedAnswer) -> None:
        """`document`: columns of the table `docs`, its keys among them; `gold` as it is given, or None.

        Raises InputError if another answer's row describes the document otherwise."""
        row = self.row(where, number)
        known = self.describe({**document, "row": row}, _COMPARED)
        self._answers[known["row"]].append((row, answer))

    def settle(self) -> None:
        """Fills `scores`, and the gold answers that `docs` lack."""
        for document in self.docs:
            if (answers := self._answers.get(document["row"])) is None:
                continue
            gold = normalise(document["gold"])
            if not (is_given := gold is not None):
                gold = document["gold"] = _agreed(answer for _, answer in answers)
            self._n["no gold"] += not is_given
            keys = {name: document[name] for name in ("benchmark", "task", "doc_id")}
            for row, answer in answers:
                self._n["reworded"] += is_given and answer.right and gold not in answer.said
                self._n["alike"] += not answer.right and answer.said[:1] == (gold,)
                self.scores.append({**keys, "row": row, **_score(answer, gold)})

    @property
    def notes(self) -> tuple[str, ...]:
        """What `settle` decided, for the report."""
        said = {
            "no gold": "{} without a gold answer: what most models graded right say stands for it",
            "reworded": "{} graded right in other words than the gold answer's: stored as the gold answer",
            "alike": "{} graded wrong though it reads like the gold answer: stored as wrong",
        }
        nouns = {"no gold": "document"}
        return tuple(
            text.format(counted(self._n[name], nouns.get(name, "answer")))
            for name, text in said.items()
            if self._n[name]
        )


def is_right(score: Any) -> bool | None:
    """A score as a grade: whether it is 1; None if it lies between 0 and 1.

    Raises ValueError for anything that is no number from 0 to 1."""
    if not isinstance(score, int | float) or not isfinite(score) or not 0 <= score <= 1:
        raise ValueError(f"score {score!r:.60} is not a number from 0 to 1")
    return bool(score) if score in (0, 1) else None


def ungraded(scores: Iterable[float | None]) -> str | None:
    """Why answers with these scores are neither right nor wrong; None if each score is 0, 1 or missing."""
    between = [score for score in scores if score is not None and score not in (0, 1)]
    if not between:
        return None
    return (
        f"{counted(len(between), 'score')} other than 0 and 1, such as {between[0]}: neither right nor wrong"
    )


def token_count(name: str, given: Any) -> int | None:
    """A number of tokens. Raises ValueError for anything that is none."""
    if given is None:
        return None
    if not isinstance(given, int | float) or not 0 <= given < 2**31 or given != int(given):
        raise ValueError(f"{name} {given!r:.60} is not a count of tokens")
    return int(given)


def forms(*texts: str | None) -> tuple[str, ...]:
    """The canonical forms of texts, each once, in order; those without an answer left out."""
    return tuple(dict.fromkeys(form for text in texts if (form := normalise(text)) is not None))


def _agreed(answers: Iterable[GradedAnswer]) -> str:
    """What most right answers say; ties: the alphabetically first."""
    said = Counter(answer.said[0] for answer in answers if answer.right and answer.said)
    return min(said, key=lambda form: (-said[form], form), default=UNKNOWN)


def _score(answer: GradedAnswer, gold: str) -> dict[str, Any]:
    """Columns of the table `scores`, without the keys."""
    stored = gold if answer.right else next((form for form in answer.said if form != gold), None)
    return {
        "model": answer.model,
        "answer": stored,
        "pass": answer.attempt,
        "text": answer.text,
        "n_tokens": answer.n_tokens,
        "n_prompt_tokens": answer.n_prompt_tokens,
        "cost": answer.cost,
    }
