"""The card of a mirrored data set: the commit of the hub that it is a copy of, and its configurations."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ruamel.yaml import YAML

CARD = "README.md"


class Card(NamedTuple):
    """What a card's front matter lists."""

    revision: str | None
    configs: frozenset[str]


def read_card(repository: Path) -> Card:
    """The card of a data set's folder; nothing is listed if there is none."""
    try:
        front = (repository / CARD).read_text(encoding="utf-8").split("---\n")[1]
    except (FileNotFoundError, IndexError):
        return Card(None, frozenset())
    content = YAML(typ="safe").load(front) or {}
    configs = frozenset(entry["config_name"] for entry in content.get("configs", ()))
    return Card(content.get("revision"), configs)
