"""The page of a new model: its figures, and how they are shown."""

from __future__ import annotations

from dataclasses import dataclass

from rlfocal.new_model.figures import Figures
from rlfocal.new_model.showing import html, markdown, text


@dataclass(frozen=True)
class Newcomer(Figures):
    """A model that was added to a pool, and what it brings."""

    def to_markdown(self) -> str:
        """The page in Markdown, with its tables."""
        return markdown(self)

    def to_html(self) -> str:
        """The page as one self-contained HTML file."""
        return html(self)

    def to_text(self, width: int = 100) -> str:
        """The page for a terminal of so many columns."""
        return text(self, width)
