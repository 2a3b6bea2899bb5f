"""What a report was made from, noted at the end of its page, so that an up-to-date page is not made again."""

from __future__ import annotations

from hashlib import sha256
from importlib import resources
from pathlib import Path

from warehouse import Warehouse

_MARK = "\n<!-- rlfocal "
_SOURCES = {".py", ".sql", ".j2", ".css", ".js", ".yaml"}


def inputs_digest(warehouse: Warehouse, **settings: object) -> str:
    """sha256 over all that a page depends on: snapshot, studies, explanations, settings and this code."""
    newest = warehouse.rows(
        "SELECT snapshot_id, epoch_us(snapshot_time) FROM warehouse.snapshots() WHERE snapshot_id = ?",
        [warehouse.snapshot()],
    )
    studies, explanations = (
        sorted((path.name, path.stat().st_mtime_ns, path.read_bytes()) for path in folder.glob("*.json"))
        for folder in (warehouse.location.studies, warehouse.location.explanations)
    )
    # The time tells apart snapshots of one number, of a warehouse that was made anew at the same place.
    about = (warehouse.location.name, newest, studies, explanations, sorted(settings.items()))
    return sha256(repr((about, code_digest())).encode()).hexdigest()


def code_digest() -> str:
    """sha256 over the sources of `rlfocal` and `warehouse`."""
    digest = sha256()
    for package in ("rlfocal", "warehouse"):
        folder = Path(str(resources.files(package)))
        for path in sorted(path for path in folder.rglob("*") if path.suffix in _SOURCES):
            digest.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def add_mark(page: str, inputs: str) -> str:
    """The page, with what it was made from at its end."""
    return f"{page}{_mark(page, inputs)}"


def is_made_from(path: Path, inputs: str) -> bool:
    """Whether the file is a page that was made from these inputs, unchanged since."""
    try:
        page, mark, rest = path.read_text(encoding="utf-8").rpartition(_MARK)
    except (OSError, UnicodeDecodeError):
        return False
    return bool(mark) and mark + rest == _mark(page, inputs)


def _mark(page: str, inputs: str) -> str:
    return f"{_MARK}{inputs} {sha256(page.encode()).hexdigest()} -->\n"
