"""What trained agents learned, in sentences and tables: on a terminal and as a part of the report."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import join
from typing import Any

from markupsafe import Markup
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rlfocal.base.tables import render
from rlfocal.evaluation.comparable import GIVEN_ROWS
from rlfocal.evaluation.explain import EXPLAINED, Explanation, explanation_file, load
from rlfocal.evaluation.leaderboard import Board, Standing
from rlfocal.report.explained.tables import about, lines, tables
from rlfocal.report.explained.words import heading, sentences
from warehouse import Warehouse

INDENT = (0, 0, 0, 2)


def print_explanation(found: Explanation, console: Console | None = None) -> None:
    """The sentences, then the tables, then the examples."""
    console = console or Console()
    width = min(console.width, 100)
    console.print(Text(heading(found), style="bold"))
    listed = Table.grid(padding=(0, 1))
    for sentence in sentences(found):
        listed.add_row("•", Text(sentence))
    console.print(listed, width=width)
    for table in tables(found):
        console.print()
        console.print(table)
        console.print(Text(table.caption, style="dim"), width=width)
    if found.examples:
        console.print(Text("\nRight though most models are wrong", style="bold"))
    for example in found.examples:
        console.print(Text(about(example)), width=width)
        if example.question:
            console.print(Padding(Text(example.question, style="dim"), INDENT, expand=False), width=width)
        for line in lines(example):
            console.print(Padding(Text(line), INDENT, expand=False), width=width)


def explained_part(warehouse: Warehouse, board: Board, standing: Standing) -> Markup:
    """The first seed's explanation; where none is kept, the command that makes one. Empty for what cannot be
    explained: what learned online, and settings that were tuned."""
    if standing.method not in EXPLAINED or board.protocol != "frozen" or board.trials:
        return Markup("")
    package, template = "rlfocal.report.explained", "part.html.j2"
    found = _find(warehouse, board, standing)
    if found is None:
        return Markup(render(package, template, found=None, command=_command(board, standing)))
    examples = [(about(one), one.question, lines(one)) for one in found.examples]
    shown: dict[str, Any] = {"sentences": sentences(found), "tables": tables(found), "examples": examples}
    return Markup(render(package, template, found=found, heading=heading(found), **shown))


def _find(warehouse: Warehouse, board: Board, standing: Standing) -> Explanation | None:
    """None also for an explanation from before a model was renamed."""
    for run in standing.runs:
        found = load(explanation_file(warehouse, run.run_id))
        if found is not None and {one.model for one in found.models} == set(board.models):
            return found
    return None


def _command(board: Board, standing: Standing) -> str:
    command: Sequence[str] = ["rlfocal", "explain", "-b", board.benchmark, "--method", standing.method]
    per = ["--per", board.per] if board.per != "benchmark" else []
    split = ["--split", board.split] if board.split != GIVEN_ROWS else []
    return join([*command, *per, *split])
