"""An open warehouse: queries, transactions, and the few writes the rest of the project makes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

import duckdb
import pyarrow as pa
from pydantic import BaseModel

from warehouse import writing
from warehouse.connecting import asking_store, is_refusal, use_object_store
from warehouse.errors import ReadOnlyError
from warehouse.limits import explain_memory_errors, writing_to
from warehouse.locations import Location
from warehouse.locking import lock, write_lock
from warehouse.scripts import script
from warehouse.writing import Partition

Fetched = TypeVar("Fetched")
Params = Sequence[Any] | Mapping[str, Any]
"""A statement's parameters, by position or by name."""


class PartitionKey(NamedTuple):
    """The model, benchmark and task that identify a partition."""

    model: str
    benchmark: str
    task: str

    @property
    def text(self) -> str:
        """Model, benchmark and task in one text."""
        return "\0".join(self)


class PartitionRecord(NamedTuple):
    """The record of a committed partition."""

    extraction_id: str
    fingerprint: str
    n_docs: int
    fault: str | None = None
    """The fault for which the partition's rows count nowhere and are extracted again, or None."""
    n_to_ask: int = 0
    """The number of documents without an answer that the next extraction asks again."""
    transformers: str | None = None
    """The version of transformers that encoded the prompts; None if it was not used."""
    dtype: str | None = None
    """The data type in which the engine computed."""
    backend: str | None = None
    settings: str | None = None
    """The engine's settings and the weights that it loaded, as JSON; None for imports."""


class Warehouse:
    """An open warehouse: a DuckLake attached as the current catalogue, so that names need no prefix in SQL.

    `connection` is one DuckDB connection: use a warehouse from one thread, and open another for another
    thread.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, location: Location, *, read_only: bool) -> None:
        self.connection = connection
        self.location = location
        self.read_only = read_only
        self._reading = self._writing = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.connection.close()

    def query(self, sql: str, params: Params = ()) -> pa.Table:
        """The result of one statement as an Arrow table, which has `.to_pandas()`, and which polars takes."""
        return self._ask(sql, params, duckdb.DuckDBPyConnection.to_arrow_table)

    def rows(self, sql: str, params: Params = ()) -> list[tuple[Any, ...]]:
        """The rows of one statement's result, as tuples."""
        return self._ask(sql, params, duckdb.DuckDBPyConnection.fetchall)

    def columns(self, sql: str, params: Params = ()) -> dict[str, Any]:
        """The columns of one statement's result, as numpy arrays."""
        return self._ask(sql, params, duckdb.DuckDBPyConnection.fetchnumpy)

    def _ask(
        self, sql: str, params: Params, fetch: Callable[[duckdb.DuckDBPyConnection], Fetched]
    ) -> Fetched:
        """The result of one statement; if the object store refuses it, it is repeated with new
        credentials."""
        with explain_memory_errors(), asking_store():
            try:
                return fetch(self.connection.execute(sql, _make_bindable(params)))
            except duckdb.IOException as error:
                if self._reading or self._writing or not is_refusal(error):
                    raise
                self._renew_secret()
            return fetch(self.connection.execute(sql, _make_bindable(params)))

    def snapshot(self) -> int:
        """The number of the snapshot that queries see."""
        return int(self.rows("SELECT id FROM warehouse.current_snapshot()")[0][0])

    def data_path(self) -> str:
        """The folder or URI that holds the Parquet files, with a slash at its end."""
        path = self.location.data
        if path is None:
            stored = "SELECT value FROM warehouse.options() WHERE option_name = 'data_path'"
            path = str(self.rows(stored)[0][0])
        return path.rstrip("/") + "/"

    def committed_partitions(
        self, model: str | None = None, benchmark: str | None = None
    ) -> dict[PartitionKey, PartitionRecord]:
        """The records of committed partitions, of one model or all, and of one benchmark or all."""
        partitions = self.rows(script("committed"), [model, benchmark])
        return {PartitionKey(*row[:3]): PartitionRecord(*row[3:]) for row in partitions}

    def fingerprints(self, benchmark: str | None = None) -> dict[PartitionKey, str]:
        """The fingerprint of each committed partition, of one benchmark or all."""
        return {
            key: partition.fingerprint
            for key, partition in self.committed_partitions(benchmark=benchmark).items()
        }

    def check_writable(self) -> None:
        """Raises ReadOnlyError unless the warehouse is open for writing."""
        if self.read_only:
            raise ReadOnlyError(f"warehouse {self.location.name} is open read-only")

    @contextmanager
    def hold_snapshot(self) -> Iterator[None]:
        """Runs a block whose queries all see one snapshot, whatever is committed meanwhile.

        Blocks may nest: an inner one sees the outer one's snapshot.
        """
        if self._reading:
            yield
            return
        self._renew_secret()
        self.connection.execute("BEGIN")
        self._reading = True
        try:
            yield
        finally:
            self._reading = False
            self._roll_back()

    @contextmanager
    def transaction(self, message: str) -> Iterator[None]:
        """Runs a block under the write lock; commits its writes as one snapshot, or none if it raises.

        Keep the block short, because other writers wait for it; readers never do. Transactions do not nest.
        Raises DiskFullError if the warehouse's disk is full.
        """
        with self.upkeep():
            self.connection.execute("BEGIN")
            self._writing = True
            try:
                yield
                self.connection.execute("CALL warehouse.set_commit_message('rlfocal', ?)", [message])
                self.connection.execute("COMMIT")
            except BaseException:
                self._roll_back()
                raise
            finally:
                self._writing = False

    @contextmanager
    def lock(self, name: str, *, wait: bool) -> Iterator[bool]:
        """Holds the lock `name` during a block; one process on any host can hold it, and it is not reentrant.

        If another process holds the lock and `wait` is false, it yields False. The lock ends with its process
        at once, and with its host (on Postgres) about a minute later. If Postgres ends the session, as in a
        restart, the lock is lost silently. So check again, in the transaction that commits the work, whether
        another process has done it. Ctrl-C ends waiting. Raises RunError if the lock cannot be requested.
        """
        with lock(self.location, self.connection, name, seconds=math.inf if wait else 0) as mine:
            yield mine

    @contextmanager
    def upkeep(self) -> Iterator[None]:
        """Holds the write lock during a block without a transaction, for what DuckLake commits itself."""
        self.check_writable()
        with (
            writing_to(self.location.folder),
            asking_store(for_writing=True),
            write_lock(self.location, self.connection),
        ):
            self._renew_secret()
            yield

    def append(self, table: str, rows: pa.Table) -> None:
        """Appends rows to a table by column name; missing columns become NULL. Needs a transaction."""
        if not self._writing:
            raise RuntimeError("Warehouse.append outside of Warehouse.transaction")
        writing.append(self.connection, table, rows)

    def put_models(
        self, specs: Iterable[BaseModel], facts: Mapping[str, Sequence[Mapping[str, Any]]] | None = None
    ) -> None:
        """Inserts or updates rows of `models`; writes nothing if they are already the same.

        `facts`: by table, rows of `benchmarks` and `tasks`; None in a row leaves the stored value.
        """
        rows, facts_of = writing.model_rows(specs), facts or {}
        changed = writing.changed_models(self.connection, rows).num_rows
        if changed or any(writing.changed_facts(self.connection, *each) for each in facts_of.items()):
            with self.transaction("describe models"):
                writing.put_models(self.connection, writing.changed_models(self.connection, rows))
                for table, given in facts_of.items():
                    writing.put_facts(self.connection, table, given)

    def documents_differ(
        self, docs: pa.Table, n_whole: Mapping[tuple[str, str], int | None]
    ) -> dict[tuple[str, str], str]:
        """A sentence on how documents differ from the stored ones, for each task where they do.

        `docs` has the columns of the table `docs`. `n_whole` is the number of documents of each (benchmark,
        task) without a limit; None if it is not known.
        """
        return writing.documents_differ(self.connection, docs, n_whole)

    def put_partition(self, *given: Any, **named: Any) -> None:
        """Commits one partition as `put_partitions` does; the parameters are those of `Partition`."""
        self.put_partitions([Partition(*given, **named)])

    def put_partitions(
        self,
        partitions: Sequence[Partition],
        unless: Callable[[PartitionKey, PartitionRecord | None], bool] | None = None,
    ) -> set[PartitionKey]:
        """Commits partitions of one model in one transaction, all or nothing; returns the keys written.

        They replace earlier partitions of their keys. A document that is already stored must have equal
        doc_hash, choices, label and gold, and an equal prompt_hash where both are known. It may differ if no
        other model answered it, or with `replace_documents`, which deletes other models' answers. A record's
        `n_whole` keeps a longer partition from being replaced by one with a limit. `unless` is called under
        the write lock with each key and its stored record; where it returns true, that partition is not
        written.

        Raises InputError with the first differing document, and DiskFullError if the disk is full.
        """
        keyed = {PartitionKey(*(p.extraction[name] for name in PartitionKey._fields)): p for p in partitions}
        [first, *others] = keyed
        benchmarks = ", ".join(dict.fromkeys(key.benchmark for key in keyed))
        what = f"{benchmarks} ({len(keyed)} tasks)" if others else f"{first.benchmark}/{first.task}"
        model = first.model
        with self.transaction(f"extract {model} on {what}"):
            there = self.committed_partitions(model)
            new = {key for key in keyed if unless is None or not unless(key, there.get(key))}
            n_stored = {key[1:]: each.n_docs for key, each in there.items() if not each.fault}
            if new:
                writing.put_answers(self.connection, [keyed[key] for key in keyed if key in new], n_stored)
        return new

    def _renew_secret(self) -> None:
        if self.location.is_postgres:
            use_object_store(self.connection, self.data_path())

    def _roll_back(self) -> None:
        # A failed COMMIT, and a full disk, have already ended the transaction: that error is the one to tell.
        with suppress(duckdb.Error):
            self.connection.execute("ROLLBACK")


def _make_bindable(params: Params) -> list[Any] | dict[str, Any]:
    return dict(params) if isinstance(params, Mapping) else list(params)
