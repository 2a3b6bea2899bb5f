"""One writer at a time: a file lock in the warehouse's directory, an advisory lock on Postgres."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import duckdb
from filelock import FileLock, Timeout

from rlfocal.errors import RunError
from warehouse.connecting import quoted
from warehouse.locations import Location, without_password

_PATIENCE_SECONDS = 600
_ADVISORY_KEY = 0x726C666F63616C  # "rlfocal"


@contextmanager
def write_lock(place: Location, connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Holds the warehouse's write lock. Raises RunError where another writer keeps it for ten minutes.

    `connection` is to the DuckDB that writes; on Postgres the lock takes another connection of the same.
    """
    if place.directory is None:
        with _advisory_lock(place, connection):
            yield
        return
    try:
        lock = FileLock(place.directory / "write.lock", timeout=_PATIENCE_SECONDS)
        lock.acquire()
    except Timeout:
        raise _busy(place) from None
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _advisory_lock(place: Location, connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    dsn = place.catalog.removeprefix("postgres:")
    try:
        connection.execute(f"ATTACH IF NOT EXISTS {quoted(dsn)} AS locks (TYPE postgres)")
    except duckdb.Error as error:
        raise RunError(f"cannot lock warehouse {place.name}: {without_password(str(error))}") from None
    with closing(connection.cursor()) as holder:
        # The lock belongs to Postgres's transaction, so it cannot outlive a killed writer.
        holder.execute("BEGIN")
        patience = f"SET LOCAL lock_timeout = '{_PATIENCE_SECONDS}s'"
        holder.execute("CALL postgres_execute('locks', ?)", [patience])
        try:
            lock = f"SELECT 1 FROM pg_advisory_xact_lock({_ADVISORY_KEY})"
            holder.execute("CALL postgres_query('locks', ?)", [lock])
        except duckdb.Error as error:
            if "lock timeout" in str(error):
                raise _busy(place) from None
            raise
        try:
            yield
        finally:
            holder.execute("ROLLBACK")


def _busy(place: Location) -> RunError:
    return RunError(f"warehouse {place.name}: another process has been writing for ten minutes")
