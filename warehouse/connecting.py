"""Connects to DuckDB with DuckLake loaded, and attaches a catalogue as `warehouse`. Parquet files in an
object store are reached through DuckDB's httpfs for S3, GCS and R2, and through fsspec for others."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from datetime import datetime
from http import HTTPStatus
from importlib import import_module, resources
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from weakref import finalize

import duckdb

from warehouse.errors import InputError, RunError
from warehouse.limits import memory_settings, writing_to
from warehouse.locations import CATALOG_FILE, Location, without_password
from warehouse.scripts import quote

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem


CATALOG_NAME = "warehouse"
METADATA_SCHEMA = f"__ducklake_metadata_{CATALOG_NAME}"
_BUSY_MS = 60_000
OPTIONS_VARIABLE = "RLFOCAL_STORAGE_OPTIONS"
"""The environment variable with fsspec's storage options, a JSON object."""
_SECRET_TYPES = {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gcs", "gcs": "gcs", "r2": "r2"}
"""By protocol that httpfs supports, DuckDB's type of secret."""
_FROM_ENVIRONMENT = {
    "KEY_ID": ("AWS_ACCESS_KEY_ID",),
    "SECRET": ("AWS_SECRET_ACCESS_KEY",),
    "SESSION_TOKEN": ("AWS_SESSION_TOKEN",),
    "REGION": ("AWS_REGION", "AWS_DEFAULT_REGION"),
}
"""By option of a DuckDB secret, the environment variables from which AWS's own tools read it."""
_ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_SECRET_NAME = "rlfocal_data"
_SHOWN_BY_HTTPFS = ("s3_access_key_id", "s3_secret_access_key", "s3_session_token")
"""The settings into which httpfs copies credentials from the environment; any query could read them."""


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


def use_object_store(connection: duckdb.DuckDBPyConnection, data: str | None) -> None:
    """Gives `connection` access to the object store of a data path, unless that is on this machine.

    If DuckDB has no secret for the path, this makes one for the connection, from the environment or, for S3,
    from what AWS's own tools would use. A second call makes it anew, because session tokens expire. Raises
    InputError if fsspec does not know the store, or its package is not installed.
    """
    if data is None or "://" not in data:
        return
    protocol = data.partition("://")[0]
    if protocol in _SECRET_TYPES:
        _use_httpfs(connection, data, _SECRET_TYPES[protocol])
    elif not connection.filesystem_is_registered(protocol):
        connection.register_filesystem(_make_store(data))


def is_refusal(error: BaseException) -> bool:
    """Whether a store refused a request or was not reached; a missing file is neither."""
    if isinstance(error, duckdb.HTTPException):
        return error.status_code != HTTPStatus.NOT_FOUND
    return isinstance(error, duckdb.IOException) and " error for HTTP " in str(error)


@contextmanager
def asking_store(*, for_writing: bool = False) -> Iterator[None]:
    """Runs a block that makes requests; raises RunError, with what to check, if the store refuses one.

    A missing file is no refusal, except `for_writing`, when the bucket must be missing.
    """
    try:
        yield
    except duckdb.IOException as error:
        if not (is_refusal(error) or (for_writing and isinstance(error, duckdb.HTTPException))):
            raise
        raise RunError(
            f"{' '.join(without_password(str(error)).split())}. Check ?data=, AWS_ACCESS_KEY_ID, "
            "AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN (which expires), AWS_REGION and AWS_ENDPOINT_URL, or "
            "DuckDB's secret for the path"
        ) from None


def _use_httpfs(connection: duckdb.DuckDBPyConnection, data: str, kind: str) -> None:
    """Makes a temporary secret for the data path from the environment, unless DuckDB has one for it."""
    for name in _SHOWN_BY_HTTPFS:
        connection.execute(f"RESET {name}")
    secrets = connection.execute("SELECT name FROM which_secret(?, ?)", [data, kind]).fetchall()
    if secrets in ([], [(_SECRET_NAME,)]) and (options := _make_secret_options(kind)):
        given = ", ".join(f"{name} {quote(value)}" for name, value in options.items())
        scope = quote(data.partition("://")[0] + "://")
        connection.execute(
            f"CREATE OR REPLACE TEMPORARY SECRET {_SECRET_NAME} (TYPE {kind}, SCOPE {scope}, {given})"
        )


def _make_secret_options(kind: str) -> dict[str, str]:
    """The options of a secret of this type, from the present environment."""
    options = {
        option: value
        for option, names in _FROM_ENVIRONMENT.items()
        if (value := _find_first_set(names)) is not None
    }
    if kind == "s3" and "KEY_ID" not in options:
        options = _ask_aws() | options
    endpoint = _find_first_set(_ENDPOINT_VARIABLES)
    if endpoint is not None:
        url = urlsplit(endpoint if "://" in endpoint else f"https://{endpoint}")
        # Stores other than Amazon's seldom have a host name for each bucket.
        options |= {"ENDPOINT": url.netloc, "URL_STYLE": "path", "USE_SSL": str(url.scheme != "http").lower()}
    return options


def _ask_aws() -> dict[str, str]:
    """The secret's options that botocore finds in a profile, SSO, a process or a role; empty without
    botocore.

    Each call opens a session, because an older one would keep a token until shortly before it expires. Raises
    RunError if credentials cannot be loaded or renewed.
    """
    try:
        from botocore.exceptions import BotoCoreError, ClientError
        from botocore.session import Session
    except ImportError:
        return {}
    session = Session()
    try:
        credentials = session.get_credentials()
        keys = credentials.get_frozen_credentials()[:3] if credentials else ()
    except (BotoCoreError, ClientError, RuntimeError) as error:
        raise RunError(f"no AWS credentials: {error}; log in again, or set AWS_ACCESS_KEY_ID") from None
    options = zip(_FROM_ENVIRONMENT, (*keys, session.get_config_variable("region")), strict=False)
    return {name: value for name, value in options if keys and value}


def _find_first_set(names: tuple[str, ...]) -> str | None:
    return next((value for name in names if (value := os.environ.get(name))), None)


def _make_store(data: str) -> AbstractFileSystem:
    from fsspec import filesystem

    protocol = data.partition("://")[0]
    try:
        return filesystem(protocol, **_read_options())
    except ImportError:
        package = "adlfs" if protocol == "abfs" else f"the fsspec package for {protocol}"
        raise InputError(f"the warehouse's files are at {protocol}://: pip install {package}") from None
    except ValueError as error:
        raise InputError(f"the warehouse's files cannot be at {data}: {error}") from None


def _read_options() -> dict[str, Any]:
    text = os.environ.get(OPTIONS_VARIABLE)
    if not text:
        return {}
    try:
        options = json.loads(text)
    except ValueError:
        options = None
    if not isinstance(options, dict):
        # Its value may hold a secret.
        raise InputError(
            f'{OPTIONS_VARIABLE} is not a JSON object; give one such as {{"account_name": "..."}}'
        )
    return options
