"""The studies as commands, one for each question."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from flows import report_path
from rlfocal.base import options
from rlfocal.base.errors import InputError
from rlfocal.base.names import TRAINED_METHODS
from rlfocal.base.options import Option
from rlfocal.cli.groups import studies
from rlfocal.cli.support.options import Json, Location, show_result
from rlfocal.cli.support.progress import progress_bars
from rlfocal.evaluation import EvaluationRequest
from rlfocal.evaluation.studies import STUDIES, Conditions, Study

RLFocalMethod = Annotated[
    str | None,
    Option(f"Which of RL-Focal's methods: {', '.join(TRAINED_METHODS)}.", default="the study's own"),
]
Values = Annotated[
    options.Names | None,
    Option("The values to try.", default="the study's own", metavar="V,...", is_listed=True),
]
Set = Annotated[
    list[str] | None,
    Option("A setting for every run; may be repeated.", flags=("--set",), metavar="NAME=VALUE"),
]
Beside = Annotated[
    options.Names | None,
    Option(
        "Methods beside RL-Focal in the studies labels, failures, label-noise and thinking.",
        default="the study's own",
        metavar="M,...",
        is_listed=True,
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
    def command(
        benchmark: options.Benchmark,
        models: options.Models = None,
        seeds: options.Seeds = 3,
        method: RLFocalMethod = None,
        values: Values = None,
        settings: Set = None,
        per: options.Per = "benchmark",
        beside: Beside = None,
        force: Annotated[bool, Option("Repeat runs that the warehouse already has.")] = False,
        out: Out = None,
        warehouse: Location = None,
        as_json: Json = False,
    ) -> None:
        from rlfocal.evaluation import Setup
        from rlfocal.evaluation.planning import read_dataset
        from rlfocal.evaluation.studies.study import parse
        from rlfocal.report.studies import print_findings, write_figure
        from warehouse import open_warehouse

        folder = out or report_path(warehouse).parent / "studies"
        if folder.exists() and not folder.is_dir():
            raise InputError(f"--out {folder} is a file; give a folder")
        if not asked.fits and (method or settings or beside):
            raise InputError(f"study {asked.name} fits no method; leave out --method, --set and --beside")
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

        show_result(findings, show, as_json=as_json)

    return command


for _study in STUDIES.values():
    _tried = ", ".join(map(str, _study.values))
    _help = f"Values it tries without `--values`: {_tried}." if _tried else ""
    studies.command(_study.name, help=f"{_study.question}\n\n{_help}")(_command(_study))
