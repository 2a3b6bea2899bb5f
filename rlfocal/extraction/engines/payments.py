"""What services were paid and what they answered, on disk: nothing is paid twice, and no limit is passed."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from threading import Condition

from rlfocal.base.errors import RunError

_TABLES = """
CREATE TABLE IF NOT EXISTS spent (model TEXT PRIMARY KEY, cents REAL NOT NULL);
CREATE TABLE IF NOT EXISTS answers (
    key TEXT PRIMARY KEY, partition TEXT NOT NULL, cents REAL NOT NULL, answer TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS offers (service TEXT PRIMARY KEY, top_logprobs INTEGER NOT NULL);
"""


class Payments:
    """One model's payments, and the answers to its partition at hand. Threads and processes may share it.

    The most that a request may cost is counted before it is sent, and what it did cost after its answer: what
    is on its way when a process is killed counts in full.
    """

    def __init__(self, file: Path, model: str, limit: float | None, partition: str) -> None:
        """`limit`: cents in all; None: none."""
        file.parent.mkdir(parents=True, exist_ok=True)
        self._database = sqlite3.connect(file, timeout=60, isolation_level=None, check_same_thread=False)
        self._database.executescript(_TABLES)
        self._database.execute("INSERT OR IGNORE INTO spent VALUES (?, 0)", [model])
        self._model, self._limit, self._partition = model, limit, partition
        self._changed = Condition()
        self._under_way = 0

    def close(self) -> None:
        self._database.close()

    def reserve(self, most: float) -> None:
        """Counts what a request may cost. Waits while others under way may turn out cheaper.

        Raises RunError if the limit might be passed.
        """
        with self._changed:
            while not self._take(most):
                if not self._under_way:
                    raise RunError(
                        f"the spending limit of {self._limit:g} cents might be passed: {self.spent:.4g} are "
                        f"spent, and the next request may cost {most:.4g}; raise `spending_limit` in the "
                        "model's entry and run again, which pays for nothing twice"
                    )
                self._changed.wait()
            self._under_way += 1

    def _take(self, most: float) -> bool:
        limit = float("inf") if self._limit is None else self._limit
        taken = self._database.execute(
            "UPDATE spent SET cents = cents + ? WHERE model = ? AND cents + ? <= ?",
            [most, self._model, most, limit],
        )
        return taken.rowcount == 1

    def refund(self, most: float) -> None:
        """A request that was reserved costs nothing: it was refused."""
        with self._changed:
            self._database.execute(
                "UPDATE spent SET cents = max(cents - ?, 0) WHERE model = ?", [most, self._model]
            )
            self._end()

    def lose(self) -> None:
        """Nobody knows whether a request was paid: what was reserved stays spent."""
        with self._changed:
            self._end()

    def settle(self, key: str, most: float, cents: float, answer: str) -> None:
        """Keeps a request's answer, and counts what it cost in place of what it might have."""
        with self._changed:
            self._database.execute("BEGIN IMMEDIATE")
            self._database.execute(
                "UPDATE spent SET cents = max(cents - ?, 0) + ? WHERE model = ?", [most, cents, self._model]
            )
            self._database.execute(
                "INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?)", [key, self._partition, cents, answer]
            )
            self._database.execute("COMMIT")
            self._end()

    def _end(self) -> None:
        self._under_way -= 1
        self._changed.notify_all()

    def answer(self, key: str) -> str | None:
        """The answer to a request that was paid already."""
        return self._text("SELECT answer FROM answers WHERE key = ?", key)

    def first_answer(self) -> str | None:
        """The first of the partition's answers."""
        return self._text("SELECT answer FROM answers WHERE partition = ? ORDER BY rowid", self._partition)

    def _text(self, query: str, about: str) -> str | None:
        with self._changed:
            row = self._database.execute(query, [about]).fetchone()
        return None if row is None else str(row[0])

    @property
    def spent(self) -> float:
        """Cents that the model cost so far, for whatever partition."""
        query = "SELECT cents FROM spent WHERE model = ?"
        return float(self._database.execute(query, [self._model]).fetchone()[0])

    @property
    def paid(self) -> float:
        """Cents that the partition's answers cost, those of earlier runs included."""
        query = "SELECT total(cents) FROM answers WHERE partition = ?"
        return float(self._database.execute(query, [self._partition]).fetchone()[0])

    def offer(self, service: str) -> int | None:
        """How many likeliest tokens a service lists, if that was found out."""
        row = self._database.execute(
            "SELECT top_logprobs FROM offers WHERE service = ?", [service]
        ).fetchone()
        return None if row is None else int(row[0])

    def note_offer(self, service: str, top_logprobs: int) -> None:
        self._database.execute("INSERT OR REPLACE INTO offers VALUES (?, ?)", [service, top_logprobs])

    def forget(self) -> None:
        """Drops the partition's answers: it begins anew."""
        self._database.execute("DELETE FROM answers WHERE partition = ?", [self._partition])
