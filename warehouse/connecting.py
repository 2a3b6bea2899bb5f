"""Connects to DuckDB with DuckLake loaded, and attaches a catalogue as `warehouse`."""

from __future__ import annotations

import os
import shutil
from contextlib import nullcontext, suppress
from datetime import datetime
from importlib import import_module, resources
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from weakref import finalize

import duckdb

from warehouse.errors import InputError, RunError
from warehouse.limits import memory_settings, writing_to
from warehouse.locations import CATALOG_FILE, Location, without_password
from warehouse.object_store import use_object_store
from warehouse.scripts import quote

CATALOG_NAME = "warehouse"
METADATA_SCHEMA = f"__ducklake_metadata_{CATALOG_NAME}"
_BUSY_MS = 60_000


class MissingWarehouseError(InputError):
    """The error for a location without a catalogue."""

    def __init__(self, location: Location) -> None:
        super().__init__(
            f"there is no warehouse at {location.name}; `rlfocal extract` or `rlfocal import` creates one"
        )


def connect(*, postgres: bool, threads: int | None = None) -> duckdb.DuckDBPyConnection:
    """A connection to an in-memory DuckDB with the installed extensions, made without network access or
    writes.

    `postgres`: the catalogue will be on Postgres. `threads`: the number of DuckDB's threads; None means
    OMP_NUM_THREADS, else all cores.
    """
    with suppress(ImportError):
        # Else DuckDB imports it at the first query parameter, and a Ctrl-C during that is lost.
        import_module("pandas")
    connection = duckdb.connect(
        config={
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            # Checking signatures takes half the opening time, for files that pip installed beside DuckDB
            # itself.
            "allow_unsigned_extensions": "true",
            # A Python variable with a table's name must not hide the table.
            "python_enable_replacements": "false",
            **_limit_threads(threads),
            **memory_settings(),
        }
    )
    # DuckDB draws it on stdout, which is for results only. A notebook without ipywidgets has none, and
    # refuses the setting.
    if connection.execute("SELECT current_setting('enable_progress_bar')").fetchone() == (True,):
        connection.execute("SET enable_progress_bar = false")
    # A catalogue in Postgres may say that its files are in an object store.
    for name in (("postgres_scanner", "httpfs") if postgres else ("sqlite_scanner",)) + ("ducklake",):
        connection.execute(f"LOAD {quote(str(_find_extension(name)))}")
    return connection


def _limit_threads(threads: int | None) -> dict[str, str]:
    """DuckDB's setting for the number of threads, by default from OMP_NUM_THREADS; empty without both."""
    most = str(threads or os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip())
    return {"threads": most} if most.isdecimal() and int(most) else {}


def attach(
    connection: duckdb.DuckDBPyConnection,
    location: Location,
    *,
    read_only: bool,
    create: bool,
    snapshot: int | datetime | None,
    name: str = CATALOG_NAME,
) -> None:
    """Attaches the catalogue under `name` and makes it current.

    Raises MissingWarehouseError if there is no catalogue; InputError for an unknown snapshot, for a file that
    is not a catalogue, and for a catalogue that may not be written to.
    """
    if isinstance(snapshot, int) and not 0 <= snapshot < 2**63:
        raise _explain_missing_snapshot(connection, location, snapshot)
    options = [f"CREATE_IF_NOT_EXISTS {create}"]
    if read_only:
        options.append("READ_ONLY")
    if isinstance(snapshot, datetime):
        options.append(f"SNAPSHOT_TIME {quote(str(snapshot.astimezone()))}")
    elif snapshot is not None:
        options.append(f"SNAPSHOT_VERSION {int(snapshot)}")
    if location.data is not None:
        # The catalogue remembers an absolute path; overriding it lets a warehouse be moved.
        options += [f"DATA_PATH {quote(location.data)}", "OVERRIDE_DATA_PATH true"]
    if not location.is_postgres:
        options += ["META_JOURNAL_MODE 'WAL'", f"META_BUSY_TIMEOUT {_BUSY_MS}"]
    address = quote("ducklake:" + (_pick_catalog(connection, location) if read_only else location.catalog))
    try:
        with nullcontext() if location.directory is None else writing_to(location.directory):
            connection.execute(f"ATTACH {address} AS {name} ({', '.join(options)})")
    except duckdb.Error as error:
        if snapshot is not None and "No snapshot found" in str(error):
            raise _explain_missing_snapshot(connection, location, snapshot) from None
        raise _explain(error, location) from None
    connection.execute(f"USE {name}")
    if location.is_postgres:
        stored = f"SELECT value FROM {name}.options() WHERE option_name = 'data_path'"
        paths = [path for (path,) in connection.execute(stored).fetchall()]
        use_object_store(connection, location.data or next(iter(paths), None))
    connection.execute("SET ducklake_max_retry_count = 100")


def _pick_catalog(connection: duckdb.DuckDBPyConnection, location: Location) -> str:
    """The address of the catalogue, or of a temporary copy if its directory is not writable, as SQLite
    needs."""
    directory = location.directory
    if directory is None or os.access(directory, os.W_OK) or (directory / f"{CATALOG_FILE}-wal").exists():
        return location.catalog
    folder = mkdtemp(prefix="rlfocal-")
    finalize(connection, shutil.rmtree, folder, ignore_errors=True)
    return f"sqlite:{shutil.copyfile(directory / CATALOG_FILE, Path(folder) / CATALOG_FILE)}"


def _explain_missing_snapshot(
    connection: duckdb.DuckDBPyConnection, location: Location, snapshot: int | datetime
) -> InputError:
    """The error for a missing snapshot, which lists the existing ones. The connection then shows the
    newest."""
    attach(connection, location, read_only=True, create=False, snapshot=None, name="newest")
    there = (
        "min(snapshot_id), max(snapshot_id), count(*), min(snapshot_time)::VARCHAR FROM newest.snapshots()"
    )
    first, last, n, begin = connection.execute(f"SELECT {there}").fetchone() or (0, 0, 1, None)
    gaps = "" if n == last - first + 1 else f", {last - first + 1 - n} of them expired"
    lacks = f"no snapshot {snapshot}" if isinstance(snapshot, int) else f"no snapshot as old as {snapshot}"
    return InputError(
        f"warehouse {location.name} has {lacks}; it has {first} to {last}{gaps} "
        f"(since {begin}; `rlfocal snapshots` lists them)"
    )


def _explain(error: duckdb.Error, location: Location) -> Exception:
    text = without_password(str(error)).strip()
    if "explicitly disabled" in text:
        return MissingWarehouseError(location)
    if "file is not a database" in text or "malformed" in text:
        return InputError(
            f"{location.name} is not a warehouse: its catalogue is not an SQLite database ({text}); "
            "give another --warehouse, or restore the catalogue from a backup"
        )
    if location.is_postgres:
        return InputError(f"cannot open warehouse {location.name}: {text}")
    return RunError(f"cannot open warehouse {location.name}: {text}")


def _find_extension(name: str) -> Path:
    package = f"duckdb_extension_{name}"
    folder = f"v{duckdb.__version__}"
    if find_spec(package) is not None:
        file = Path(str(resources.files(package))) / "extensions" / folder / f"{name}.duckdb_extension"
        if file.is_file():
            return file
    wanted = f"{package.replace('_', '-')}=={duckdb.__version__}"
    raise RunError(f"DuckDB {duckdb.__version__} lacks its extension {name}: install {wanted}")
