"""Parameters of commands, flows and the library, each declared once, as an annotation.

An Option is one of Typer's own, whose bounds and description pydantic, and with it Prefect, read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import wraps
from importlib import import_module
from inspect import Parameter, signature
from typing import Annotated, Any, Literal, TypeVar, get_type_hints

import typer
from annotated_types import MinLen
from typer.models import OptionInfo

from rlfocal.base import names
from rlfocal.base.errors import InputError
from rlfocal.base.request import MAX_NUMBER

Name = Annotated[str, MinLen(1)]
Names = Annotated[Sequence[Name], MinLen(1)]
Result = TypeVar("Result")


class Option(OptionInfo):
    """The description and bounds of one parameter; `others` are Typer's own settings.

    help: one sentence, shown in forms too. least, most: bounds of a number; with `least` alone, MAX_NUMBER is
    the upper bound. default: what None stands for, in words. flags: its names on the command line, by default
    `--` and the parameter's name. is_listed: whether it takes several values, as `a,b` or by repeating the
    option. complete: what it names; `complete_{complete}` of `rlfocal.cli.support.options` completes it.
    """

    def __init__(
        self,
        help: str,
        least: float | None = None,
        most: float | None = None,
        *,
        default: str | None = None,
        flags: tuple[str, ...] = (),
        is_listed: bool = False,
        complete: str | None = None,
        **others: Any,
    ) -> None:
        others |= {"min": least, "param_decls": flags, "show_default": default or True}
        others |= {"parser": split if is_listed else None, "callback": self._accept}
        others |= {"autocompletion": None if complete is None else _make_completion(complete)}
        told = f"{help} May be repeated." if is_listed else help
        super().__init__(default=..., help=told, **others)
        self.most = MAX_NUMBER if most is None and least is not None else most
        self.description = help if default is None else f"{help} Default: {default}."

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        from pydantic import Field  # here, as the command line's help must not wait for it

        bounds = Field(ge=self.min, le=self.most)
        return handler(source if self.most is None else Annotated[source, bounds])

    def __get_pydantic_json_schema__(self, core: Any, handler: Callable[[Any], Any]) -> Any:
        return {**handler(core), "description": self.description}

    def _accept(self, parameter: typer.CallbackParam, value: Any) -> Any:
        """The value from the command line. Raises InputError for an empty list and for too large a number."""
        flag = parameter.opts[0]
        if value == []:
            raise InputError(f"{flag} is empty; leave it out for all, or give names as in `{flag} a,b`")
        if value is not None and self.most is not None and not value <= self.most:
            raise InputError(f"{flag} must be at most {self.most:,}, got {value}")
        return value


def split(listed: str | Sequence[str]) -> list[str]:
    """The items of `a,b` as a list; for a repeated option, the items of all its values."""
    whole = listed if isinstance(listed, str) else ",".join(listed)
    return [name for name in (part.strip() for part in whole.split(",")) if name]


def _make_completion(name: str) -> Callable[[typer.Context, str], list[str]]:
    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        completions = import_module("rlfocal.cli.support.options")
        names: list[str] = getattr(completions, f"complete_{name}")(ctx, incomplete)
        return names

    return complete


def takes(
    request: type[Any], without: Collection[str] = (), **annotations: Any
) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Makes a function with a request as a parameter take the request's fields as parameters in its place.

    `request`: the class of the request. `without`: fields that are left out. `annotations`: those of fields
    that a command reads in another way. Commands and forms are made from the new signature.
    """
    hints = get_type_hints(request, include_extras=True) | annotations
    fields = [
        each.replace(annotation=hints[name], kind=Parameter.POSITIONAL_OR_KEYWORD)
        for name, each in signature(request).parameters.items()
        if name not in without
    ]
    names = {each.name for each in fields}

    def enter(function: Callable[..., Result]) -> Callable[..., Result]:
        own = get_type_hints(function, include_extras=True)
        [place] = [name for name in signature(function).parameters if own[name] is request]
        parameters: list[Parameter] = []
        for name, each in signature(function).parameters.items():
            parameters += fields if name == place else [each.replace(annotation=own[name])]
        whole = signature(function).replace(parameters=parameters, return_annotation=own.get("return"))

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Result:
            given = whole.bind(*args, **kwargs).arguments
            asked = {name: given.pop(name) for name in names & given.keys()}
            return function(**{place: request(**asked)}, **given)

        call.__signature__ = whole  # type: ignore[attr-defined]
        call.__annotations__ = {name: each.annotation for name, each in whole.parameters.items()}
        return call

    return enter


POOL_HELP = "The pool's name or its YAML file."
Pool = Annotated[Name, Option(POOL_HELP, flags=("--pool", "-p"), complete="pools")]
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
        flags=("--benchmarks", "--benchmark", "-b"),
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
Snapshot = Annotated[
    int | None, Option("Read the warehouse as of this snapshot.", most=MAX_NUMBER, metavar="N")
]
Datasets = Annotated[
    Name | None,
    Option(
        "A mirror of the data sets, made with `rlfocal datasets mirror DIR`.",
        default="the hub",
        metavar="DIR",
        envvar="RLFOCAL_DATASETS",
    ),
]
Report = Annotated[
    Name | None,
    Option(
        "The HTML report to write.", default="beside the warehouse", flags=("--output", "-o"), metavar="FILE"
    ),
]
Minutes = Annotated[
    int | None,
    Option(
        "The time limit of each try to extract a model, in minutes; one that takes longer is stopped, "
        "and what it committed stays.",
        1,
        default="none",
    ),
]
GPUHours = Annotated[
    float | None,
    Option(
        "End before models have held GPUs for longer than this, all together; what is committed stays.",
        0.001,
        default="no limit",
        metavar="N",
    ),
]
StopIfSlower = Annotated[
    bool, Option("Stop a model if its engine has to read every prompt once for each choice.")
]
Unconditional = Annotated[
    bool, Option("Also score each choice after an empty prompt, once per task, for acc_mutual_info.")
]
Methods = Annotated[
    Names | None,
    Option(
        "The methods to run; `single:<model>` is one too; all: every method the data allow.",
        default="the usual ones",
        flags=("--methods", "--method"),
        metavar="M,...|all",
        is_listed=True,
    ),
]
ProtocolOrBoth = Annotated[
    Literal["frozen", "online", "both"],
    Option("frozen: methods see no test label; online: each is revealed after its answer; both."),
]
Split = Annotated[
    Name,
    Option(
        "given: as the documents are marked; last: test on the last 20 % of each task; random: on 20 % "
        "of each task, drawn with seed 0; tasks: on a fifth of the tasks, held out (tasks:2/5: another "
        "fifth); train-last, train-random, train-tasks: of the train documents alone.",
        metavar="given|[train-]last|[train-]random|[train-]tasks",
    ),
]
Budgets = Annotated[
    Sequence[Name] | None,
    Option(
        "Also run at these mean costs per document: models (1,2,4,all) or cents per 1,000 queries (50c). "
        "Methods are fitted once and decide at each budget.",
        default="none",
        metavar="B,...",
        is_listed=True,
    ),
]
TargetErrors = Annotated[
    Sequence[Name] | None,
    Option(
        "Promise, by train rows alone and with 90 % certainty, that at most this share of the answers above "
        "a probability is wrong (5%,10%); the others are abstentions. Costs three more fits a seed.",
        default="none",
        metavar="E,...",
        flags=("--target-error",),
        is_listed=True,
    ),
]
Setting = Option(
    "A setting of one method (knn.k=20) or of all that have it (encoder=DIR); may be repeated. Such "
    "runs stay off the leaderboard.",
    default="the methods' own",
    flags=("--set",),
    metavar="METHOD.NAME=VALUE",
)
Settings = Annotated[Sequence[Name] | None, Setting]
Down = Annotated[
    Names | None,
    Option(
        "Models that fail; the next best stand in.",
        default="none",
        metavar="M,...",
        is_listed=True,
        complete="models",
    ),
]
Swap = Annotated[
    Names | None,
    Option(
        "B's answers under A's name: a model that was silently replaced, quantised or drifted.",
        default="none",
        metavar="A=B,...",
        is_listed=True,
    ),
]
PricesFile = Annotated[
    Name | None,
    Option(
        "A file of prices, as `rlfocal import prices` reads it.", default="the stored ones", metavar="FILE"
    ),
]
SCENARIO = (
    "What else differs, as KIND=VALUE,...: down=M, swap=A=B, prices=FILE, missing=SHARE of test answers. "
    "Fitted anew: drop=M, labels=N, label-noise=SHARE of train labels, set=NAME=VALUE."
)
Scenario = Annotated[Name | None, Option(SCENARIO, default="none", metavar="KIND=VALUE,...")]
OneBudget = Annotated[
    Name | None,
    Option(
        "Hold the policies to this mean cost per document: models (2) or cents per 1,000 queries (50c).",
        default="none",
        metavar="B",
    ),
]
Seed = Annotated[int, Option("The seed of a method; a checkpoint has its own.", 0, metavar="K")]
Tune = Annotated[
    int,
    Option(
        "First choose each method's settings by N trials on three folds of train; the first trial is the "
        "defaults. Tuned methods have tables of their own, which also show those without settings. "
        "0: no tuning.",
        0,
        metavar="N",
    ),
]
Again = Annotated[bool, Option("Repeat runs, and trials, that the warehouse already has.")]
AtOnce = Annotated[int, Option("Methods to run at once, each in a process of its own.", 1)]
Trained = Annotated[
    Name,
    Option(
        f"Which of RL-Focal's methods: {', '.join(names.TRAINED_METHODS)}; +task after rl_focal or "
        "gated_log_linear: agents that read the tasks' names."
    ),
]
Tensorboard = Annotated[bool, Option("Write TensorBoard logs of each training beside its checkpoint.")]
LimitOfOthers = Annotated[
    int | None,
    Option(
        "Only the first N documents of each task.",
        1,
        default="as many as the pool's other models answered",
        metavar="N",
    ),
]
Probed = Annotated[
    int | None,
    Option(
        "Documents to ask in all, spread over the benchmarks.", 1, default="until the verdict is clear",
        most=MAX_NUMBER, metavar="N",
    ),
]  # fmt: skip
EvenIfImplausible = Annotated[bool, Option("Add the model even if its first answers are implausible.")]
