"""What all imports share that read row by row: the rows, where each stands, and how they are checked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import duckdb
import pyarrow as pa

from rlfocal.base.errors import InputError
from rlfocal.exchange.imports.rows import DOCS, SCORES, OnProgress, Source

_ARROW = {"BIGINT": pa.int64(), "VARCHAR": pa.string(), "BOOLEAN": pa.bool_(), "DOUBLE": pa.float64()}
_PROMPT = ("prompt", "messages", "continuations")
T = TypeVar("T")


def tracked(items: Sequence[T], on_progress: OnProgress) -> Iterator[T]:
    """The items, whose share is reported before each."""
    for at, item in enumerate(items):
        if on_progress is not None:
            on_progress(at / len(items))
        yield item


@dataclass
class Gathered(Source):
    """Rows that were read one by one, and where each stands."""

    docs: list[dict[str, Any]] = field(default_factory=list)
    scores: list[dict[str, Any]] = field(default_factory=list)
    known: dict[tuple[str, str, int], dict[str, Any]] = field(default_factory=dict)
    """The documents by benchmark, task and doc_id."""
    _places: list[tuple[str, int]] = field(default_factory=list)

    def row(self, where: str, number: int) -> int:
        """The number of a new row, which messages call `where number` ("FILE, line" 3)."""
        self._places.append((where, number))
        return len(self._places)

    def place(self, row: int, table: str = "") -> str:
        where, number = self._places[row - 1]
        return f"{where} {number}"

    def describe(self, document: dict[str, Any], compared: Sequence[str]) -> dict[str, Any]:
        """Adds a row of `docs`, unless its document was described before; returns the first description.

        Raises InputError if the two differ in one of the `compared` columns.
        """
        key = document["benchmark"], document["task"], document["doc_id"]
        known = self.known.setdefault(key, document)
        if known is document:
            self.docs.append(document)
        for name in compared:
            if known.get(name) != document.get(name):
                change = f"{name} was {str(known.get(name))[:60]!r}, is {str(document.get(name))[:60]!r}"
                if name in _PROMPT:
                    change = "another prompt (template, few-shot examples or system prompt)"
                raise InputError(
                    f"{self.place(document['row'])}: document {key[2]} of {key[0]}/{key[1]} differs from "
                    f"{self.place(known['row'])}: {change}. Models are compared on the same documents only: "
                    f"import them under another name, such as --benchmark {key[0].partition('@')[0]}@v2"
                )
        return known

    def load(self, scratch: duckdb.DuckDBPyConnection) -> None:
        if not self.scores:
            raise InputError("; ".join([f"{self.title}: nothing to import", *self.left]))
        for table, given, columns in (("docs", self.docs, DOCS), ("scores", self.scores, SCORES)):
            scratch.register("given", pa.Table.from_pylist(given, schema=_schema(columns)))
            scratch.execute(f"CREATE TEMP TABLE {table} AS FROM given")
            scratch.unregister("given")


def _schema(columns: dict[str, str]) -> pa.Schema:
    kinds = {
        name: pa.list_(_ARROW[kind[:-2]]) if kind.endswith("[]") else _ARROW[kind]
        for name, kind in columns.items()
    }
    return pa.schema({"row": pa.int64(), **kinds})


@contextmanager
def refusing(where: str) -> Iterator[None]:
    """Raises InputError, "WHERE (REASON)", for whatever a row of unexpected content makes a reader raise."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise InputError(f"{where} ({reason})") from None
