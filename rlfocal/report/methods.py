"""The register of methods as the docs show it."""

from __future__ import annotations

from collections.abc import Iterable

from rlfocal.methods import Entry


def markdown_rows(entries: Iterable[Entry]) -> list[str]:
    """A Markdown table, a row a method."""
    rows = ["| method | asks | answers | needs | from; what differs |", "|---|---|---|---|---|"]
    for one in entries:
        origin = "; ".join(part for part in (one.source, one.differs) if part)
        cells = (f"`{one.pattern}`".replace("|", "\\|"), one.asks, one.answers, one.needs_in_words, origin)
        rows.append("| " + " | ".join(cells) + " |")
    return rows
