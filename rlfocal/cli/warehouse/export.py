"""`rlfocal export`: the warehouse's tables as plain files, records in others' formats, decisions."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

from rlfocal.cli.support.commands import group


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
    module="rlfocal.cli.warehouse._exports",
    cls=_ExportGroup,
)
