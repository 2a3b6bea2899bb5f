"""The report as one self-contained HTML file: no network, light and dark, to be explored."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from platform import python_version
from shlex import quote
from typing import Any

import duckdb
from markupsafe import Markup

from rlfocal.base.atomic import write_file
from rlfocal.base.errors import InputError, unknown
from rlfocal.base.tables import Table, render
from rlfocal.evaluation.leaderboard import comparable_boards
from rlfocal.evaluation.studies.findings import Findings, load
from rlfocal.evaluation.verdicts import overview_table, sentence
from rlfocal.report.boards import MANY, every_method_table
from rlfocal.report.figures import Figure
from rlfocal.report.inputs import add_mark, inputs_digest, is_made_from
from rlfocal.report.sections import begin_to_import, draw_side_by_side
from rlfocal.report.tables import tuning
from rlfocal.upkeep.drift import LISTED, before_last_extraction, drift_since, headline
from rlfocal.upkeep.drift import table as drift_table
from warehouse import Warehouse

PACKAGES = ("rlfocal", "duckdb", "lm_eval", "torch", "transformers", "altair")


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
    """Write the report of everything evaluated so far, and return its path.

    `confidential`: with questions that may not be published. A warehouse without evaluations gets a page that
    says what to run.

    A file made from the same snapshot, studies and code stays as it is, unless `force`.
    `on_progress` is given the share of benchmarks that are drawn.

    Raises InputError for a directory, and for a benchmark of which nothing was evaluated.
    """
    target = Path(path)
    if target.is_dir():
        raise InputError(f"{target} is a directory; give the report a file, as in {target / 'report.html'}")
    inputs = report_inputs(warehouse, benchmarks, made_at, confidential)
    if not force and is_made_from(target, inputs):
        return target
    begin_to_import()
    found = comparable_boards(warehouse, benchmarks)
    for name in sorted(set(benchmarks or ()) - {key[0] for key in found}):
        evaluated = warehouse.rows("SELECT DISTINCT benchmark FROM evaluations")
        raise unknown("benchmark", name, (known for (known,) in evaluated), "what `rlfocal evaluate` has run")
    target.parent.mkdir(parents=True, exist_ok=True)  # a path that cannot be one ends before the drawing
    with ThreadPoolExecutor(1) as beside:
        assets = beside.submit(_assets)  # while the drawing's processes start
        shown = draw_side_by_side(warehouse, found, confidential=confidential, on_progress=on_progress)
    boards = [section.board for section in shown]
    page = render(
        "rlfocal.report",
        "report.html.j2",
        {"spec": _as_json, "tuning": tuning, "sentence": sentence},
        sections=shown,
        overview=overview_table(boards),
        every_method=every_method_table(boards),
        most=MANY,
        studies=studies_of(warehouse, benchmarks),
        missing=[] if boards else _commands(warehouse),
        drift=last_drift(warehouse),
        facts=_facts(warehouse, made_at or datetime.now(UTC)),
        **assets.result(),
    )
    write_file(target, add_mark(page, inputs))
    return target


def report_inputs(
    warehouse: Warehouse,
    benchmarks: Sequence[str] | None = None,
    made_at: datetime | None = None,
    confidential: bool = False,
) -> str:
    """A digest of everything that `write_report` would make the page from."""
    settings = {"benchmarks": benchmarks, "made_at": made_at, "confidential": confidential}
    return inputs_digest(warehouse, **settings, versions=_versions())


def studies_of(
    warehouse: Warehouse, benchmarks: Sequence[str] | None = None
) -> list[tuple[Findings, Figure]]:
    """What studies of this warehouse found, newest last."""
    from rlfocal.report.studies import figure

    files = sorted(warehouse.location.studies.glob("*.json"), key=lambda path: path.stat().st_mtime)
    found = [load(path) for path in files]
    return [(one, figure(one)) for one in found if benchmarks is None or one.benchmark in benchmarks]


def last_drift(warehouse: Warehouse) -> tuple[str, Table, int] | None:
    """How the last extraction or import left models' answers: a sentence, a table, the rows left out.

    None if it began the warehouse, or if the state before it is lost.
    """
    try:
        drift = drift_since(warehouse, before_last_extraction(warehouse))
    except (duckdb.IOException, duckdb.InvalidInputException, InputError):
        return None  # files that only earlier snapshots need may be gone: `rlfocal doctor` tells
    rows = drift.difference.partitions
    if not drift.difference.unchanged and all(one.change == "added" for one in rows):
        return None
    return headline(drift), drift_table(drift, LISTED), max(len(drift.compared) - LISTED, 0)


def _commands(warehouse: Warehouse) -> list[str]:
    """What to run where nothing was evaluated."""
    benchmarks = warehouse.rows("SELECT DISTINCT benchmark FROM extractions ORDER BY 1")
    return [f"rlfocal evaluate -b {quote(name)}" for (name,) in benchmarks] or [
        "rlfocal regenerate --pool lab",
        "rlfocal import predictions --docs docs.parquet --scores scores.parquet",
    ]


def _assets() -> dict[str, Markup]:
    """What every page brings along: its looks, its script, and Vega."""
    from rlfocal.report.figures.style import CONFIG, LIGHT

    folder = resources.files("rlfocal.report")
    return {
        "css": Markup((folder / "page.css").read_text("utf-8")),
        "js": Markup((folder / "page.js").read_text("utf-8")),
        "vega": _vega(),
        "config": _as_json(CONFIG),
        "light": Markup("".join(f"--{name}: {colour};" for name, colour in LIGHT.items())),
    }


@cache
def _vega() -> Markup:
    """Vega as a script that a page may hold; bundling it takes seconds."""
    import vl_convert

    bundle = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return Markup(bundle.replace("</script", "<\\/script"))


def _as_json(value: Any) -> Markup:
    """JSON that may stand in a script element, whatever names it holds."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c"))


def _facts(warehouse: Warehouse, made_at: datetime) -> dict[str, str]:
    return {
        "Warehouse": warehouse.location.name,
        "Snapshot": str(warehouse.snapshot()),
        "Made": made_at.strftime("%Y-%m-%d %H:%M UTC"),
        "Versions": _versions(),
    }


def _versions() -> str:
    return ", ".join([f"Python {python_version()}", *map(_versioned, PACKAGES)])


def _versioned(package: str) -> str:
    try:
        return f"{package.replace('_', '-')} {version(package)}"
    except PackageNotFoundError:
        return f"{package.replace('_', '-')} (source)"
