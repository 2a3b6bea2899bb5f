"""What a command can be asked for. Each parameter is declared once, as a field of a dataclass.

The command line's options, the forms of Prefect's deployments and the library's keyword arguments are made
from these fields, and worker processes are sent the value itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, wraps
from inspect import Parameter, Signature, cleandoc, signature
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Concatenate,
    Literal,
    NamedTuple,
    ParamSpec,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from rlfocal.base.errors import InputError, unknown
from rlfocal.base.names import Backend as _Backend

Context = TypeVar("Context")
Fields = ParamSpec("Fields")
Asked = TypeVar("Asked")
Result = TypeVar("Result")
Progress = Callable[[str, float], None]
"""Called with what is running and the finished share of it, 0 to 1."""
LARGEST = 1_000_000_000
"""What anybody counts or weighs comes nowhere near; a server's list of runs fails on one beyond 64 bits."""


@dataclass(frozen=True)
class Option:
    """What a field says of itself. A field without an Option is for Python alone."""

    help: str
    least: float | None = None
    most: float = LARGEST
    default: str | None = None
    """What None stands for, in words."""
    flags: tuple[str, ...] = ()
    """On the command line; by default `--` and the field's name."""
    metavar: str | None = None
    complete: str | None = None
    """The function of `rlfocal.cli.support.completion` that completes it."""
    variable: str | None = None
    """The environment variable that the command line takes it from."""
    is_repeated: bool = False
    """Whether a list is given by repeating the flag, and not as `a,b`."""


class Asking(NamedTuple):
    """One parameter of a request."""

    type: Any
    """str, bool, int, float, Path, a Literal, or list for several strings; is None allowed beside it:"""
    is_optional: bool
    option: Option
    default: Any
    """Parameter.empty if it must be given."""


@cache
def asked_by(request: Any) -> dict[str, Asking]:
    """The parameters of a request, or of a function, by name, in order."""
    hints = get_type_hints(request, include_extras=True)
    taken = signature(request).parameters.items()
    asked = {name: read_annotation(hints[name], one.default) for name, one in taken}
    return {name: asking for name, asking in asked.items() if asking is not None}


def read_annotation(annotation: Any, default: Any) -> Asking | None:
    """What a parameter asks for; None if its annotation holds no Option."""
    for option in getattr(annotation, "__metadata__", ()):
        if isinstance(option, Option):
            types = _alternatives(get_args(annotation)[0])
            return Asking(_plain(types), NoneType in types, option, default)
    return None


class Request:
    """Base of all requests. Raises InputError for a value out of bounds."""

    def __post_init__(self) -> None:
        request: Any = type(self)
        for name, one in asked_by(request).items():
            check(name, one, getattr(self, name))


def with_fields(
    request: Callable[Fields, Asked],
) -> Callable[[Callable[[Asked], Result]], Callable[Fields, Result]]:
    """Lets a function of a request be called with the request's fields as arguments."""

    def decorate(function: Callable[[Asked], Result]) -> Callable[Fields, Result]:
        @wraps(function)
        def call(*args: Fields.args, **kwargs: Fields.kwargs) -> Result:
            return function(request(*args, **kwargs))

        _describe(call, request, ())
        return call

    return decorate


def with_fields_after(
    request: Callable[Fields, Asked],
) -> Callable[[Callable[[Context, Asked], Result]], Callable[Concatenate[Context, Fields], Result]]:
    """The same for a function of something else and a request."""

    def decorate(
        function: Callable[[Context, Asked], Result],
    ) -> Callable[Concatenate[Context, Fields], Result]:
        @wraps(function)
        def call(context: Context, /, *args: Fields.args, **kwargs: Fields.kwargs) -> Result:
            return function(context, request(*args, **kwargs))

        first, *_ = Signature.from_callable(function).parameters.values()
        _describe(call, request, (first,))
        return call

    return decorate


def _describe(call: Any, request: Any, first: Sequence[Parameter]) -> None:
    """Gives a function the signature, and its docstring the list of parameters, that the request has."""
    hints = get_type_hints(request)
    taken = Signature.from_callable(request).parameters.values()
    parameters = [*first, *(one.replace(annotation=hints[one.name]) for one in taken)]
    returned = call.__annotations__["return"]
    call.__signature__ = Signature(parameters, return_annotation=returned)
    lines = [f"{name}\n    {one.option.help}" for name, one in asked_by(request).items()]
    call.__doc__ = "\n".join([cleandoc(call.__doc__), "", "Parameters", "----------", *lines])


def _alternatives(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _plain(types: Sequence[Any]) -> Any:
    if set(types) <= {Path, NoneType}:
        return Path
    for kind in types:
        if kind in (bool, int, float) or get_origin(kind) is Literal:
            return kind
        if get_origin(kind) is not None and issubclass(get_origin(kind), Sequence):
            return list
    return str


def check(name: str, asking: Asking, value: Any) -> None:
    """Raises InputError for a value that the parameter does not take."""
    if value is None and asking.is_optional:
        return
    option, kind = asking.option, asking.type
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise unknown(name, str(value), get_args(kind))
    elif kind is list and isinstance(value, str):
        raise InputError(f"{name} must be a list of names, got {value!r}")
    elif option.least is not None and value < option.least:
        raise InputError(f"{name} must be at least {option.least}, got {value}")
    elif kind in (int, float) and not value <= option.most:
        raise InputError(f"{name} must be at most {option.most:,}, got {value}")


Benchmark = Annotated[
    str, Option("A benchmark of the warehouse.", flags=("--benchmark", "-b"), complete="benchmark")
]
Models = Annotated[
    Sequence[str] | None, Option("Only these models.", default="all", metavar="M,...", complete="models")
]
Benchmarks = Annotated[
    Sequence[str] | None,
    Option(
        "Only these benchmarks.",
        default="all",
        flags=("--benchmarks", "-b"),
        metavar="B,...",
        complete="benchmarks",
    ),
]
Backend = Annotated[_Backend | None, Option("The engine: vllm, hf, openai or chat.", default="the pool's")]
Limit = Annotated[int | None, Option("Only the first N documents of each task.", 1, metavar="N")]
Seeds = Annotated[int, Option("Seeds 0..K-1 for methods that use randomness.", 1, metavar="K")]
Per = Annotated[
    Literal["benchmark", "task"],
    Option("Fit one policy for the benchmark, or one for each of its tasks (best_single included)."),
]
Snapshot = Annotated[int | None, Option("Read the warehouse as of this snapshot.", metavar="N")]
Datasets = Annotated[
    str | Path | None,
    Option(
        "A mirror of the data sets, made with `rlfocal datasets mirror DIR`.",
        default="the hub",
        metavar="DIR",
        variable="RLFOCAL_DATASETS",
    ),
]
