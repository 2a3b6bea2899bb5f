"""The studies as commands, one for each question."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from flows import report_path
from rlfocal.base.errors import InputError
from rlfocal.base.names import TRAINED
from rlfocal.base.request import Benchmark, Models, Option, Per, Seeds
from rlfocal.cli.subcommands import studies
from rlfocal.cli.support.options import Location, Result
from rlfocal.cli.support.progress import progress_bars
from rlfocal.cli.support.requests import takes
from rlfocal.evaluation import EvaluationRequest
from rlfocal.evaluation.studies import STUDIES, Conditions, Study

RLFocalMethod = Annotated[
    str | None,
    Option(f"Which of RL-Focal's methods: {', '.join(TRAINED)}.", default="the study's own"),
]
Values = Annotated[
    Sequence[str] | None, Option("The values to try.", default="the study's own", metavar="V,...")
]
Set = Annotated[
    Sequence[str] | None,
    Option(
        "A setting for every run; may be repeated.", flags=("--set",), metavar="NAME=VALUE", is_repeated=True
    ),
]
Beside = Annotated[
    Sequence[str] | None,
    Option(
        "Methods beside RL-Focal in the studies labels, failures, label-noise and thinking.",
        default="the study's own",
        metavar="M,...",
    ),
]
Out = Annotated[
    Path | None,
    Option(
        "Where to write the figure.",
        default="studies, beside the report",
        flags=("--out", "-o"),
        metavar="DIR",
    ),
]


def _command(asked: Study) -> Callable[..., None]:
    @takes()
    def command(
        benchmark: Benchmark,
        models: Models = None,
        seeds: Seeds = 3,
        method: RLFocalMethod = None,
        values: Values = None,
        settings: Set = None,
        per: Per = "benchmark",
        beside: Beside = None,
        force: Annotated[bool, Option("Repeat runs that the warehouse already has.")] = False,
        out: Out = None,
        warehouse: Location = None,
    ) -> Result:
        from rlfocal.evaluation import Setup
        from rlfocal.evaluation.planning import read_dataset
        from rlfocal.evaluation.studies.study import parse
        from rlfocal.report.studies import print_findings, write_figure
        from warehouse import open_warehouse

        folder = out or report_path(warehouse).parent / "studies"
        if folder.exists() and not folder.is_dir():
            raise InputError(f"--out {folder} is a file; give a folder")
        chosen = method or asked.method
        with open_warehouse(warehouse, create=False) as opened:
            with progress_bars() as on_progress:
                dataset = read_dataset(opened, benchmark, models)
                request = EvaluationRequest(
                    benchmark, seeds=seeds, per=per, force=force, on_progress=on_progress
                )
                conditions = Conditions(
                    Setup(opened, dataset, request),
                    chosen,
                    parse(chosen, settings or []),
                    chose_models=bool(models),
                    beside=tuple(beside or ()),
                )
                findings = asked.run(conditions, values)
            drawn = write_figure(findings, folder / f"{asked.name}-{benchmark}.svg")

        def show() -> None:
            print_findings(findings)
            typer.echo(f"figure: {drawn}")

        return Result(findings, show)

    listed = ", ".join(map(str, asked.values))
    command.__doc__ = f"{asked.question}\n\n" + (
        f"Values it tries without `--values`: {listed}." if listed else ""
    )
    return command


for _study in STUDIES.values():
    studies.command(_study.name)(_command(_study))
