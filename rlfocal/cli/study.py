"""`rlfocal study NAME`: what there are is read only where one is asked for, as it brings numpy along."""

from __future__ import annotations

from rlfocal.cli.support.commands import group

studies = group(
    "study",
    "Learn and compare",
    "Answer one question about RL-Focal: fill `evaluations`, print a table and draw a figure.",
    module="rlfocal.cli._studies",
)
