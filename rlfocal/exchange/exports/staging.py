"""Where an export is written before it is complete, and what it may not hold."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rlfocal.base.atomic import replacing
from rlfocal.base.errors import InputError
from rlfocal.pool import load_benchmarks
from warehouse import Warehouse
from warehouse.scripts import script


@contextmanager
def staged_folder(target: Path) -> Iterator[Path]:
    """A folder that becomes `target` at the end of the block. `rlfocal doctor` finds what a kill leaves."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InputError(f"{target} exists and is not an empty folder; give a new folder, or remove it")
    with ExitStack() as stack:
        try:
            stage = stack.enter_context(replacing(target.absolute(), suffix=".partial"))
            stage.mkdir()
        except OSError as error:
            raise InputError(f"cannot write {target}: {error.strerror}") from None
        yield stage


@contextmanager
def staged_file(target: Path) -> Iterator[Path]:
    """A file that becomes `target` at the end of the block."""
    if target.exists():
        raise InputError(f"{target} exists; give a new file, or remove it")
    with ExitStack() as stack:
        try:
            stage = stack.enter_context(replacing(target.absolute(), suffix=".partial"))
            stage.touch()
        except OSError as error:
            raise InputError(f"cannot write {target}: {error.strerror}") from None
        yield stage


def withhold(warehouse: Warehouse, *, questions: bool) -> None:
    """Makes temp.withheld: the documents whose texts stay, none with `questions`."""
    confidential = [] if questions else [b.name for b in load_benchmarks().values() if b.confidential]
    connection = warehouse.connection
    connection.execute("SET VARIABLE confidential = ?::VARCHAR[]", [confidential])
    connection.execute(script("exports/withheld"))
    columns = {name for (name, *_) in warehouse.rows("DESCRIBE docs")}
    if "confidential" in columns and not questions:
        connection.execute(script("exports/withheld_flagged"))
