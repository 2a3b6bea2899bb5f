"""Data paths such as s3://bucket/lake, read and written through fsspec."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from warehouse.errors import InputError

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

OPTIONS = "RLFOCAL_STORAGE_OPTIONS"
"""Environment variable: fsspec's storage options as a JSON object."""
_PACKAGES = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs", "az": "adlfs"}


def use_object_store(connection: duckdb.DuckDBPyConnection, data: str | None) -> None:
    """Lets `connection` reach the store of a data path; does nothing for a path on this machine.

    Raises InputError if fsspec does not know the store, or its package is not installed.
    """
    if data is None or "://" not in data:
        return
    protocol = data.partition("://")[0]
    if not connection.filesystem_is_registered(protocol):
        connection.register_filesystem(_store(data))


def delete_file(path: str) -> None:
    """Deletes a file on this machine or in an object store."""
    if "://" in path:
        _store(path).rm_file(path)
    else:
        Path(path).unlink(missing_ok=True)


def _store(data: str) -> AbstractFileSystem:
    from fsspec import filesystem

    protocol = data.partition("://")[0]
    try:
        return filesystem(protocol, **_options())
    except ImportError:
        package = _PACKAGES.get(protocol, f"the fsspec package for {protocol}")
        raise InputError(f"the warehouse's files are at {protocol}://: pip install {package}") from None
    except ValueError as error:
        raise InputError(f"the warehouse's files cannot be at {data}: {error}") from None


def _options() -> dict[str, Any]:
    text = os.environ.get(OPTIONS)
    if not text:
        return {}
    try:
        options = json.loads(text)
    except ValueError:
        options = None
    if not isinstance(options, dict):
        # Its value may hold a secret.
        raise InputError(
            f'{OPTIONS} is not a JSON object; give one such as {{"endpoint_url": "https://..."}}'
        )
    return options
