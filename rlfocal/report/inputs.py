"""A digest of a page's inputs, by which an up-to-date page is recognised without slow imports."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from hashlib import sha256
from importlib import resources
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from platform import python_version

from rlfocal.base.names import LOOK_MESSAGE
from warehouse import Warehouse

CODE_PACKAGES = ("rlfocal", "duckdb", "lm_eval", "torch", "transformers", "altair")
_INPUTS_MARK = "\n<!-- rlfocal "
_SOURCE_SUFFIXES = {".py", ".sql", ".j2", ".css", ".js", ".yaml"}


def report_inputs(
    warehouse: Warehouse,
    benchmarks: Sequence[str] | None = None,
    made_at: datetime | None = None,
    confidential: bool = False,
) -> str:
    """The sha256 of all inputs of a page: snapshot, explanations, settings and code."""
    newest = warehouse.rows(
        "SELECT snapshot_id, epoch_us(snapshot_time) FROM warehouse.snapshots() "
        "WHERE snapshot_id <= ? AND commit_message IS DISTINCT FROM ? ORDER BY snapshot_id DESC LIMIT 1",
        [warehouse.snapshot(), LOOK_MESSAGE],
    )
    folder = warehouse.location.explanations
    explanations = sorted(
        (path.name, path.stat().st_mtime_ns, path.read_bytes()) for path in folder.glob("*.json")
    )
    # The time tells apart snapshots of one number, of a warehouse that was made anew at the same place.
    about = (warehouse.location.name, newest, explanations)
    settings = (benchmarks, made_at, confidential, versions())
    return sha256(repr((about, settings, _code_digest())).encode()).hexdigest()


def versions() -> str:
    """The versions of Python and of the packages that a page's figures depend on."""
    return ", ".join([f"Python {python_version()}", *map(_name_version, CODE_PACKAGES)])


def _name_version(package: str) -> str:
    try:
        return f"{package.replace('_', '-')} {version(package)}"
    except PackageNotFoundError:
        return f"{package.replace('_', '-')} (source)"


def _code_digest() -> str:
    """The sha256 of the sources of `rlfocal` and `warehouse`."""
    digest = sha256()
    for package in ("rlfocal", "warehouse"):
        folder = Path(str(resources.files(package)))
        for path in sorted(path for path in folder.rglob("*") if path.suffix in _SOURCE_SUFFIXES):
            digest.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def is_made_from(path: Path, inputs: str) -> bool:
    """Whether a file is a page that was made from these inputs and has not changed since."""
    try:
        page, begun, rest = path.read_text(encoding="utf-8").rpartition(_INPUTS_MARK)
    except (OSError, UnicodeDecodeError):
        return False
    return bool(begun) and begun + rest == mark(page, inputs)


def mark(page: str, inputs: str) -> str:
    """The last line of a page: a digest of its inputs and one of its text, which show that it is up to
    date."""
    return f"{_INPUTS_MARK}{inputs} {sha256(page.encode()).hexdigest()} -->\n"
