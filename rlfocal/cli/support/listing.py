"""Help that lists what a register holds, so that what other packages add is in it too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlfocal.cli.support.commands import Command

if TYPE_CHECKING:
    from rich.panel import Panel

    from rlfocal.methods import Entry

_HEADINGS = {
    "rl_focal": "Methods: RL-Focal's",
    "reference": "Methods: always beside RL-Focal",
    "constant_pool": "Methods: constant pools",
    "rival": "Methods: rivals",
    "control": "Methods: RL-Focal's with one part left out",
    "ceiling": "Methods: a ceiling, which reads the labels",
}


class ListsMethods(Command):
    """A command whose own help ends with every method of the register, a line each."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        # Not at the top: the help of all commands must not wait for the methods to be imported.
        from rich.console import Console

        from rlfocal.methods import entries

        super().format_help(ctx, formatter)
        known = {_called(one): one for one in entries().values()}
        width = max(map(len, known))
        console = Console()
        for role, heading in _HEADINGS.items():
            of_role = {name: one for name, one in known.items() if one.role == role}
            console.print(_panel(heading, of_role, width))
        console.print(" `rlfocal methods` describes each in full.")


def _called(one: Entry) -> str:
    return f"{one.name}:<{one.argument}>" if one.needs_argument else one.name


def _panel(heading: str, methods: dict[str, Entry], width: int) -> Panel:
    """Full names, each with the models it asks and how it answers, cut at the end of the line."""
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2), expand=True)
    table.add_column(no_wrap=True, width=width)
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    for name, one in methods.items():
        table.add_row(Text(name, style="bold cyan"), Text(f"{one.asks}: {one.answers}"))
    return Panel(table, title=heading, title_align="left", border_style="dim")
