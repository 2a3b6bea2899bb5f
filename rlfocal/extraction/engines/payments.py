"""Records payments to services, and the paid answers, on disk. Nothing is paid for twice, and spending limits
hold."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Condition

from rlfocal.extraction.engine import HopelessError
from rlfocal.extraction.responses import Response

_TABLES_DDL = """
CREATE TABLE IF NOT EXISTS spent (model TEXT PRIMARY KEY, cents REAL NOT NULL);
CREATE TABLE IF NOT EXISTS overruns (model TEXT PRIMARY KEY, factor REAL NOT NULL);
CREATE TABLE IF NOT EXISTS answers (
    key TEXT PRIMARY KEY, partition TEXT NOT NULL, cents REAL NOT NULL, answer TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS offers (service TEXT PRIMARY KEY, top_logprobs INTEGER NOT NULL);
"""
_RESPONSE_FIELDS = ("id", "model", "provider", "system_fingerprint", "cached", "usage.prompt_tokens")
NO_USABLE_ANSWER = ""
"""The text stored as the answer to a paid request whose response could not be used."""


@dataclass(eq=False)
class Bill:
    """The bill of one attempt to send a request."""

    reserved: float
    """The most cents that the request can cost."""
    risk: float
    """The cents beyond `reserved` that the request can cost if the service ignores max_tokens."""
    cents: float
    """The cents that count for the request: the most that it can cost, until its response says its cost."""
    is_known: bool = False
    stored_answer: tuple[str, str] | None = None
    """The request's key and its answer; None until there is a usable answer."""

    def pay(self, cents: float) -> None:
        """Sets the cost of the request as the service reports it, in cents."""
        self.cents, self.is_known = cents, True


class Payments:
    """The payments for one model, and the answers to its current partition. Threads and processes may share
    one file.

    Before a request is sent, the most that it can cost is counted; after its response, its actual cost. If
    the process is killed in between, the request counts in full. A service may bill more than that most, for
    reasoning beyond max_tokens. The bound of its later requests is then raised by the same factor. Under a
    limit, requests are sent concurrently only if the limit holds even at the worst cost of each. So at most
    one request exceeds it.
    """

    def __init__(self, file: Path, model: str, limit: float | None, partition: str) -> None:
        """Opens the payments in `file`. `limit` is the most cents to spend in all; None for no limit."""
        file.parent.mkdir(parents=True, exist_ok=True)
        self._database = sqlite3.connect(file, timeout=60, isolation_level=None, check_same_thread=False)
        self._database.executescript(_TABLES_DDL)
        self._database.execute("INSERT OR IGNORE INTO spent VALUES (?, 0)", [model])
        self._model, self._limit, self._partition = model, limit, partition
        self._changed = Condition()
        self._open_bills: list[Bill] = []
        self._overrun = float(self._text("SELECT factor FROM overruns WHERE model = ?", model) or 1)

    def close(self) -> None:
        self._database.close()

    @contextmanager
    def open_bill(self, most: float, worst: float = 0.0) -> Iterator[Bill]:
        """Opens the bill of a request that can cost `most` cents, or `worst` if its service ignores
        max_tokens.

        It waits while the limit might be exceeded, until concurrent requests turn out cheaper. A request that
        fails with an error that `is_free` costs nothing. Raises HopelessError if the limit might be exceeded
        even then.
        """
        bill = self._reserve(most, worst)
        try:
            yield bill
        except BaseException as error:
            if getattr(error, "is_free", False):
                bill.pay(0)
            raise
        finally:
            self._settle(bill, most)

    def _reserve(self, most: float, worst: float) -> Bill:
        with self._changed:
            while True:
                reserved = most * self._overrun
                bill = Bill(reserved, max(worst - reserved, 0.0), reserved)
                if self._may_join(bill) and self._take(reserved):
                    self._open_bills.append(bill)
                    return bill
                if not self._open_bills:
                    raise HopelessError(
                        f"the spending limit of {self._limit:g} cents might be passed: {self.spent:.4g} are "
                        f"spent, and the next request may cost {reserved:.4g}; raise `spending_limit` in the "
                        "model's entry and run again, which pays for nothing twice"
                    )
                self._changed.wait()

    def _may_join(self, bill: Bill) -> bool:
        """Whether a request may be sent now: it is alone, or the limit holds at the worst cost of all
        requests being sent."""
        if self._limit is None or not self._open_bills:
            return True
        risks = sum(other.risk for other in self._open_bills) + bill.risk
        return self.spent + bill.reserved + risks <= self._limit

    def _take(self, most: float) -> bool:
        limit = float("inf") if self._limit is None else self._limit
        taken = self._database.execute(
            "UPDATE spent SET cents = cents + ? WHERE model = ? AND cents + ? <= ?",
            [most, self._model, most, limit],
        )
        return taken.rowcount == 1

    def _settle(self, bill: Bill, most: float) -> None:
        """Replaces a request's reserved cost by its actual cost, and stores its answer."""
        with self._changed:
            try:
                with self._database:
                    self._database.execute("BEGIN IMMEDIATE")
                    self._write(bill, most)
            finally:
                self._open_bills.remove(bill)
                self._changed.notify_all()

    def _write(self, bill: Bill, most: float) -> None:
        self._database.execute(
            "UPDATE spent SET cents = max(cents - ?, 0) + ? WHERE model = ?",
            [bill.reserved, bill.cents, self._model],
        )
        if bill.stored_answer or bill.cents:
            key, answer = bill.stored_answer or (uuid.uuid4().hex, NO_USABLE_ANSWER)
            self._database.execute(
                "INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?)",
                [key, self._partition, bill.cents, answer],
            )
        if self._limit is not None and bill.is_known and bill.cents and most:
            self._overrun = max(self._overrun, bill.cents / most)
            self._database.execute(
                "INSERT OR REPLACE INTO overruns VALUES (?, ?)", [self._model, self._overrun]
            )

    def set_aside(self, key: str) -> None:
        """Drops a stored answer that cannot be used. Its cost stays counted, and its request will be sent
        again."""
        with self._changed:
            self._database.execute(
                "UPDATE answers SET key = ?, answer = ? WHERE key = ?",
                [uuid.uuid4().hex, NO_USABLE_ANSWER, key],
            )

    def answer(self, key: str) -> str | None:
        """The stored answer to the request with this key; None if there is none."""
        return self._text("SELECT answer FROM answers WHERE key = ?", key)

    def first_answer(self) -> str | None:
        """The first stored answer of the partition; None if there is none."""
        return self._text(
            "SELECT answer FROM answers WHERE partition = ? AND answer <> '' ORDER BY rowid", self._partition
        )

    def responses(self) -> list[Response]:
        """The model, provider and other facts that the partition's stored responses report about
        themselves."""
        fields = ", ".join(f"json_extract(answer, '$.{field}')" for field in _RESPONSE_FIELDS)
        with self._changed:
            rows = self._database.execute(
                f"SELECT {fields} FROM answers WHERE partition = ? AND answer <> ''", [self._partition]
            ).fetchall()
        return [Response(*row) for row in rows]

    def _text(self, query: str, about: str) -> str | None:
        with self._changed:
            row = self._database.execute(query, [about]).fetchone()
        return None if row is None else str(row[0])

    @property
    def spent(self) -> float:
        """The cents that the model has cost so far, over all partitions."""
        query = "SELECT cents FROM spent WHERE model = ?"
        return float(self._database.execute(query, [self._model]).fetchone()[0])

    @property
    def paid(self) -> float:
        """The cents that the partition's answers cost, including those of earlier runs."""
        query = "SELECT total(cents) FROM answers WHERE partition = ?"
        return float(self._database.execute(query, [self._partition]).fetchone()[0])

    def offer(self, service: str) -> int | None:
        """The number of likeliest tokens that the service lists; None if that is not known yet."""
        row = self._database.execute(
            "SELECT top_logprobs FROM offers WHERE service = ?", [service]
        ).fetchone()
        return None if row is None else int(row[0])

    def note_offer(self, service: str, top_logprobs: int) -> None:
        self._database.execute("INSERT OR REPLACE INTO offers VALUES (?, ?)", [service, top_logprobs])

    def forget(self) -> None:
        """Deletes the partition's stored answers, so that the service is asked for all of them again."""
        self._database.execute("DELETE FROM answers WHERE partition = ?", [self._partition])
