"""Locations of a warehouse: a directory (SQLite catalogue and Parquet files) or a Postgres URI."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from urllib.parse import parse_qsl, urlencode

from warehouse.errors import InputError

DEFAULT_LOCATION = Path(".rlfocal") / "warehouse"
CATALOG_FILE = "catalog.sqlite"
LOCK_FOLDER = "locks"
_LEFTOVERS = frozenset({"data", LOCK_FOLDER, CATALOG_FILE, f"{CATALOG_FILE}-journal"})
"""The names of files and folders that an interrupted creation of a warehouse may leave in its directory."""


@dataclass(frozen=True)
class Location:
    """A warehouse's location: the catalogue's address for DuckLake's ATTACH, and the folder of Parquet
    files."""

    name: str
    """The warehouse's name in messages, without a password."""
    catalog: str
    data: str | None
    """The folder or URI of the Parquet files; None: an existing Postgres catalogue names it."""
    directory: Path | None
    """The warehouse's directory; None for Postgres."""

    @property
    def is_postgres(self) -> bool:
        return self.directory is None

    @property
    def local(self) -> Path:
        """The folder on this machine for files about the warehouse, whatever the current directory.

        For Postgres it is $XDG_DATA_HOME/rlfocal/DIGEST, by default under ~/.local/share. The digest is that
        of the address without its password.
        """
        if self.directory is not None:
            return self.directory
        home = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
        return home / "rlfocal" / sha256(without_password(self.catalog).encode()).hexdigest()[:16]

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints of agents that were trained from this warehouse."""
        return self.local / "checkpoints"

    @property
    def studies(self) -> Path:
        """The folder of findings of studies on this warehouse."""
        return self.local / "studies"

    @property
    def explanations(self) -> Path:
        """The folder of explanations of trained agents' test decisions, for `rlfocal explain`."""
        return self.local / "explanations"

    @property
    def shards(self) -> Path:
        """The folder of shards: extracted answers that are not committed yet."""
        return self.local / "shards"

    @property
    def payments(self) -> Path:
        """The SQLite file of payments to services, and of the services' answers."""
        return self.local / "payments.sqlite"

    @property
    def folder(self) -> Path:
        """The folder on this machine whose disk a write to the warehouse fills."""
        data = self.data if self.data and "://" not in self.data else None
        return self.directory or (self.local if data is None else Path(data))


def locate(location: str | Path | Location | None) -> Location:
    """The location that a directory or URI names; None is $RLFOCAL_WAREHOUSE, else ./.rlfocal/warehouse.

    Postgres: `postgres:dbname=lake host=db?data=/mnt/lake` or
    `postgresql://user@db/lake?data=s3://bucket/lake`.
    """
    if isinstance(location, Location):
        return location
    if location == "":
        raise InputError(
            "the warehouse's location is empty; give a directory or a postgres: URI, or leave it out"
        )
    given = str(location or os.environ.get("RLFOCAL_WAREHOUSE") or DEFAULT_LOCATION)
    if re.match(r"postgres(ql)?:", given):
        return _locate_postgres(given)
    if "://" in given or re.match(r"(ducklake|duckdb|sqlite|mysql|postgres(ql)?):", given, re.IGNORECASE):
        raise InputError(f"warehouse {without_password(given)!r}: give a directory or a postgres: URI")
    directory = expand_path(given).absolute()
    return Location(given, f"sqlite:{directory / CATALOG_FILE}", str(directory / "data"), directory)


def expand_path(path: str | Path) -> Path:
    """The path with ~ and ~user replaced by home folders. Raises InputError for an unknown user."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise InputError(f"{str(path)!r}: no such user; give another path") from None


def check_location(location: str | Path | Location | None) -> None:
    """Raises InputError if something other than a warehouse is at the location; creates and opens nothing."""
    may_exist(locate(location))


def may_exist(location: Location) -> bool:
    """Whether a catalogue may be at the location; for Postgres always true, because only attaching can tell.

    Raises InputError if something other than a warehouse is there.
    """
    directory = location.directory
    if directory is None:
        return True
    if not directory.exists():
        return False
    if not directory.is_dir():
        raise InputError(f"{location.name} is a file, not a warehouse; give the warehouse's directory")
    catalog = directory / CATALOG_FILE
    if catalog.is_file() and catalog.stat().st_size:
        return True
    if catalog.is_file() and any((directory / "data").glob("*")):
        raise InputError(
            f"the catalogue {catalog} is empty (0 bytes), beside the Parquet files that it described: "
            "restore it from a backup, or move what is in the directory away to begin anew"
        )
    others = sorted(p.name for p in directory.iterdir() if p.name not in _LEFTOVERS)
    if catalog.is_file() and catalog.stat().st_size:  # another process has made it meanwhile
        return True
    if others:
        raise InputError(
            f"{location.name} is not a warehouse: it holds {others[0]!r} but no {CATALOG_FILE}; "
            "give a warehouse, or an empty or new directory"
        )
    return False


def without_password(text: str) -> str:
    """`text` with the password of a connection string replaced by ***."""
    text = re.sub(r"(password\s*=\s*)('[^']*'|\S+)", r"\1***", text, flags=re.IGNORECASE)
    return re.sub(r"(://[^:/@\s]+:)[^@\s]+@", r"\1***@", text)


def _locate_postgres(text: str) -> Location:
    address, _, options = text.partition("?")
    fields = dict(parse_qsl(options, keep_blank_values=True))
    data = fields.pop("data", None)
    is_url = "://" in address
    if fields and not is_url:
        option = next(iter(fields))
        raise InputError(f"warehouse {without_password(text)!r}: unknown option {option!r}; known: data")
    dsn = address if is_url else address.partition(":")[2]
    if fields:
        dsn += "?" + urlencode(fields)
    if data is not None and "://" not in data:
        data = str(expand_path(data).absolute())
    return Location(without_password(text), f"postgres:{dsn}", data, None)
