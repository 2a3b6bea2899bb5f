"""One writer at a time: a file lock in the warehouse's directory, an advisory lock on Postgres."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

from filelock import FileLock, Timeout

from rlfocal.errors import RunError
from warehouse.connecting import connect, quoted
from warehouse.locations import Location

_PATIENCE_SECONDS = 600
_ADVISORY_KEY = 0x726C666F63616C  # "rlfocal"


@contextmanager
def write_lock(place: Location) -> Iterator[None]:
    """Holds the warehouse's write lock. Raises RunError where another writer keeps it for ten minutes."""
    if place.directory is None:
        with _advisory_lock(place):
            yield
        return
    try:
        lock = FileLock(place.directory / "write.lock", timeout=_PATIENCE_SECONDS)
        lock.acquire()
    except Timeout:
        raise RunError(f"warehouse {place.name}: another process has been writing for ten minutes") from None
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _advisory_lock(place: Location) -> Iterator[None]:
    with closing(connect(postgres=True)) as connection:
        dsn = place.catalog.removeprefix("postgres:")
        connection.execute(f"ATTACH {quoted(dsn)} AS locks (TYPE postgres)")
        # The lock belongs to Postgres's transaction, so it cannot outlive a killed writer.
        connection.execute("BEGIN")
        lock = f"SELECT 1 FROM pg_advisory_xact_lock({_ADVISORY_KEY})"
        connection.execute("CALL postgres_query('locks', ?)", [lock])
        yield
