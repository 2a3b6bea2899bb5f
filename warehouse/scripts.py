"""The SQL files of the package."""

from __future__ import annotations

from importlib import resources


def script(name: str) -> str:
    """The text of sql/<name>.sql."""
    return (resources.files("warehouse") / "sql" / f"{name}.sql").read_text(encoding="utf-8")
