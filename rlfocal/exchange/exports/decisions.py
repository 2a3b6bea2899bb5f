"""Decisions without labels: a file to publish before the labels, and its hash."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from rlfocal.base.errors import InputError, unknown
from rlfocal.base.request import Benchmark, Option, Progress
from rlfocal.base.wording import counted
from rlfocal.exchange.exports import read_records, staged, write_lines
from warehouse import Warehouse
from warehouse.locations import expanded
from warehouse.scripts import script

_AT_ONCE = 10_000  # lines for a report of progress


@dataclass(frozen=True)
class ExportedDecisions:
    """What an export of decisions wrote."""

    path: Path
    sha256: str
    n_lines: int
    n_runs: int
    snapshot: int
    """The one that was exported."""


def export_decisions(
    warehouse: Warehouse,
    target: Annotated[str | Path, Option("A new file.", flags=("--out",), metavar="FILE.jsonl")],
    benchmark: Benchmark,
    *,
    method: Annotated[str | None, Option("Only this method.", default="all")] = None,
    seed: Annotated[int | None, Option("Only this seed.", 0, default="all", metavar="K")] = None,
    models: Annotated[
        Sequence[str] | None,
        Option(
            "Only the runs that chose from exactly these models.",
            default="all runs",
            metavar="M,...",
            complete="models",
        ),
    ] = None,
    protocol: Annotated[
        Literal["frozen", "online"], Option("Whether test labels were revealed one by one.")
    ] = "frozen",
    on_progress: Progress | None = None,
) -> ExportedDecisions:
    """Writes the newest runs' decisions on test documents to the new file `target`, one JSON object per line.

    Keys: answer (a choice's index, or the answer's text; null for none), benchmark, doc_hash, doc_id, method,
    models (those that were asked), per, protocol, seed, task. Lines are sorted by method, seed, per, task and
    doc_id, and JSON keys alphabetically, without spaces: equal decisions give equal bytes.

    Raises InputError for an unknown name, if no run is left, if runs chose from different pools, and for a
    target that exists.
    """
    path = expanded(target)
    with staged(warehouse, path, is_folder=False) as stage:
        asked = {"method": method, "seed": seed, "models": None if models is None else list(models)}
        runs = _runs(warehouse, benchmark, protocol, asked)
        digest, n_lines = write_lines(stage, _decisions(warehouse, runs, on_progress))
        return ExportedDecisions(path, digest, n_lines, len(runs), warehouse.snapshot())


def _runs(warehouse: Warehouse, benchmark: str, protocol: str, asked: dict[str, Any]) -> list[str]:
    given = {"benchmark": benchmark, "protocol": protocol}
    everything = dict.fromkeys(asked, None)
    known = warehouse.connection.execute(script("exports/decided_runs"), given | everything).fetchall()
    if not known:
        names = [name for (name,) in warehouse.rows("SELECT DISTINCT benchmark FROM docs ORDER BY 1")]
        if benchmark not in names:
            raise unknown("benchmark", benchmark, names, "the warehouse")
        raise InputError(
            f"no {protocol} run on {benchmark}; `rlfocal evaluate -b {benchmark} --protocol {protocol}` "
            "makes some"
        )
    if asked["method"] is not None and asked["method"] not in (methods := {row[1] for row in known}):
        raise unknown("method", asked["method"], sorted(methods), f"the {protocol} runs on {benchmark}")
    found = warehouse.connection.execute(script("exports/decided_runs"), given | asked).fetchall()
    if not found:
        pools = sorted({",".join(sorted(row[4])) for row in known})
        seeds = sorted({row[2] for row in known if row[2] is not None})
        raise InputError(
            f"no {protocol} run on {benchmark} matches; there are seeds {seeds}, and runs "
            f"that chose from --models {' or '.join(pools)}"
        )
    pools = sorted({",".join(sorted(row[4])) for row in found})
    if len(pools) > 1:
        raise InputError(
            f"{counted(len(found), 'run')} on {benchmark} chose from {len(pools)} pools; name one: --models "
            + " or --models ".join(pools)
        )
    return [run_id for run_id, *_ in found]


def _decisions(
    warehouse: Warehouse, runs: Sequence[str], on_progress: Progress | None
) -> Iterator[dict[str, Any]]:
    counted_rows = "SELECT count(*) FROM decisions WHERE list_contains(?, run_id)"
    total = warehouse.rows(counted_rows, [list(runs)])[0][0]
    for at, record in enumerate(read_records(warehouse, "decisions", {"runs": list(runs)}), 1):
        yield record
        if on_progress is not None and (at % _AT_ONCE == 0 or at == total):
            on_progress("decisions", at / total)
