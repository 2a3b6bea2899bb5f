"""The studies as commands, one for each question."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from rlfocal.base.errors import InputError
from rlfocal.cli.learning import Benchmark, Per
from rlfocal.cli.support.options import Json, Location, Models, Seeds, names, print_json
from rlfocal.cli.support.progress import progress_bars
from rlfocal.evaluation.studies import STUDIES, Conditions, Study
from rlfocal.methods.trained import TRAINED

studies = typer.Typer()

RLFocalMethod = Annotated[
    str | None,
    typer.Option(help=f"Which of RL-Focal's methods: {', '.join(TRAINED)}.", show_default="the study's own"),
]
Values = Annotated[
    str | None, typer.Option(metavar="V,...", help="The values to try.", show_default="the study's own")
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A setting for every run; may be repeated."),
]
Beside = Annotated[
    str | None,
    typer.Option(
        metavar="M,...",
        help="Methods beside RL-Focal in the studies labels, failures, label-noise, order and choices.",
        show_default="the study's own",
    ),
]
Out = Annotated[
    Path | None,
    typer.Option("--out", "-o", metavar="DIR", help="Where to write the figure.", show_default="here"),
]


def _command(asked: Study) -> Callable[..., None]:
    def command(
        benchmark: Benchmark,
        models: Models = None,
        seeds: Seeds = 3,
        method: RLFocalMethod = None,
        values: Values = None,
        settings: Set = None,
        per: Per = "benchmark",
        beside: Beside = None,
        force: Annotated[
            bool, typer.Option("--force", help="Repeat runs that the warehouse already has.")
        ] = False,
        out: Out = None,
        warehouse: Location = None,
        as_json: Json = False,
    ) -> None:
        from rlfocal.evaluation import Setup
        from rlfocal.evaluation.planning import read_dataset
        from rlfocal.evaluation.studies.study import parse
        from rlfocal.report.studies import print_findings, write_figure
        from warehouse import open_warehouse

        folder = out or Path()
        if folder.exists() and not folder.is_dir():
            raise InputError(f"--out {folder} is a file; give a folder")
        chosen = method or asked.method
        with open_warehouse(warehouse, create=False) as opened:
            with progress_bars() as on_progress:
                dataset = read_dataset(opened, benchmark, names(models))
                conditions = Conditions(
                    Setup(opened, dataset, seeds, per, force=force, on_progress=on_progress),
                    chosen,
                    parse(chosen, settings or []),
                    chose_models=bool(models),
                    beside=tuple(names(beside, "--beside") or ()),
                )
                findings = asked.run(conditions, names(values, "--values"))
            drawn = write_figure(findings, folder / f"{asked.name}-{benchmark}.svg")
        if as_json:
            print_json(findings)
        else:
            print_findings(findings)
            typer.echo(f"figure: {drawn}")

    listed = ", ".join(map(str, asked.values))
    command.__doc__ = f"{asked.question}\n\n" + (
        f"Values it tries without `--values`: {listed}." if listed else ""
    )
    return command


for _study in STUDIES.values():
    studies.command(_study.name)(_command(_study))
