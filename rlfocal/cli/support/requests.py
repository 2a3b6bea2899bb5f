"""A command's options, made from the request that it takes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, Literal, get_args, get_origin

import typer

from rlfocal.base.request import Asking, asked_by, check, read_annotation
from rlfocal.cli.support import completion
from rlfocal.cli.support.options import Json, Result, names


def takes(
    request: Any = None, *, without: Collection[str] = (), arguments: Collection[str] = ()
) -> Callable[[Callable[..., Result | None]], Callable[..., None]]:
    """Gives a command options for the fields of a request, which is the first argument of the function.

    The request may also be a function of the library: the first argument then holds its keyword arguments,
    and its docstring is the command's. `arguments` are positional. Fields in `without`, and those of which
    the function has its own parameter, keep their defaults. Its own parameters may be annotated as the fields
    of requests are. One that returns a Result also gets `--json`.
    """
    make = request if isinstance(request, type) else dict

    def decorate(function: Callable[..., Result | None]) -> Callable[..., None]:
        declared = signature(function, eval_str=True)
        own = list(declared.parameters.values())[0 if request is None else 1 :]
        hidden = {*without, *(one.name for one in own)}
        fields = {} if request is None else asked_by(request)
        fields = {name: one for name, one in fields.items() if name not in hidden}
        of_own = {one.name: read_annotation(one.annotation, one.default) for one in own}
        asked = fields | {name: one for name, one in of_own.items() if one is not None}

        @wraps(function)
        def command(**given: Any) -> None:
            as_json = declared.return_annotation is Result and given.pop("as_json")
            values = {name: _read(name, asked[name], v) if name in asked else v for name, v in given.items()}
            requested = [] if request is None else [make(**{name: values.pop(name) for name in fields})]
            if (result := function(*requested, **values)) is not None:
                result.show(as_json=as_json)

        parameters = [_parameter(name, one, name in arguments) for name, one in fields.items()]
        for one in own:
            asking = of_own[one.name]
            parameters.append(one if asking is None else _parameter(one.name, asking, one.name in arguments))
        if declared.return_annotation is Result:
            parameters.append(Parameter("as_json", Parameter.KEYWORD_ONLY, default=False, annotation=Json))
        parameters = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in parameters]
        command.__doc__ = function.__doc__ or request.__doc__
        command.__dict__["__signature__"] = Signature(parameters)
        command.__annotations__ = {one.name: one.annotation for one in parameters}
        return command

    return decorate


def _parameter(name: str, asking: Asking, is_argument: bool) -> Parameter:
    option = asking.option
    shared: dict[str, Any] = {
        "help": option.help,
        "min": option.least,
        "metavar": option.metavar,
        "autocompletion": option.complete and getattr(completion, option.complete),
        "envvar": option.variable,
    }
    if option.default is not None and asking.default is None:
        shared["show_default"] = option.default
    kind: Any = asking.type
    if kind is list:
        kind = list[str] if option.is_repeated else str
    elif get_origin(kind) is Literal:
        shared["metavar"] = f"<{'|'.join(get_args(kind))}>"
        shared["autocompletion"] = _completion_of(get_args(kind))
        kind = str
    made = typer.Argument(**shared) if is_argument else typer.Option(*_flags(name, asking), **shared)
    allowed: Any = kind | None if asking.is_optional else kind
    annotation = Annotated[allowed, made]
    return Parameter(name, Parameter.KEYWORD_ONLY, default=asking.default, annotation=annotation)


def _flags(name: str, asking: Asking) -> tuple[str, ...]:
    return asking.option.flags or (f"--{name.replace('_', '-')}",)


def _completion_of(choices: Sequence[str]) -> Callable[[str], list[str]]:
    def complete(incomplete: str) -> list[str]:
        return [choice for choice in choices if choice.startswith(incomplete)]

    return complete


def _read(name: str, asking: Asking, value: Any) -> Any:
    """The value as the request takes it: a list for `a,b`."""
    is_listed = asking.type is list and not asking.option.is_repeated
    read = names(value, _flags(name, asking)[0]) if is_listed else value
    check(name, asking, read)
    return read
