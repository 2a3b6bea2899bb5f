"""Edits the text of pool files: checks it before loading, and adds or removes a model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from textwrap import indent
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
from ruamel.yaml.nodes import CollectionNode, MappingNode, Node, ScalarNode, SequenceNode

from rlfocal.base.errors import InputError

MAX_FILE_BYTES = 200_000  # bytes
MAX_DEPTH = 30  # levels
MAX_NODES = 20_000  # keys and values, each anchor's counted wherever an alias stands for it


def read_yaml(path: Path) -> dict[str, Any]:
    """The keys and values of a YAML file. Raises InputError for a file that is not YAML, not keys and values,
    too large or too deep. It also does for a file that refers to itself, or whose aliases expand too far."""
    content = read_text(path)
    try:
        _check_size(content, path)
        read = YAML(typ="safe").load(content)
    except (YAMLError, ValueError, ArithmeticError, LookupError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is not valid YAML: {_explain(error)}") from error
    if not isinstance(read, dict):
        raise InputError(f"{path} must be a mapping (keys and values), not {type(read).__name__}")
    return read


def read_text(path: Path) -> str:
    """The text of a small file. Raises InputError for a large file, and for one that is not UTF-8."""
    with path.open("rb") as file:
        content = file.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise InputError(f"{path} is larger than {MAX_FILE_BYTES:,} bytes, too large for a pool or an entry")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not valid UTF-8 (byte {error.start + 1}); save it as UTF-8") from None


def _check_size(content: str, path: Path) -> None:
    """Raises InputError if the text would expand too far. It counts YAML's events, without building
    values."""
    sizes: dict[str, int] = {}
    open_nodes: list[tuple[str | None, int]] = []  # (anchor, how many nodes there were before it)
    count = 0
    for event in YAML(typ="safe").parse(content):
        count += _count(event, sizes, open_nodes, path)
        if isinstance(event, CollectionStartEvent):
            open_nodes.append((event.anchor, count - 1))
        elif isinstance(event, CollectionEndEvent):
            anchor, before = open_nodes.pop()
            if anchor is not None:
                sizes[anchor] = count - before
        if count > MAX_NODES or len(open_nodes) > MAX_DEPTH:
            limit = f"{MAX_DEPTH} levels" if len(open_nodes) > MAX_DEPTH else f"{MAX_NODES:,} keys and values"
            raise InputError(f"{path}, {_name_line(event)}: more than {limit}; split the file")
        if isinstance(event, DocumentEndEvent):
            sizes.clear()


def _count(event: Event, sizes: dict[str, int], open_nodes: list[tuple[str | None, int]], path: Path) -> int:
    if isinstance(event, AliasEvent):
        if event.anchor in {anchor for anchor, _ in open_nodes}:
            raise InputError(f"{path}, {_name_line(event)}: *{event.anchor} refers to itself; write it out")
        return sizes.get(event.anchor, 1)
    if not isinstance(event, NodeEvent):
        return 0
    if event.anchor is not None:
        sizes[event.anchor] = 1
    return 1


def _name_line(event: Event) -> str:
    return f"line {event.start_mark.line + 1}"


def _explain(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    if isinstance(error, MarkedYAMLError) and error.problem and mark is not None:
        return f"line {mark.line + 1}: {error.problem}"
    return " ".join(str(error).split()) or type(error).__name__


def with_entry(pool: str, entry: str) -> str:
    """The pool's text with an entry's text as its last model. Comments between the entry's keys stay.

    Both texts must be valid. With anchors or tags, the result may be invalid, so check it. Raises YAMLError
    for texts that only YAML's C parser accepts, such as a tab before a comment.
    """
    models = _find_models(pool)
    last = _find_end(models.value[-1], pool)
    if models.flow_style:
        values = json.dumps(YAML(typ="safe").load(entry), ensure_ascii=False)
        return f"{pool[:last]}, {values}{pool[last:]}"
    root: Node = YAML().compose(entry)
    own: str = entry[root.start_mark.index : _find_eol(entry, _find_end(root, entry))].replace("\r\n", "\n")
    column: int = models.start_mark.column
    added = " " * column + "- " + indent(own, " " * (column + 2)).lstrip(" ")
    newline = "\r\n" if "\r\n" in pool else "\n"
    end = _find_eol(pool, last)
    return pool[:end] + newline + added.replace("\n", newline) + pool[end:]


def with_values(entry: str, values: Mapping[str, str]) -> str:
    """An entry's text with other values of some of its keys, in the quotes that are there. Comments stay.

    >>> with_values("model: a  # in .\nhf_repo: .\n", {"hf_repo": "/models/a"})
    'model: a  # in .\nhf_repo: /models/a\n'
    """
    pairs = YAML().compose(entry).value
    for key, value in sorted(pairs, key=lambda pair: pair[1].start_mark.index, reverse=True):
        if key.value in values:
            start, end = value.start_mark.index, value.end_mark.index
            entry = entry[:start] + entry[start:end].replace(value.value, values[key.value]) + entry[end:]
    return entry


def without_entry(pool: str, model: str) -> str:
    """The pool's text without one of its models. This undoes `with_entry`."""
    models = _find_models(pool)
    items = models.value
    [place] = [number for number, item in enumerate(items) if _read_name(item) == model]
    if models.flow_style:
        start = _find_end(items[place - 1], pool) if place else items[0].start_mark.index
        end = _find_end(items[place], pool) if place or len(items) == 1 else items[1].start_mark.index
        return pool[:start] + pool[end:]
    start = _find_dash_line(pool, items[place].start_mark.index, models.start_mark.column)
    # From the end of the line before to the end of its own, so that a missing last newline stays missing.
    before = pool.rfind("\n", 0, start)
    before -= pool[before - 1 : before] == "\r"
    return pool[:before] + pool[_find_eol(pool, _find_end(items[place], pool)) :]


def _find_models(pool: str) -> SequenceNode:
    root = YAML().compose(pool)
    models: SequenceNode
    [models] = [value for key, value in root.value if key.value == "models"]
    return models


def _read_name(item: MappingNode) -> Any:
    return next((value.value for key, value in item.value if key.value == "model"), None)


def _find_end(node: Node, text: str) -> int:
    """The position where a node's text ends. The end mark of a block collection lies after the comments that
    follow it."""
    if isinstance(node, CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        if isinstance(last, tuple):
            key, value = last
            return max(_find_end(key, text), _find_end(value, text))  # an alias stands for a node further up
        return _find_end(last, text)
    start: int = node.start_mark.index
    end: int = node.end_mark.index
    if start == end:
        return 0  # an empty value: its key ends the entry, and its own mark lies behind what follows
    if isinstance(node, ScalarNode) and node.style in ("|", ">"):
        own = text[:end]  # its mark lies behind its line break, and behind blank lines that `|+` alone counts
        return len(own.removesuffix("\n") if node.value.endswith("\n\n") else own.rstrip())
    return end


def _find_eol(text: str, position: int) -> int:
    """The position where the line around `position` ends, without its line break."""
    end = text.find("\n", position)
    if end < 0:
        return len(text)
    return end - (text[end - 1 : end] == "\r")


def _find_dash_line(text: str, position: int, column: int) -> int:
    """The position where the line with an item's dash starts. The item starts at `position`, and the dashes
    stand in `column`."""
    start = text.rfind("\n", 0, position) + 1
    while start and (
        text[start : start + column].strip(" ") or text[start + column : start + column + 1] != "-"
    ):
        start = text.rfind("\n", 0, start - 1) + 1
    return start
