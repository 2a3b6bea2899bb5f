"""`rlfocal import`: fills the warehouse from files made elsewhere."""

from __future__ import annotations

from rlfocal.cli.support.commands import group

imports = group(
    "import",
    "Data in and out",
    "Bring logits and answers made elsewhere into the warehouse.",
    module="rlfocal.cli._imports",
)
