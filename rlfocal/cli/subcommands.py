"""`rlfocal import`, `export` and `study`: groups whose commands are read only where one is asked for."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

from rlfocal.cli.support.commands import group

imports = group(
    "import",
    "Data in and out",
    "Bring logits and answers made elsewhere into the warehouse.",
    module="rlfocal.cli._imports",
)


class _ExportGroup(TyperGroup):
    """`rlfocal export DIR` is `rlfocal export tables DIR`: it was there before the others were."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        is_help = bool(args) and args[0] in ctx.help_option_names
        return super().parse_args(
            ctx, args if not args or is_help or args[0] in self.commands else ["tables", *args]
        )


exports = group(
    "export",
    "Data in and out",
    "Take tables, records or decisions out of the warehouse. `rlfocal export DIR` is "
    "`rlfocal export tables DIR`.",
    module="rlfocal.cli._exports",
    cls=_ExportGroup,
)

studies = group(
    "study",
    "Learn and compare",
    "Answer one question about RL-Focal: fill `evaluations`, print a table and draw a figure.",
    module="rlfocal.cli._studies",
)
