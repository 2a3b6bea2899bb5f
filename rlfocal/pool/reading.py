"""YAML files, checked before they are loaded: no file can take more time or memory than a pool needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    CollectionStartEvent,
    DocumentEndEvent,
    Event,
    NodeEvent,
)

from rlfocal.base.errors import InputError

LARGEST = 200_000  # bytes
DEEPEST = 30  # levels
MOST = 20_000  # keys and values, each anchor's counted wherever an alias stands for it


def read_yaml(path: Path) -> dict[str, Any]:
    """The keys and values of a YAML file.

    Raises InputError for a file that is not YAML, not keys and values, too large or too deep, that refers to
    itself, or whose aliases expand beyond MOST.
    """
    content = read_text(path)
    try:
        _check_size(content, path)
        read = YAML(typ="safe").load(content)
    except (YAMLError, ValueError, ArithmeticError, LookupError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is not valid YAML: {_reason(error)}") from error
    if not isinstance(read, dict):
        raise InputError(f"{path} must be a mapping (keys and values), not {type(read).__name__}")
    return read


def read_text(path: Path) -> str:
    """The text of a small file. Raises InputError for a large one, and for one that is not UTF-8."""
    with path.open("rb") as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise InputError(f"{path} is larger than {LARGEST:,} bytes, too large for a pool or an entry")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not valid UTF-8 (byte {error.start + 1}); save it as UTF-8") from None


def _check_size(content: str, path: Path) -> None:
    """Counts what the text expands to, from its events, without building it."""
    sizes: dict[str, int] = {}
    open_nodes: list[tuple[str | None, int]] = []  # (anchor, how many nodes there were before it)
    count = 0
    for event in YAML(typ="safe").parse(content):
        count += _size(event, sizes, open_nodes, path)
        if isinstance(event, CollectionStartEvent):
            open_nodes.append((event.anchor, count - 1))
        elif isinstance(event, CollectionEndEvent):
            anchor, before = open_nodes.pop()
            if anchor is not None:
                sizes[anchor] = count - before
        if count > MOST or len(open_nodes) > DEEPEST:
            limit = f"{DEEPEST} levels" if len(open_nodes) > DEEPEST else f"{MOST:,} keys and values"
            raise InputError(f"{path}, {_line(event)}: more than {limit}; split the file")
        if isinstance(event, DocumentEndEvent):
            sizes.clear()


def _size(event: Event, sizes: dict[str, int], open_nodes: list[tuple[str | None, int]], path: Path) -> int:
    if isinstance(event, AliasEvent):
        if event.anchor in {anchor for anchor, _ in open_nodes}:
            raise InputError(f"{path}, {_line(event)}: *{event.anchor} refers to itself; write it out")
        return sizes.get(event.anchor, 1)
    if not isinstance(event, NodeEvent):
        return 0
    if event.anchor is not None:
        sizes[event.anchor] = 1
    return 1


def _line(event: Event) -> str:
    return f"line {event.start_mark.line + 1}"


def _reason(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    if isinstance(error, MarkedYAMLError) and error.problem and mark is not None:
        return f"line {mark.line + 1}: {error.problem}"
    return " ".join(str(error).split()) or type(error).__name__
