"""The one place that opens a warehouse, and makes or upgrades its tables, views and macros."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import duckdb

from warehouse import columns
from warehouse.connecting import CATALOG, MissingWarehouseError, attach, connect
from warehouse.documentation import document
from warehouse.errors import InputError
from warehouse.locations import Location, exists, locate
from warehouse.locking import write_lock
from warehouse.scripts import SCHEMA, script
from warehouse.store import Warehouse
from warehouse.upgrading import key_rounds_by_model, mark_impossible
from warehouse.writing import digest_docs

SCHEMA_VERSION = 11
"""Raised by one whenever a file under sql/ changes; opening an older warehouse for writing upgrades it."""


def open_warehouse(
    location: str | Path | Location | None = None,
    *,
    read_only: bool = False,
    create: bool = True,
    snapshot: int | datetime | None = None,
) -> Warehouse:
    """Opens the warehouse at `location`; use it as a context manager.

    `location` is a directory or a Postgres URI (see `warehouse.locations.locate`); None means
    $RLFOCAL_WAREHOUSE, else ./.rlfocal/warehouse. `snapshot`, a number or a time, shows the warehouse as
    it was then, read-only. A missing one is made unless `create=False` or it is only read.

    Raises InputError: nothing there to read, something else there, an unknown snapshot, or a newer schema.
    """
    place = locate(location)
    read_only = read_only or snapshot is not None
    create = create and not read_only
    connection = connect(postgres=place.is_postgres)
    try:
        _attach_or_create(connection, place, read_only=read_only, create=create, snapshot=snapshot)
        version = _version(connection, place)
        if not read_only and version < SCHEMA_VERSION:
            version = _upgrade(connection, place)
        _check_version(version, place, snapshot)
        if version < SCHEMA_VERSION:
            _lend_views(connection)
    except BaseException:
        connection.close()
        raise
    return Warehouse(connection, place, read_only=read_only)


def needs_upgrade(warehouse: Warehouse) -> bool:
    """Whether its schema is older than rlfocal's, as it has only been read since."""
    return _version(warehouse.connection, warehouse.location) < SCHEMA_VERSION


def check_tables(connection: duckdb.DuckDBPyConnection, place: Location, snapshot: int) -> None:
    """Raises InputError unless the catalogue in use, which shows `snapshot`, has tables that can be read."""
    _check_version(_version(connection, place), place, snapshot)


def _attach_or_create(
    connection: duckdb.DuckDBPyConnection,
    place: Location,
    *,
    read_only: bool,
    create: bool,
    snapshot: int | datetime | None,
) -> None:
    try:
        if not exists(place):
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


def _version(connection: duckdb.DuckDBPyConnection, place: Location) -> int:
    """The schema's version; 0 for a DuckLake without tables."""
    # All rows are fetched: an unread result keeps a transaction open on Postgres.
    newest = "SELECT max(version) FROM schema_version"
    try:
        [(version,)] = connection.execute(newest).fetchall()
    except duckdb.CatalogException:
        # Not asked before, because it binds every view.
        tables = {name for (name,) in connection.execute("SHOW TABLES").fetchall()}
        if not tables:
            return 0
        if "schema_version" not in tables:
            raise InputError(
                f"{place.name} is a DuckLake but not an rlfocal warehouse (no table schema_version)"
            ) from None
        [(version,)] = connection.execute(newest).fetchall()  # another process has just made the tables
    return int(version or 0)


def _check_version(version: int, place: Location, snapshot: int | datetime | None) -> None:
    if version > SCHEMA_VERSION:
        raise InputError(
            f"warehouse {place.name} was created by a newer rlfocal (schema {version}); upgrade rlfocal"
        )
    if version == 0:
        when = f"at snapshot {snapshot}" if snapshot is not None else "yet"
        raise InputError(f"warehouse {place.name} has no tables {when}")


def _lend_views(connection: duckdb.DuckDBPyConnection) -> None:
    """Lends this connection what an older schema lacks for readers; only a write may add it for good."""
    columns.lend(connection)
    for name in SCHEMA:
        if name != "tables":
            _lend(connection, name)


def _lend(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    """Creates a file's views and macros as temporary ones, which find each other before the catalogue's."""
    unqualified = script(name).replace(f"{CATALOG}.", "")
    connection.execute(unqualified.replace("CREATE OR REPLACE", "CREATE OR REPLACE TEMP"))


def _upgrade(connection: duckdb.DuckDBPyConnection, place: Location) -> int:
    """Brings the schema up to date, unless another process just did; returns its version."""
    with write_lock(place, connection):
        if (version := _version(connection, place)) < SCHEMA_VERSION:
            columns.require(connection)  # first: killed here, it starts anew
            connection.execute("BEGIN")
            try:
                _bring_up_to_date(connection, version)
                connection.execute("COMMIT")
            except BaseException:
                connection.execute("ROLLBACK")
                raise
        return _version(connection, place)


def _bring_up_to_date(connection: duckdb.DuckDBPyConnection, version: int) -> None:
    """All of an upgrade that one transaction can hold."""
    columns.drop_empty_tables(connection)
    connection.execute(script("tables"))
    connection.execute(script("storage"))  # before any write: DuckLake cannot set an order after one
    connection.execute(script("upgrades/read_older"))
    if columns.has(connection, "evaluations", "variant"):
        connection.execute(script("upgrades/to_6"))
    key_rounds_by_model(connection)
    if columns.has(connection, "decisions", "prediction", "VARCHAR"):
        connection.execute(script("upgrades/to_11"))
    columns.add(connection)
    if 0 < version < 10:
        mark_impossible(connection)
        connection.execute(script("writes/digests"))
        connection.execute(script("upgrades/digests_that_count"))
    if 0 < version < 11:
        connection.execute(script("upgrades/read_at"))
        connection.execute(script("writes/name_tasks"))
    connection.execute(script("writes/undigested_docs"))
    digest_docs(connection)
    for name in SCHEMA[1:]:
        connection.execute(script(name))
    document(connection)
    connection.execute("INSERT INTO schema_version VALUES (?, now())", [SCHEMA_VERSION])
    connection.execute("CALL warehouse.set_commit_message('rlfocal', ?)", [f"schema {SCHEMA_VERSION}"])
