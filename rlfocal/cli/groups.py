"""Groups of commands: `rlfocal import`, `export`, `lab`, `datasets`.

The commands of `import` and `export` are in a module that is imported when one of them is called.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from rlfocal.base import options
from rlfocal.base.errors import unknown_name
from rlfocal.base.options import Option
from rlfocal.base.request import MAX_NUMBER
from rlfocal.cli.support.commands import group
from rlfocal.cli.support.options import Json, show_result
from rlfocal.cli.support.progress import progress_bars

if TYPE_CHECKING:
    from rlfocal.pool import Benchmark

imports = group(
    "import",
    "Data in and out",
    "Bring logits and answers made elsewhere into the warehouse.",
    module="rlfocal.cli._exchange",
)


class _ExportGroup(TyperGroup):
    """A group in which `rlfocal export DIR` means `rlfocal export tables DIR`, as in earlier versions."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        is_help = bool(args) and args[0] in ctx.help_option_names
        return super().parse_args(
            ctx, args if not args or is_help or args[0] in self.commands else ["tables", *args]
        )


exports = group(
    "export",
    "Data in and out",
    "Take tables out of the warehouse. `rlfocal export DIR` is `rlfocal export tables DIR`.",
    module="rlfocal.cli._exchange",
    cls=_ExportGroup,
)

lab = group(
    "lab", "Run a pool of LLMs", "The embedded pool: twelve tiny language models that ship with rlfocal."
)


@lab.command("build")
def lab_build(
    output: Annotated[Path, Option("The folder to write the models to.", flags=("--output", "-o"))] = Path(
        ".rlfocal/lab"
    ),
    seed: Annotated[int, Option("The shipped models have seed 0.", most=MAX_NUMBER)] = 0,
    models: options.Models = None,
    jobs: Annotated[int, Option("How many models to train at once.", least=1)] = 2,
    force: Annotated[bool, Option("Retrain models that are already built.")] = False,
) -> None:
    """Train the embedded pool's tiny language models from scratch, from their seed."""
    from rlfocal.lab import build

    with progress_bars() as on_progress:
        paths = build(output, seed=seed, models=models, workers=jobs, force=force, on_progress=on_progress)
    typer.echo("\n".join(map(str, paths)))


datasets = group("datasets", "Data in and out", "Copy benchmarks' data sets, for machines without a network.")


@datasets.command("mirror")
def mirror(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the mirror of data sets.")],
    benchmarks: options.Benchmarks = None,
    pool: Annotated[
        str | None,
        Option("Take the benchmarks of this pool.", default="all", flags=("--pool", "-p"), complete="pools"),
    ] = None,
    source: Annotated[
        Path | None,
        Option(
            "Copy from another mirror, in this folder, and not from the hub.",
            default="the hub",
            flags=("--from",),
            metavar="DIR",
        ),
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

    by_name = load_benchmarks() if pool is None else {b.name: b for b in load_pool(pool).benchmarks}
    for name in wanted or ():
        if name not in by_name:
            shipped = "what ships with rlfocal (--pool POOL takes a pool's own)"
            raise unknown_name("benchmark", name, by_name, shipped if pool is None else f"pool {pool!r}")
    return [by_name[name] for name in wanted or by_name]
