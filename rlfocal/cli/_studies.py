"""The studies as commands, one for each question."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from rlfocal.base import options
from rlfocal.base.names import TRAINED
from rlfocal.base.options import Option
from rlfocal.cli.groups import studies
from rlfocal.cli.support.options import Json, Location, show_result
from rlfocal.cli.support.progress import progress_bars
from rlfocal.evaluation import EvaluationRequest
from rlfocal.evaluation.studies import STUDIES, Conditions, Study

RLFocalMethod = Annotated[
    str | None, Option(f"Which of RL-Focal's methods: {', '.join(TRAINED)}.", default="the study's own")
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
        warehouse: Location = None,
        as_json: Json = False,
    ) -> None:
        from rlfocal.evaluation import Setup
        from rlfocal.evaluation.planning import read_dataset
        from rlfocal.evaluation.studies.study import parse
        from rlfocal.report.tables import print_findings
        from warehouse import open_warehouse

        chosen = method or asked.method
        with open_warehouse(warehouse, create=False) as opened, progress_bars() as on_progress:
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
        show_result(findings, lambda: print_findings(findings), as_json=as_json)

    return command


for _study in STUDIES.values():
    _tried = ", ".join(map(str, _study.values))
    _help = f"Values it tries without `--values`: {_tried}." if _tried else ""
    studies.command(_study.name, help=f"{_study.question}\n\n{_help}")(_command(_study))
