"""Opens a warehouse, and creates or upgrades its tables, views and macros; copies a benchmark's rows into
memory for callers that make many queries on them."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import duckdb

from warehouse.connecting import CATALOG_NAME, MissingWarehouseError, attach, connect
from warehouse.errors import InputError
from warehouse.limits import writing_to
from warehouse.locations import Location, locate, may_exist
from warehouse.locking import write_lock
from warehouse.scripts import SCHEMA_FILES, document, schema_digest, schema_script, script
from warehouse.store import Warehouse
from warehouse.writing import digest_runs

SCHEMA_VERSION = 18
"""The version of the schema; raise it when a release changes files under sql/. Writers then upgrade."""
FIRST_RELEASED_VERSION = 11
"""The first released version of the schema; warehouses of earlier versions are refused."""
COPIED_TABLES = (
    "docs",
    "choice_logprobs",
    "answer_passes",
    "extractions",
    "evaluations",
    "decisions",
    "training_history",
)
"""The copied tables: those that report pages read by document or by run."""
MAX_COPIED_ANSWERS = 300_000
"""The most answers of a benchmark that is copied; with more, opening files takes little of a query's time."""


def open_warehouse(
    location: str | Path | Location | None = None,
    *,
    read_only: bool = False,
    create: bool = True,
    snapshot: int | datetime | None = None,
    threads: int | None = None,
) -> Warehouse:
    """Opens the warehouse at `location`; use it as a context manager.

    `location` is a directory or a Postgres URI (see `warehouse.locations.locate`); None means
    $RLFOCAL_WAREHOUSE, else ./.rlfocal/warehouse. `snapshot`, a number or a time, shows the warehouse as it
    was then, read-only. A missing warehouse is created, unless `create=False` or it is only read.

    `threads` is the number of DuckDB's threads; None means OMP_NUM_THREADS, else all cores. One thread takes
    half the CPU time for short queries, which counts where processes share the cores.

    Raises InputError for a missing warehouse or something else at the location, for an unknown snapshot, and
    for a schema that cannot be read, and DiskFullError if there is no room for a new one.
    """
    place = locate(location)
    read_only = read_only or snapshot is not None
    create = create and not read_only
    connection = connect(postgres=place.is_postgres, threads=threads)
    try:
        _attach_or_create(connection, place, read_only=read_only, create=create, snapshot=snapshot)
        version, digest = _read_schema(connection, place)
        if not read_only and _is_upgraded(version, digest):
            with writing_to(place.folder):
                version, digest = _upgrade(connection, place)
        _check_version(version, place, snapshot)
        if version < SCHEMA_VERSION or digest not in (None, schema_digest()):
            _define_schema(connection)
    except BaseException:
        connection.close()
        raise
    return Warehouse(connection, place, read_only=read_only)


def needs_upgrade(warehouse: Warehouse) -> bool:
    """Whether the warehouse's schema is older than rlfocal's; only opening it for writing upgrades it."""
    return _read_schema(warehouse.connection, warehouse.location)[0] < SCHEMA_VERSION


def check_tables(connection: duckdb.DuckDBPyConnection, place: Location, snapshot: int) -> None:
    """Raises InputError unless the attached catalogue, at `snapshot`, has tables of a readable schema."""
    _check_version(_read_schema(connection, place)[0], place, snapshot)


def _attach_or_create(
    connection: duckdb.DuckDBPyConnection,
    place: Location,
    *,
    read_only: bool,
    create: bool,
    snapshot: int | datetime | None,
) -> None:
    try:
        if not may_exist(place):
            raise MissingWarehouseError(place)
        attach(connection, place, read_only=read_only, create=False, snapshot=snapshot)
    except MissingWarehouseError:
        if not create:
            raise
        if place.directory is not None:
            try:
                place.directory.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise InputError(f"cannot create a warehouse at {place.name}: {error.strerror}") from None
        elif place.data is None:
            raise InputError(
                f"no warehouse at {place.name} yet; say where the Parquet files of a new one go: ?data=DIR"
            ) from None
        with write_lock(place, connection):
            attach(connection, place, read_only=False, create=True, snapshot=None)


def _read_schema(connection: duckdb.DuckDBPyConnection, place: Location) -> tuple[int, str | None]:
    """The schema's version, 0 for a DuckLake without tables; and the digest of its SQL, or None."""
    # All rows are fetched: an unread result keeps a transaction open on Postgres.
    newest = "SELECT max(version), sql_digest() FROM schema_version"
    with suppress(duckdb.CatalogException):
        return connection.execute(newest).fetchall()[0]
    newest = "SELECT max(version), NULL FROM schema_version"  # from before digests, or nothing
    try:
        [(version, _)] = connection.execute(newest).fetchall()
    except duckdb.CatalogException:
        # Not asked before, because it binds every view.
        tables = {name for (name,) in connection.execute("SHOW TABLES").fetchall()}
        if not tables:
            return 0, None
        if "schema_version" not in tables:
            raise InputError(
                f"{place.name} is a DuckLake but not an rlfocal warehouse (no table schema_version)"
            ) from None
        [(version, _)] = connection.execute(newest).fetchall()  # another process has just made the tables
    return int(version or 0), None


def _is_upgraded(version: int, digest: str | None) -> bool:
    """Whether a writer would upgrade this schema: an older version, or views and macros of other SQL."""
    is_edited = version == SCHEMA_VERSION and digest != schema_digest()
    return is_edited or version == 0 or FIRST_RELEASED_VERSION <= version < SCHEMA_VERSION


def _check_version(version: int, place: Location, snapshot: int | datetime | None) -> None:
    when = "" if snapshot is None else f" at snapshot {snapshot}"
    if version > SCHEMA_VERSION:
        raise InputError(
            f"warehouse {place.name}{when} was created by a newer rlfocal (schema {version}); upgrade rlfocal"
        )
    if version == 0:
        raise InputError(f"warehouse {place.name} has no tables{when or ' yet'}")
    if version < FIRST_RELEASED_VERSION:
        raise InputError(
            f"warehouse {place.name}{when} was created by a development version of rlfocal (schema "
            f"{version}, expected {FIRST_RELEASED_VERSION} or later); extract or import its "
            "answers into a new warehouse"
        )


def _define_views(connection: duckdb.DuckDBPyConnection) -> None:
    """Creates the present views and macros as temporary ones, for this connection alone.

    They take precedence over the catalogue's, and read temporary tables where these have the same names.
    """
    for name in SCHEMA_FILES[1:]:
        unqualified = schema_script(name).replace(f"{CATALOG_NAME}.", "")
        connection.execute(unqualified.replace("CREATE OR REPLACE", "CREATE OR REPLACE TEMP"))


def _define_schema(connection: duckdb.DuckDBPyConnection) -> None:
    """Creates the present views and macros as temporary ones, with what they need of an older schema.

    Tables that the warehouse lacks become empty temporary ones, and columns that its tables lack are NULL.
    """
    there = {name for (name,) in connection.execute("SHOW TABLES").fetchall()}
    for statement in connection.extract_statements(script(SCHEMA_FILES[0])):
        name = re.findall(r"IF NOT EXISTS (\w+)", statement.query)[0]
        if name not in there:
            connection.execute(statement.query.replace("CREATE TABLE", "CREATE TEMP TABLE"))
    lacking: dict[str, str] = {}
    for table, column, kind in _find_lacking_columns(connection):
        lacking[table] = lacking.get(table, "") + f", NULL::{kind} AS {column}"
    for table, columns in lacking.items():
        connection.execute(f"CREATE TEMP VIEW {table} AS SELECT *{columns} FROM {CATALOG_NAME}.{table}")
    _define_views(connection)


def _find_lacking_columns(connection: duckdb.DuckDBPyConnection) -> list[tuple[str, str, str]]:
    """Tuples (table, column, type) of the columns that an older schema's tables lack."""
    listed = "SELECT table_name, column_name, data_type FROM duckdb_columns() WHERE database_name = ?"
    with duckdb.connect() as scratch:
        scratch.execute(script(SCHEMA_FILES[0]))
        declared = scratch.execute(listed, ["memory"]).fetchall()
    there = {(table, column) for table, column, _ in connection.execute(listed, [CATALOG_NAME]).fetchall()}
    tables = {table for table, _ in there}
    return [each for each in declared if each[0] in tables and each[:2] not in there]


def _upgrade(connection: duckdb.DuckDBPyConnection, place: Location) -> tuple[int, str | None]:
    """Upgrades tables, views and macros, unless another process just did; returns the new version and
    digest."""
    with write_lock(place, connection):
        before, digest = _read_schema(connection, place)
        if _is_upgraded(before, digest):
            connection.execute("BEGIN")
            try:
                # `storage` before any write: DuckLake cannot set an order after one
                for table, column, kind in _find_lacking_columns(connection) if before else ():
                    connection.execute(f"ALTER TABLE {table} ADD COLUMN {column} {kind}")
                for name in (SCHEMA_FILES[0], "storage", *SCHEMA_FILES[1:]):
                    connection.execute(schema_script(name))
                if 0 < before < 13:  # its runs have no digests
                    digest_runs(connection, "true")
                document(connection)
                connection.execute("INSERT INTO schema_version VALUES (?, now())", [SCHEMA_VERSION])
                message = f"schema {SCHEMA_VERSION}"
                connection.execute("CALL warehouse.set_commit_message('rlfocal', ?)", [message])
                connection.execute("COMMIT")
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute(script("empty_statistics"))
        return _read_schema(connection, place)


class BenchmarkCopy:
    """A copy of one benchmark's rows in temporary tables, which the connection reads in place of the stored
    ones: opening a Parquet file for each model and task takes most of the time of a small query.

    Views and macros read the copy, too. Other benchmarks look empty meanwhile.
    """

    def __init__(self, warehouse: Warehouse) -> None:
        self._connection = warehouse.connection
        # Of an older warehouse that is only read, temporary views have these names.
        in_use = "SELECT 1 FROM duckdb_views() WHERE database_name = 'temp' AND list_contains(?, view_name)"
        self._is_possible = not warehouse.rows(in_use, [list(COPIED_TABLES)])
        self._has_views = False
        self._rows = warehouse.rows

    def copy(self, benchmark: str) -> bool:
        """Replaces the copy by that of `benchmark`; returns False if it has too many answers or cannot be
        copied."""
        if not self._is_possible:
            return False
        self._drop_copies()
        if self._count(benchmark) > MAX_COPIED_ANSWERS:
            return False
        if not self._has_views:
            _define_views(self._connection)
            self._has_views = True
        for table in COPIED_TABLES:
            self._connection.execute(
                f"CREATE TEMP TABLE {table} AS FROM {CATALOG_NAME}.{table} WHERE benchmark = ?", [benchmark]
            )
        return True

    def _count(self, benchmark: str) -> int:
        asked = f"SELECT coalesce(sum(n_docs), 0) FROM {CATALOG_NAME}.extractions WHERE benchmark = ?"
        return int(self._rows(asked, [benchmark])[0][0])

    def _drop_copies(self) -> None:
        for table in COPIED_TABLES:
            self._connection.execute(f"DROP TABLE IF EXISTS temp.{table}")
