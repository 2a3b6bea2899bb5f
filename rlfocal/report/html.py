"""Writes the report as one interactive HTML file, which needs no network and has light and dark colours."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from rlfocal.base.atomic import write_file
from rlfocal.base.errors import InputError, unknown_name
from rlfocal.evaluation.conclusion import conclude
from rlfocal.evaluation.leaderboard import comparable_boards
from rlfocal.evaluation.verdicts import ceiling_sentence, overview_table
from rlfocal.extraction.running.processes import start_fork_server
from rlfocal.report.inputs import is_made_from, mark, report_inputs, versions
from rlfocal.report.sections import (
    DRAWING_MODULES,
    MAX_MODELS_SPELLED_OUT,
    draw_side_by_side,
    every_method_table,
)
from warehouse import Warehouse

if TYPE_CHECKING:
    from jinja2 import Template


def write_report(
    warehouse: Warehouse,
    path: str | Path,
    *,
    benchmarks: Sequence[str] | None = None,
    made_at: datetime | None = None,
    confidential: bool = False,
    force: bool = False,
    on_progress: Callable[[float], None] | None = None,
) -> Path:
    """Writes the report of everything evaluated so far, and returns its path.

    `confidential`: whether to show questions that may not be published. A warehouse without evaluations gets
    a page that says what to run.

    A file made from the same snapshot and code stays as it is, unless `force`. `on_progress` is called with
    the share of leaderboards that are drawn.

    Raises InputError for a directory, and for a benchmark without evaluations.
    """
    target = Path(path)
    if target.is_dir():
        raise InputError(f"{target} is a directory; give the report a file, as in {target / 'report.html'}")
    inputs = report_inputs(warehouse, benchmarks, made_at, confidential)
    if not force and is_made_from(target, inputs):
        return target
    start_fork_server(DRAWING_MODULES)  # it imports while the tables are made
    comparable = comparable_boards(warehouse, benchmarks)
    for name in sorted(set(benchmarks or ()) - {key.benchmark for key in comparable}):
        evaluated = warehouse.rows("SELECT DISTINCT benchmark FROM evaluations")
        raise unknown_name(
            "benchmark", name, (benchmark for (benchmark,) in evaluated), "what `rlfocal evaluate` has run"
        )
    target.parent.mkdir(parents=True, exist_ok=True)  # a path that cannot be one ends before the drawing
    with ThreadPoolExecutor(1) as beside:
        assets = beside.submit(_load_assets)  # while the drawing's processes start
        shown = draw_side_by_side(warehouse, comparable, confidential=confidential, on_progress=on_progress)
    boards = [section.board for section in shown]
    page = _load_template().render(
        sections=shown,
        overview=overview_table(boards),
        every_method=every_method_table(boards),
        most=MAX_MODELS_SPELLED_OUT,
        missing=[] if boards else _list_commands(warehouse),
        facts=_list_facts(warehouse, made_at or datetime.now(UTC)),
        **assets.result(),
    )
    write_file(target, page + mark(page, inputs))
    return target


def _load_template() -> Template:
    """The template of the page; it escapes all values but markup."""
    from jinja2 import Environment, StrictUndefined  # not at the top: it slows the command line's start

    made = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    made.filters |= {"spec": _to_json, "conclude": conclude, "ceiling": ceiling_sentence}
    source = resources.files("rlfocal.report") / "report.html.j2"
    return made.from_string(source.read_text(encoding="utf-8"))


def _list_commands(warehouse: Warehouse) -> list[str]:
    """The commands that a page without evaluations suggests."""
    benchmarks = warehouse.rows("SELECT DISTINCT benchmark FROM extractions ORDER BY 1")
    return [f"rlfocal evaluate -b {quote(name)}" for (name,) in benchmarks] or [
        "rlfocal regenerate --pool lab",
        "rlfocal import predictions --docs docs.parquet --scores scores.parquet",
    ]


def _load_assets() -> dict[str, Markup]:
    """The parts of every page: its styles, its script, Vega, and the look of charts."""
    from rlfocal.report.figures.style import CHART_CONFIG, LIGHT_COLOURS

    folder = resources.files("rlfocal.report")
    return {
        "css": Markup((folder / "page.css").read_text("utf-8")),
        "js": Markup((folder / "page.js").read_text("utf-8")),
        "vega": _bundle_vega(),
        "config": _to_json(CHART_CONFIG),
        "light": Markup("".join(f"--{name}: {colour};" for name, colour in LIGHT_COLOURS.items())),
    }


@cache
def _bundle_vega() -> Markup:
    """Vega as one script for a page; bundling it takes seconds."""
    import vl_convert

    bundle = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return Markup(bundle.replace("</script", "<\\/script"))


def _to_json(value: Any) -> Markup:
    """A value as JSON that is safe inside a script element, whatever texts it has."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c"))


def _list_facts(warehouse: Warehouse, made_at: datetime) -> dict[str, str]:
    return {
        "Warehouse": warehouse.location.name,
        "Snapshot": str(warehouse.snapshot()),
        "Made": made_at.strftime("%Y-%m-%d %H:%M UTC"),
        "Versions": versions(),
    }
