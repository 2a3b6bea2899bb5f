"""An explanation on a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rlfocal.base.terminal import Listing
from rlfocal.evaluation.explain.findings import Explanation
from rlfocal.report.explained.tables import about, lines, tables
from rlfocal.report.explained.words import heading, sentences

INDENT = (0, 0, 0, 2)


def print_explanation(found: Explanation, console: Console | None = None) -> None:
    """The sentences, then the tables, then the examples."""
    console = console or Console()
    width = min(console.width, 100)
    console.print(Text(heading(found), style="bold"))
    told = Table.grid(padding=(0, 1))
    for sentence in sentences(found):
        told.add_row("•", Text(sentence))
    console.print(told, width=width)
    for one in tables(found):
        table = Listing(one.first, *one.numbers, title=one.title, texts=one.texts)
        for row in one.rows:
            table.add(*row)
        console.print()
        console.print(table)
        console.print(Text(one.caption, style="dim"), width=width)
    if found.examples:
        console.print(Text("\nRight though most models are wrong", style="bold"))
    for example in found.examples:
        console.print(Text(about(example)), width=width)
        if example.question:
            console.print(Padding(Text(example.question, style="dim"), INDENT, expand=False), width=width)
        for line in lines(example):
            console.print(Padding(Text(line), INDENT, expand=False), width=width)
