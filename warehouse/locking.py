"""Locks of a warehouse: files in its directory, or advisory locks on Postgres. A lock ends with its
process."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from time import monotonic, sleep, time_ns
from typing import Any
from uuid import uuid4

import duckdb
from filelock import FileLock, Timeout

from warehouse.errors import RunError
from warehouse.limits import writing_to
from warehouse.locations import LOCK_FOLDER, Location, without_password
from warehouse.scripts import quote

_PATIENCE_SECONDS = 600
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 0.1
"""The first and the longest pause between attempts to take a lock, in seconds; pauses double."""
# Held for hours, its transaction must not time out; the server must notice in a minute that a host died.
_SESSION_QUERY = """
SELECT set_config(name, CASE name
    WHEN 'tcp_keepalives_idle' THEN '30'
    WHEN 'tcp_keepalives_interval' THEN '10'
    WHEN 'tcp_keepalives_count' THEN '3'
    ELSE '0' END, true) AS setting
FROM pg_settings WHERE name IN (
    'tcp_keepalives_idle', 'tcp_keepalives_interval', 'tcp_keepalives_count',
    'idle_in_transaction_session_timeout', 'transaction_timeout', 'statement_timeout')
"""
# Milliseconds since 1970 in 31 bits: of two tickets the later one lies less than 12 days ahead.
_TICKET_QUERY = """
WITH drawn AS MATERIALIZED (
    SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint % 2147483648 AS ticket
)
SELECT ticket, pg_try_advisory_xact_lock({queue}, ticket::int) AS is_mine FROM drawn
"""
_EARLIER_TICKETS_QUERY = """
SELECT FROM pg_locks
WHERE locktype = 'advisory' AND objsubid = 2 AND classid = {queue}
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND ({ticket} - objid::bigint + 2147483648) % 2147483648 BETWEEN 1 AND 1073741823
"""


def lock(
    place: Location, connection: duckdb.DuckDBPyConnection, name: str, *, seconds: float = math.inf
) -> AbstractContextManager[bool]:
    """Holds the lock `name` of the warehouse during a block; yields False if it is not free within `seconds`.

    `connection` is to the DuckDB that has the warehouse attached; on Postgres the lock has its own session.
    Waiting polls, so Ctrl-C ends it. A lock is not reentrant.
    """
    digest = sha256(f"rlfocal {name}".encode()).digest()
    if place.directory is not None:
        return _file_lock(place.directory / LOCK_FOLDER / f"{digest.hex()[:32]}.lock", seconds)
    return _advisory_lock(place, connection, digest, seconds)


@contextmanager
def write_lock(place: Location, connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Holds the write lock during a block. Raises RunError if another process keeps it for ten minutes."""
    with lock(place, connection, "write", seconds=_PATIENCE_SECONDS) as mine:
        if not mine:
            raise RunError(f"warehouse {place.name}: another process has been writing for ten minutes")
        yield


@contextmanager
def _file_lock(path: Path, seconds: float) -> Iterator[bool]:
    with writing_to(path.parent):
        path.parent.mkdir(exist_ok=True)
        file = FileLock(path, timeout=0)
        mine = _acquire(file) if seconds == 0 else _acquire_in_turn(file, path, seconds)
    try:
        yield mine
    finally:
        if mine:
            path.unlink(missing_ok=True)  # a waiter whose file is gone takes a new one
            file.release()


def _acquire_in_turn(file: FileLock, path: Path, seconds: float) -> bool:
    """Takes the lock in the order of arrival. Each waiter has a ticket: a locked file named by its time."""
    ticket = path.with_name(f"{path.stem}.{time_ns():020d}-{uuid4().hex}.ticket")
    place = FileLock(ticket)  # an earlier waiter may be looking whether it lives
    place.acquire()
    try:
        return _wait_for(lambda: _is_first(ticket) and _acquire(file), seconds)
    finally:
        ticket.unlink(missing_ok=True)
        place.release()


def _is_first(ticket: Path) -> bool:
    """Whether no earlier waiter's process lives; deletes the tickets of killed ones."""
    tickets = ticket.parent.glob(f"{ticket.name.partition('.')[0]}.*.ticket")
    for earlier in sorted(path for path in tickets if path.name < ticket.name):
        gone = FileLock(earlier, timeout=0)
        if not _acquire(gone):
            return False
        earlier.unlink(missing_ok=True)
        gone.release()
    return True


def _acquire(file: FileLock) -> bool:
    try:
        file.acquire()
    except Timeout:
        return False
    return True


@contextmanager
def _advisory_lock(
    place: Location, connection: duckdb.DuckDBPyConnection, digest: bytes, seconds: float
) -> Iterator[bool]:
    """Holds an advisory lock of Postgres during a block; yields whether it was acquired within `seconds`.

    It is in a transaction, because DuckDB then gives its session to nobody else. Postgres keeps the locks of
    each database apart, and a database holds one warehouse.
    """
    key, queue = int.from_bytes(digest[:8], signed=True), int.from_bytes(digest[8:12]) >> 1
    attempt = f"SELECT pg_try_advisory_xact_lock({key}) AS mine"
    with closing(connection.cursor()) as holder:
        try:
            _begin(holder, place.catalog.removeprefix("postgres:"))
            if seconds > 0:
                earlier = _EARLIER_TICKETS_QUERY.format(queue=queue, ticket=_draw_ticket(holder, queue))
                attempt = f"SELECT CASE WHEN EXISTS ({earlier}) THEN false ELSE ({attempt}) END AS mine"
            mine = _wait_for(lambda: _query(holder, attempt) == [(True,)], seconds)
        except duckdb.Error as error:
            _end(holder)
            raise RunError(f"cannot lock warehouse {place.name}: {without_password(str(error))}") from None
        except BaseException:
            _end(holder)
            raise
        try:
            yield mine
        finally:
            _end(holder)


def _begin(holder: duckdb.DuckDBPyConnection, dsn: str) -> None:
    holder.execute(f"ATTACH IF NOT EXISTS {quote(dsn)} AS locks (TYPE postgres)")
    holder.execute("BEGIN")
    # DuckDB's own level would hold back VACUUM in the whole database for as long as the lock is held.
    holder.execute("CALL postgres_execute('locks', 'SET TRANSACTION ISOLATION LEVEL READ COMMITTED')")
    _query(holder, _SESSION_QUERY)


def _draw_ticket(holder: duckdb.DuckDBPyConnection, queue: int) -> int:
    """Draws a waiter's ticket: an advisory lock of this session in the queue, named by its time."""
    while True:  # two came in the same millisecond
        [(ticket, is_mine)] = _query(holder, _TICKET_QUERY.format(queue=queue))
        if is_mine:
            return int(ticket)


def _query(holder: duckdb.DuckDBPyConnection, statement: str) -> list[tuple[Any, ...]]:
    return holder.execute("CALL postgres_query('locks', ?)", [statement]).fetchall()


def _end(holder: duckdb.DuckDBPyConnection) -> None:
    # A broken connection has lost the lock already. Without a ROLLBACK, DuckDB would then end the process.
    with suppress(duckdb.Error):
        holder.execute("ROLLBACK")


def _wait_for(tried: Callable[[], bool], seconds: float) -> bool:
    deadline = monotonic() + seconds
    pause = _FIRST_PAUSE
    while not tried():
        left = deadline - monotonic()
        if left <= 0:
            return False
        sleep(min(pause, left))
        pause = min(2 * pause, _LONGEST_PAUSE)
    return True
