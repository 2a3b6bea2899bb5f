"""Reads files of other tools, whatever their format."""

from __future__ import annotations

import codecs
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from rlfocal.base.errors import InputError

Row = Mapping[str, Any]
Pairs = Mapping[str, str] | Sequence[str] | None
"""Pairs of texts, as a mapping or as texts `theirs=ours`."""
_COMPRESSED_SUFFIXES = (".gz", ".bz2", ".zst", ".lz4")
_ARCHIVE_SUFFIXES = (".zip", ".xz", ".7z", ".tar", ".tgz", ".rar")


def plain_suffix(path: Path) -> str:
    """The suffix of a file's name, in small letters and without ".gz" and its like. For a.jsonl.gz it is
    ".jsonl"."""
    *_, first, last = ["", "", *path.suffixes]
    return (first if last.lower() in _COMPRESSED_SUFFIXES else last).lower()


def plain_stem(path: Path) -> str:
    """A file's name without its `plain_suffix`, and without ".gz" and its like."""
    return Path(path.stem).stem if path.suffix.lower() in _COMPRESSED_SUFFIXES else path.stem


MAX_UNPACKED, MAX_RATIO = 1 << 30, 100
"""The bounds on unpacking a file: to MAX_UNPACKED bytes or, if that is more, to MAX_RATIO times its size."""
_CHUNK_BYTES = 1 << 24


@lru_cache(maxsize=64)
def _check_unpacked(path: str, n_bytes: int, changed_at: int) -> None:
    """Raises InputError for a packed file of `n_bytes` that expands beyond MAX_UNPACKED and MAX_RATIO.
    `changed_at`, its modification time in ns, is a key of the cache."""
    most, unpacked = max(MAX_UNPACKED, MAX_RATIO * n_bytes), 0
    with pa.input_stream(path, compression="detect") as packed:
        while chunk := packed.read(_CHUNK_BYTES):
            unpacked += len(chunk)
            if unpacked > most:
                raise InputError(
                    f"{path} has {n_bytes:,} bytes and expands to more than {most:,}; unpack it first if "
                    "that is what you expect"
                )


@contextmanager
def open_plain(path: Path) -> Iterator[BinaryIO]:
    """Yields a file's unpacked bytes. Raises InputError if it cannot be unpacked, or expands too far."""
    try:
        if path.suffix.lower() in _COMPRESSED_SUFFIXES:
            about = path.stat()
            _check_unpacked(str(path), about.st_size, about.st_mtime_ns)
        with pa.input_stream(str(path), compression="detect") as packed, io.BufferedReader(packed) as file:
            yield file
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path} cannot be read: {first_line(error)}") from None


def advise_unpacking(paths: Iterable[Path]) -> str:
    """Advice to unpack if one of the files is an archive; "" otherwise."""
    packed = next((path.name for path in paths if path.suffix.lower() in _ARCHIVE_SUFFIXES), None)
    return f"; {packed} is compressed: unpack it first" if packed else ""


def check_encoding(path: Path) -> None:
    """Raises InputError for a file in UTF-16, which spreadsheets and PowerShell write and call Unicode."""
    with open_plain(path) as file:
        if file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            raise InputError(f"{path} is UTF-16; save it as UTF-8")


def find_files(paths: Iterable[str | Path], is_wanted: Callable[[Path], bool], advice: str) -> list[Path]:
    """The wanted files among these paths and inside these folders, each once. Raises InputError for a path
    that does not exist or has no wanted file. `advice` says in words what it should have."""
    files: dict[Path, Path] = {}
    for path in map(Path, paths):
        if not path.exists():
            raise InputError(f"there is no file or folder {path}")
        inside = sorted(path.rglob("*")) if path.is_dir() else [path]
        chosen = [file for file in inside if file.is_file() and is_wanted(file)]
        if not chosen:
            raise InputError(f"{path} has no {advice}{advise_unpacking(inside)}")
        files |= {file.absolute(): file for file in chosen}
    return list(files.values())


def read_json(path: Path, advice: str) -> Any:
    """The content of a JSON file. Raises InputError, with `advice`, if it is broken."""
    try:
        with open_plain(path) as file:
            return _parse_json(file.read())
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not valid JSON ({error}); {advice}") from None


def read_jsonl(path: Path) -> Iterator[tuple[int, Row]]:
    """Yields the number and the object of each line of a JSONL file. Raises InputError for a broken line."""
    check_encoding(path)
    with open_plain(path) as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                row = _parse_json(line)
            except (ValueError, RecursionError) as error:
                shown = line[:60].decode("utf-8", "replace").strip()
                raise InputError(
                    f"{path}, line {number}: not valid JSON ({error}): {shown}; write the log again, "
                    "or remove this line from every model's log"
                ) from None
            if not isinstance(row, dict):
                raise InputError(f"{path}, line {number}: not a JSON object: {str(row)[:60]}")
            yield number, row


def _parse_json(content: bytes) -> Any:
    """The parsed JSON. Raises ValueError or RecursionError if it is broken, or has text that no table can
    hold."""
    value = json.loads(content, object_pairs_hook=_refuse_duplicates)
    if b"\\ud" in content.lower():
        # Half a surrogate pair is not text.
        json.dumps(value, ensure_ascii=False).encode()
    return value


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object as a dict. Raises ValueError for a duplicate key, because readers disagree on which value
    counts."""
    row = dict(pairs)
    if len(row) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"duplicate key {next(name for name in names if names.count(name) > 1)!r}")
    return row


def first_line(error: Exception) -> str:
    """The first line of a library's error message, whose further lines may be a dump."""
    return str(error).strip().split("\n", 1)[0]


def read_pairs(flag: str, texts: Pairs) -> dict[str, str]:
    """The pairs of an option `A=B` that may be given several times. Raises InputError for other texts."""
    if isinstance(texts, Mapping):
        return dict(texts)
    given = [texts] if isinstance(texts, str) else texts or ()
    pairs = [each.rpartition("=") for each in given]
    for each, (before, _, after) in zip(given, pairs, strict=True):
        if not (before.strip() and after.strip()):
            raise InputError(f"{flag} {each}: write A=B, as in {flag} theirs=ours")
    return {before.strip(): after.strip() for before, _, after in pairs}
