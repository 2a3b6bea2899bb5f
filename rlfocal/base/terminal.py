"""How tables are printed on a terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table
from rich.text import Text


class Listing:
    """Rows under headings: names on the left, numbers to the right. Cells are text as it is, never markup."""

    def __init__(
        self, first: str, *numbers: str, title: str = "", wraps: bool = True, texts: Iterable[str] = ()
    ) -> None:
        """`wraps`: whether a long name may take two lines; `texts`: columns of words after the numbers."""
        self._table = Table(
            title=Text(title) if title else None,
            title_justify="left",
            title_style="bold",
            box=None,
            padding=(0, 0, 0, 1),
            pad_edge=False,
        )
        # Folded and not cut: half a name may be another's.
        self._table.add_column(Text(first), overflow="fold", no_wrap=not wraps)
        for heading in numbers:
            self._table.add_column(Text(heading), justify="right", no_wrap=True)
        for heading in texts:
            self._table.add_column(Text(heading), overflow="fold")

    def add(self, *cells: str, style: str = "") -> None:
        """One row."""
        self._table.add_row(*map(Text, cells), style=style)

    def __rich__(self) -> Table:
        """What `Console.print` prints."""
        return self._table
