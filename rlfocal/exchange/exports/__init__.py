"""What leaves the warehouse: its tables, records in others' formats, decisions without labels.

An export is written complete or not at all, in canonical lines, without what may not leave.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from rlfocal.base.atomic import replacing
from rlfocal.base.errors import InputError
from rlfocal.pool import load_benchmarks
from warehouse import Warehouse
from warehouse.disk import writing_to
from warehouse.scripts import script

_AT_ONCE = 10_000  # rows


@contextmanager
def staged(warehouse: Warehouse, target: Path, *, is_folder: bool) -> Iterator[Path]:
    """A file or folder that becomes `target` at the end of the block, in which the warehouse is one snapshot.

    `rlfocal doctor` finds what a kill leaves. Raises InputError for a target that exists, unless it is an
    empty folder for a folder, DiskFullError if the disk is full.
    """
    is_empty_folder = is_folder and target.is_dir() and not any(target.iterdir())
    if target.exists() and not is_empty_folder:
        what, kind = ("is not an empty folder", "folder") if is_folder else ("", "file")
        raise InputError(f"{target} exists{what and ' and ' + what}; give a new {kind}, or remove it")
    with ExitStack() as stack:
        try:
            stage = stack.enter_context(replacing(target.absolute(), suffix=".partial"))
            if is_folder:
                stage.mkdir()
            else:
                stage.touch()
        except OSError as error:
            raise InputError(f"cannot write {target}: {error.strerror}") from None
        stack.enter_context(warehouse.reading())
        stack.enter_context(writing_to(stage if is_folder else stage.parent))
        yield stage


def withhold(warehouse: Warehouse, *, questions: bool) -> None:
    """Makes temp.withheld: the documents whose texts stay, none with `questions`."""
    confidential = [benchmark.name for benchmark in load_benchmarks().values() if benchmark.confidential]
    warehouse.connection.execute("SET VARIABLE confidential = ?::VARCHAR[]", [confidential])
    warehouse.connection.execute("SET VARIABLE with_questions = ?", [questions])
    warehouse.connection.execute(script("exports/withheld"))


def read_records(warehouse: Warehouse, name: str, given: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The rows of the query exports/<name>.sql by column."""
    result = warehouse.connection.execute(script(f"exports/{name}"), dict(given))
    columns = [column[0] for column in result.description]
    while rows := result.fetchmany(_AT_ONCE):
        for row in rows:
            yield dict(zip(columns, row, strict=True))


def write_lines(path: Path, records: Iterable[Mapping[str, Any]]) -> tuple[str, int]:
    """Writes one line of canonical JSON a record; returns the file's SHA-256 and the number of lines."""
    digest, n_lines = sha256(), 0
    with path.open("wb") as file:
        for record in records:
            line = canonical_json(record)
            digest.update(line)
            file.write(line)
            n_lines += 1
    return digest.hexdigest(), n_lines


def canonical_json(value: Mapping[str, Any]) -> bytes:
    """One line: keys in alphabetical order, no spaces, UTF-8.

    >>> canonical_json({"b": [1.0, None], "a": "é"})
    b'{"a":"\\xc3\\xa9","b":[1.0,null]}\\n'
    """
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return f"{text}\n".encode()
