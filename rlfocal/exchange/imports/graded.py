"""Stores answers that come with a grade, so that each is right or wrong exactly as its grade says.

The warehouse calls an answer right if it equals the document's gold answer. So an answer graded right is
stored as the gold answer, whatever its wording. An answer graded wrong is stored as it is, if it differs from
the gold answer. If no gold answer is given, the most common answer graded right stands for it. All right
answers are thus one answer, but wrong ones are as many as there are wordings. On free texts such as code,
votes therefore look better than they are.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, TypeVar

import duckdb
import pyarrow as pa

from rlfocal.base.errors import InputError
from rlfocal.base.wording import count_noun
from rlfocal.exchange.imports.source import DOC_COLUMNS, SCORE_COLUMNS, OnProgress, Source
from warehouse.comparison import Rule, normalise

_ARROW_TYPES = {"BIGINT": pa.int64(), "VARCHAR": pa.string(), "BOOLEAN": pa.bool_(), "DOUBLE": pa.float64()}
_PROMPT_COLUMNS = ("prompt", "messages", "continuations")
T = TypeVar("T")


def report_progress(items: Sequence[T], on_progress: OnProgress) -> Iterator[T]:
    """Yields the items. Before each, it reports the share of items done."""
    for number, item in enumerate(items):
        if on_progress is not None:
            on_progress(number / len(items))
        yield item


def _make_schema(columns: dict[str, str]) -> pa.Schema:
    kinds = {
        name: pa.list_(_ARROW_TYPES[kind[:-2]]) if kind.endswith("[]") else _ARROW_TYPES[kind]
        for name, kind in columns.items()
    }
    return pa.schema({"row": pa.int64(), **kinds})


@contextmanager
def refuse_bad_row(where: str) -> Iterator[None]:
    """Raises InputError, "WHERE (REASON)", for the errors that a reader raises on a row of unexpected
    content."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise InputError(f"{where} ({reason})") from None


UNKNOWN_GOLD = "unknown right answer"
"""The gold answer of a document if none is given, and no answer that was graded right has a text."""

_NOTES = {
    "no gold": ("document", "{} without a gold answer: what most models graded right say stands for it"),
    "reworded": (
        "answer",
        "{} graded right in other words than the gold answer's: stored as the gold answer",
    ),
    "alike": ("answer", "{} graded wrong though it reads like the gold answer: stored as wrong"),
}


@dataclass(frozen=True)
class GradedAnswer:
    """One model's answer to one document."""

    model: str
    texts: tuple[str, ...]
    """The canonical forms of the answer, the most exact first; empty if the model gave no answer."""
    right: bool
    text: str | None = None
    attempt: int | None = None
    """The position, from 0, of this answer among the model's several answers to the document; None for a
    single one."""


@dataclass
class GradedRows(Source):
    """Graded rows that were read one by one. The rows to store are made once all are read."""

    docs: list[dict[str, Any]] = field(default_factory=list)
    scores: list[dict[str, Any]] = field(default_factory=list)
    rows_by_document: dict[tuple[str, str, int], dict[str, Any]] = field(default_factory=dict)
    """The row of each document, by (benchmark, task, doc_id)."""
    _places: list[tuple[str, int]] = field(default_factory=list)
    _answers: defaultdict[int, list[tuple[int, GradedAnswer]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """For each row number of a document, its answers: (row number of the answer, answer)."""

    def row(self, where: str, number: int) -> int:
        """The number of a new row. Messages call the row `where number`, such as "FILE, line 3"."""
        self._places.append((where, number))
        return len(self._places)

    def place(self, row: int, table: str = "") -> str:
        where, number = self._places[row - 1]
        return f"{where} {number}"

    def describe(self, document: dict[str, Any], compared: Sequence[str]) -> dict[str, Any]:
        """Adds a row of `docs`, unless the document has one already. Returns the document's first row. Raises
        InputError if the two differ in one of the `compared` columns."""
        key = document["benchmark"], document["task"], document["doc_id"]
        described = self.rows_by_document.setdefault(key, document)
        if described is document:
            self.docs.append(document)
        for name in compared:
            if described.get(name) != document.get(name):
                change = f"{name} was {str(described.get(name))[:60]!r}, is {str(document.get(name))[:60]!r}"
                if name in _PROMPT_COLUMNS:
                    change = "another prompt (template, few-shot examples or system prompt)"
                raise InputError(
                    f"{self.place(document['row'])}: document {key[2]} of {key[0]}/{key[1]} differs from "
                    f"{self.place(described['row'])}: {change}. Models are compared on the same documents "
                    f"only: import them under another name, such as --benchmark {key[0].partition('@')[0]}@v2"
                )
        return described

    def grade(self, document: Mapping[str, Any], row: int, answer: GradedAnswer) -> None:
        """Adds an answer to a document that `describe` returned. `row` is the number of the answer's row."""
        self._answers[document["row"]].append((row, answer))

    def load(self, scratch: duckdb.DuckDBPyConnection) -> None:
        self.settle()
        if not self.scores:
            raise InputError("; ".join([f"{self.title}: nothing to import", *self.omissions]))
        for table, given, columns in (
            ("docs", self.docs, DOC_COLUMNS),
            ("scores", self.scores, SCORE_COLUMNS),
        ):
            scratch.register("given", pa.Table.from_pylist(given, schema=_make_schema(columns)))
            scratch.execute(f"CREATE TEMP TABLE {table} AS FROM given")
            scratch.unregister("given")

    def settle(self) -> None:
        """Fills `scores`, and the gold answers that `docs` lack. If gold answers are missing, or grades
        contradict a comparison of texts, the benchmark is stored as compared by its source."""
        counts = dict.fromkeys(_NOTES, 0)
        by_source = set()
        for document in self.docs:
            if (answers := self._answers.get(document["row"])) is None:
                continue
            gold = normalise(document["gold"])
            if not (is_given := gold is not None):
                gold = document["gold"] = _find_most_common(answer for _, answer in answers)
            counts["no gold"] += not is_given
            keys = {name: document[name] for name in ("benchmark", "task", "doc_id")}
            for row, answer in answers:
                if not is_given or answer.right != (answer.texts[:1] == (gold,)):
                    by_source.add(document["benchmark"])
                counts["reworded"] += is_given and answer.right and gold not in answer.texts
                counts["alike"] += not answer.right and answer.texts[:1] == (gold,)
                self.scores.append({**keys, "row": row, **_score(answer, gold)})
        decided = ((text, noun, counts[name]) for name, (noun, text) in _NOTES.items())
        about = [{"benchmark": name, "comparison": Rule.SOURCE} for name in sorted(by_source)]
        self.facts["benchmarks"] += about
        self.notes += [text.format(count_noun(n, noun)) for text, noun, n in decided if n]


def is_right(score: Any) -> bool | None:
    """A score as a grade: True for 1, False for 0, None for a score between them. Raises ValueError for
    anything that is no number from 0 to 1."""
    if not isinstance(score, int | float) or not isfinite(score) or not 0 <= score <= 1:
        raise ValueError(f"score {score!r:.60} is not a number from 0 to 1")
    return bool(score) if score in (0, 1) else None


def forms(*texts: str | None) -> tuple[str, ...]:
    """The canonical forms of texts, each once, in order. Texts without an answer are left out."""
    return tuple(dict.fromkeys(form for text in texts if (form := normalise(text)) is not None))


def _find_most_common(answers: Iterable[GradedAnswer]) -> str:
    """The most common text of answers graded right; of equally common texts, the alphabetically first."""
    counts = Counter(answer.texts[0] for answer in answers if answer.right and answer.texts)
    return min(counts, key=lambda form: (-counts[form], form), default=UNKNOWN_GOLD)


def _score(answer: GradedAnswer, gold: str) -> dict[str, Any]:
    """The columns of the table `scores` for an answer, without the document's keys."""
    stored = gold if answer.right else next((form for form in answer.texts if form != gold), None)
    return {
        "model": answer.model,
        "answer": stored,
        "pass": answer.attempt,
        "text": answer.text,
    }
