"""Answers that come with a grade: stored so that each is right or wrong exactly as its grade says.

The warehouse calls an answer right if it equals the document's gold answer. So an answer graded right is
stored as the gold answer, whatever its wording, and one graded wrong as what it says, if that differs from
the gold answer. If no gold answer is given, the one that most models graded right gave stands for it. All
right answers are thus one answer, but wrong ones as many as there are wordings: on free texts such as code,
votes therefore look better than they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from rlfocal.base.errors import InputError
from rlfocal.base.wording import counted
from rlfocal.exchange.imports.rows import Gathered
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


@dataclass
class _Document:
    row: dict[str, Any]
    answers: list[tuple[int, GradedAnswer]] = field(default_factory=list)


class GradedRows(Gathered):
    """Rows of graded answers: `add` them one by one; `settle` then decides what they are stored as."""

    def __init__(self) -> None:
        super().__init__()
        self._documents: dict[tuple[str, str, int], _Document] = {}
        self._n: Counter[str] = Counter()

    def add(self, where: str, number: int, document: Mapping[str, Any], answer: GradedAnswer) -> None:
        """`document`: columns of the table `docs`, its keys among them; `gold` as it is given, or None.

        Raises InputError if another answer's row describes the document otherwise."""
        row = self.row(where, number)
        key = document["benchmark"], document["task"], document["doc_id"]
        known = self._documents.setdefault(key, _Document({**document, "row": row}))
        for name in _COMPARED:
            if known.row.get(name) != document.get(name):
                raise InputError(
                    f"{self.place(row)}: document {key[2]} of {key[0]}/{key[1]} differs from "
                    f"{self.place(known.row['row'])}: {name} was {str(known.row.get(name))[:60]!r}, is "
                    f"{str(document.get(name))[:60]!r}. Models are compared on the same documents only: "
                    "import them under another name with --benchmark"
                )
        known.answers.append((row, answer))

    def settle(self) -> None:
        """Fills `docs` and `scores`."""
        for document in self._documents.values():
            gold = normalise(document.row["gold"])
            if is_given := gold is not None:
                self.docs.append(document.row)
            else:
                gold = _agreed(answer for _, answer in document.answers)
                self.docs.append(document.row | {"gold": gold})
            self._n["no gold"] += not is_given
            keys = {name: document.row[name] for name in ("benchmark", "task", "doc_id")}
            for row, answer in document.answers:
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
