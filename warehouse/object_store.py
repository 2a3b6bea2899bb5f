"""Access to Parquet files in an object store: S3, GCS and R2 through DuckDB's httpfs, others through
fsspec."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import duckdb

from warehouse.errors import InputError, RunError
from warehouse.locations import without_password
from warehouse.scripts import quote

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

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
