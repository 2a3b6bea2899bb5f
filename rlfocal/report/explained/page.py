"""An explanation as a part of the report: shown where `rlfocal explain` has kept one, never made here."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from shlex import join

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from rlfocal.evaluation.comparable import GIVEN_ROWS
from rlfocal.evaluation.explain.findings import Explanation
from rlfocal.evaluation.explain.keeping import EXPLAINED, kept, kept_at
from rlfocal.evaluation.leaderboard import Board, Standing
from rlfocal.report.explained.tables import about, lines, tables
from rlfocal.report.explained.words import heading, sentences
from warehouse import Warehouse


def explained_part(warehouse: Warehouse, board: Board, standing: Standing) -> Markup:
    """Of the first seed that was explained; where none was, the command that does. Empty for what cannot be:
    `explain` acts out neither what learned online nor settings that were tuned."""
    if standing.method not in EXPLAINED or board.protocol != "frozen" or board.trials:
        return Markup("")
    found = _kept(warehouse, board, standing)
    environment = Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined
    )
    source = resources.files("rlfocal.report.explained") / "part.html.j2"
    template = environment.from_string(source.read_text(encoding="utf-8"))
    if found is None:
        return Markup(template.render(found=None, command=_command(board, standing)))
    examples = [(about(one), one.question, lines(one)) for one in found.examples]
    shown = {"sentences": sentences(found), "tables": tables(found), "examples": examples}
    return Markup(template.render(found=found, heading=heading(found), **shown))


def _kept(warehouse: Warehouse, board: Board, standing: Standing) -> Explanation | None:
    """None also for an explanation from before a model was renamed."""
    for run in standing.runs:
        found = kept(kept_at(warehouse, run.run_id))
        if found is not None and {one.model for one in found.models} == set(board.models):
            return found
    return None


def _command(board: Board, standing: Standing) -> str:
    command: Sequence[str] = ["rlfocal", "explain", "-b", board.benchmark, "--method", standing.method]
    per = ["--per", board.per] if board.per != "benchmark" else []
    split = ["--split", board.split] if board.split != GIVEN_ROWS else []
    return join([*command, *per, *split])
