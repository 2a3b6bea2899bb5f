"""Commands about the benchmarks' data sets: mirror."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlfocal.base import options
from rlfocal.base.errors import unknown
from rlfocal.base.options import Option
from rlfocal.cli.support.commands import group
from rlfocal.cli.support.options import Json, show_result
from rlfocal.cli.support.progress import progress_bars

if TYPE_CHECKING:
    from rlfocal.pool import Benchmark

datasets = group("datasets", "Data in and out", "The benchmarks' data sets.")


@datasets.command("mirror")
def mirror(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The mirror's folder.")],
    benchmarks: options.Benchmarks = None,
    pool: Annotated[
        str | None,
        Option("Take the benchmarks of this pool.", default="all", flags=("--pool", "-p"), complete="pools"),
    ] = None,
    source: Annotated[
        Path | None, Option("Copy from this mirror.", default="the hub", flags=("--from",), metavar="DIR")
    ] = None,
    as_json: Json = False,
) -> None:
    """Copy the data sets that benchmarks need from the hub into a folder, for machines without a network.

    The folder is laid out like the hub's repositories; other commands read it with `--datasets DIR`. Existing
    files are not fetched again, so an interrupted run can be repeated. GPQA is gated: accept its terms on the
    hub and set HF_TOKEN.
    """
    from rlfocal.extraction.mirror import mirror_datasets

    chosen = _choose_benchmarks(benchmarks, pool)
    with progress_bars() as on_progress:
        copies = mirror_datasets(folder, chosen, source, on_progress)
    lines = []
    for copy in copies:
        what = "was there" if copy.rows is None else f"{copy.rows} rows"
        lines.append(f"{folder / copy.repo / copy.config}: {what}, revision {copy.revision}")
    nothing = "nothing to mirror: these benchmarks bring their own documents"
    show_result([copy._asdict() for copy in copies], "\n".join(lines) or nothing, as_json=as_json)


def _choose_benchmarks(wanted: Sequence[str] | None, pool: str | None) -> list[Benchmark]:
    from rlfocal.pool import load_benchmarks, load_pool

    known = load_benchmarks() if pool is None else {b.name: b for b in load_pool(pool).benchmarks}
    for name in wanted or ():
        if name not in known:
            shipped = "what ships with rlfocal (--pool POOL takes a pool's own)"
            raise unknown("benchmark", name, known, shipped if pool is None else f"pool {pool!r}")
    return [known[name] for name in wanted or known]
