"""`python -m benchmarks.studies NAME -b B`: answers a question about RL-Focal from stored answers of
models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from benchmarks.studies import STUDIES, Conditions
from benchmarks.studies.drawing import print_findings, write_figure
from benchmarks.studies.study import parse
from flows import report_path
from rlfocal.base import options
from rlfocal.base.errors import InputError, unknown_name
from rlfocal.base.names import TRAINED_METHODS
from rlfocal.base.options import Option
from rlfocal.cli import run_guarded
from rlfocal.cli.support.commands import Commands, run
from rlfocal.cli.support.options import Json, Location, show_result
from rlfocal.cli.support.progress import progress_bars
from rlfocal.evaluation import EvaluationRequest, Setup
from rlfocal.evaluation.planning import read_dataset
from warehouse import open_warehouse

_STUDY_LIST = "\n".join(
    f"- `{study.name}`: {study.question}"
    + f" Values: {', '.join(map(str, study.values))}." * bool(study.values)
    for study in STUDIES.values()
)
_HELP = f"Answer one question about RL-Focal: a table and a figure of what each value gives.\n\n{_STUDY_LIST}"


def study(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The study.")],
    benchmark: options.Benchmark,
    models: options.Models = None,
    seeds: options.Seeds = 3,
    method: Annotated[
        str | None,
        Option(f"Which of RL-Focal's methods: {', '.join(TRAINED_METHODS)}.", default="the study's own"),
    ] = None,
    values: Annotated[
        options.Names | None,
        Option("The values to try.", default="the study's own", metavar="V,...", is_listed=True),
    ] = None,
    settings: Annotated[
        list[str] | None,
        Option("A setting for every run; may be repeated.", flags=("--set",), metavar="NAME=VALUE"),
    ] = None,
    per: options.Per = "benchmark",
    beside: Annotated[
        options.Names | None,
        Option(
            "Methods beside RL-Focal in the studies labels and thinking.",
            default="the study's own",
            metavar="M,...",
            is_listed=True,
        ),
    ] = None,
    force: Annotated[bool, Option("Repeat runs that the warehouse already has.")] = False,
    out: Annotated[
        Path | None,
        Option(
            "Where to write the figure.",
            default="studies, beside the report",
            flags=("--out", "-o"),
            metavar="DIR",
        ),
    ] = None,
    warehouse: Location = None,
    as_json: Json = False,
) -> None:
    if name not in STUDIES:
        raise unknown_name("study", name, STUDIES)
    asked = STUDIES[name]
    folder = out or report_path(warehouse).parent / "studies"
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--out {folder} is a file; give a folder")
    if not asked.fits and (method or settings or beside):
        raise InputError(f"study {name} fits no method; leave out --method, --set and --beside")
    chosen = method or asked.method
    with open_warehouse(warehouse, create=False) as opened:
        with progress_bars() as on_progress:
            dataset = read_dataset(opened, benchmark, models)
            request = EvaluationRequest(benchmark, seeds=seeds, per=per, force=force, on_progress=on_progress)
            conditions = Conditions(
                Setup(opened, dataset, request),
                chosen,
                parse(chosen, settings or []),
                chose_models=bool(models),
                beside=tuple(beside or ()),
            )
            findings = asked.run(conditions, values)
        drawn = write_figure(findings, folder / f"{name}-{benchmark}.svg")

    def show() -> None:
        print_findings(findings)
        typer.echo(f"figure: {drawn}")

    show_result(findings, show, as_json=as_json)


app = Commands(rich_markup_mode="markdown", add_completion=False)
app.command(no_args_is_help=True, help=_HELP)(study)


def main() -> None:
    """Runs the command line; its exit codes are those of `rlfocal`."""
    run_guarded(lambda: run(app, "python -m benchmarks.studies"))


if __name__ == "__main__":
    main()
