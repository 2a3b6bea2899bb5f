"""Parameters of commands, flows and the library, each declared once, as an annotation.

An Option is one of Typer's own. pydantic, and with it Prefect, reads its bounds and its description.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
from annotated_types import MinLen
from typer.models import OptionInfo

from rlfocal.base import names
from rlfocal.base.request import LARGEST

Name = Annotated[str, MinLen(1)]
Names = Annotated[Sequence[Name], MinLen(1)]


class Option(OptionInfo):
    """What a parameter says of itself.

    help: one sentence, in forms too.
    least, most: of a number; with `least` alone, LARGEST is the most.
    default: what None stands for, in words.
    flags: on the command line; by default `--` and the parameter's name.
    is_listed: whether it is given as `a,b`.
    complete: the function of `rlfocal.cli.support.completion` that completes it.
    variable: the environment variable that the command line takes it from.
    """

    def __init__(
        self,
        help: str,
        least: float | None = None,
        most: float | None = None,
        *,
        default: str | None = None,
        flags: tuple[str, ...] = (),
        metavar: str | None = None,
        is_listed: bool = False,
        complete: str | None = None,
        variable: str | None = None,
    ) -> None:
        super().__init__(
            default=...,
            help=help,
            min=least,
            show_default=default or True,
            param_decls=flags,
            metavar=metavar,
            parser=_split if is_listed else None,
            callback=self._accept,
            autocompletion=None if complete is None else _completion(complete),
            envvar=variable,
        )
        self.most = LARGEST if most is None and least is not None else most
        self.description = help if default is None else f"{help} Default: {default}."

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        from pydantic import Field  # here, as the command line's help must not wait for it

        bounds = Field(ge=self.min, le=self.most)
        return handler(source if self.most is None else Annotated[source, bounds])

    def __get_pydantic_json_schema__(self, core: Any, handler: Callable[[Any], Any]) -> Any:
        return {**handler(core), "description": self.description}

    def _accept(self, parameter: typer.CallbackParam, value: Any) -> Any:
        """What the command line gave. Raises BadParameter for too large a number and a list of nothing."""
        if value == []:
            flag = parameter.opts[0]
            raise typer.BadParameter(f"it is empty; leave it out for all, or give names as in `{flag} a,b`")
        if value is not None and self.most is not None and not value <= self.most:
            raise typer.BadParameter(f"it must be at most {self.most:,}, got {value}")
        return value


def _split(listed: str) -> list[str]:
    return [name for name in (part.strip() for part in listed.split(",")) if name]


def _completion(name: str) -> Callable[[typer.Context, str], list[str]]:
    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        found: list[str] = getattr(import_module("rlfocal.cli.support.completion"), name)(ctx, incomplete)
        return found

    return complete


POOL = "The pool's name or its YAML file."
Pool = Annotated[Name, Option(POOL, flags=("--pool", "-p"), complete="pools")]
Benchmark = Annotated[
    Name, Option("A benchmark of the warehouse.", flags=("--benchmark", "-b"), complete="benchmark")
]
Models = Annotated[
    Names | None,
    Option("Only these models.", default="all", metavar="M,...", is_listed=True, complete="models"),
]
Benchmarks = Annotated[
    Names | None,
    Option(
        "Only these benchmarks.",
        default="all",
        flags=("--benchmarks", "-b"),
        metavar="B,...",
        is_listed=True,
        complete="benchmarks",
    ),
]
Backend = Annotated[
    names.Backend | None, Option("The engine: vllm, hf, openai or chat.", default="the pool's")
]
Limit = Annotated[int | None, Option("Only the first N documents of each task.", 1, metavar="N")]
Jobs = Annotated[
    int | None,
    Option(
        "How many models run at once, one process each.",
        1,
        default="as many as fit on the GPUs; on a CPU 2, with vllm 1",
    ),
]
Seeds = Annotated[int, Option("Seeds 0..K-1 for methods that use randomness.", 1, metavar="K")]
Per = Annotated[
    names.Per,
    Option("Fit one policy for the benchmark, or one for each of its tasks (best_single included)."),
]
Snapshot = Annotated[int | None, Option("Read the warehouse as of this snapshot.", most=LARGEST, metavar="N")]
Datasets = Annotated[
    Name | None,
    Option(
        "A mirror of the data sets, made with `rlfocal datasets mirror DIR`.",
        default="the hub",
        metavar="DIR",
        variable="RLFOCAL_DATASETS",
    ),
]
