"""Parameters of flows, which the server shows as a form, and how flows end."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from inspect import Parameter, Signature, cleandoc, signature
from typing import Annotated, Any, TypeVar

from prefect import get_run_logger
from prefect.client.schemas.objects import State
from prefect.logging import get_logger
from prefect.states import Failed
from pydantic import Field

from flows.support.deploying import check_checkout
from flows.support.pages import IncompleteError, sentence
from rlfocal.base.errors import InputError, RunError
from rlfocal.base.failures import plain
from rlfocal.base.request import LARGEST, Asking, asked_by
from warehouse.locations import without_password

T = TypeVar("T")
Name = Annotated[str, Field(min_length=1)]
Names = Annotated[list[Name], Field(min_length=1)]
Count = Annotated[int, Field(ge=1, le=LARGEST)]
WAREHOUSE = "RLFOCAL_WAREHOUSE"
WAREHOUSE_HELP = (
    "A directory that every worker reaches, or the URI of a Postgres catalogue without its password. "
    f"Default: {WAREHOUSE} of the worker, else .rlfocal/warehouse in its checkout."
)


def with_final_state(work: Callable[[], T]) -> T | State[Any]:
    """Returns what `work` does, or a failed state that says why in one sentence.

    Of a raised error Prefect would log a traceback.
    """
    logger = get_logger("flow_runs")
    if not any(isinstance(one, _Sentences) for one in logger.filters):
        logger.addFilter(_Sentences())
    try:
        return work()
    except (InputError, RunError) as error:
        if isinstance(error, IncompleteError):
            for gap in error.summary.gaps:
                get_run_logger().error("failed: %s", sentence(gap))
        return Failed(message=plain(error), data=error)


class _Sentences(logging.Filter):
    """Logs our errors as one sentence; Prefect would log a traceback of its own code."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, InputError | RunError):
            record.msg, record.args, record.exc_info = plain(error), (), None
        return True


def takes(
    request: Any = None, *, without: Collection[str] = ()
) -> Callable[[Callable[..., T]], Callable[..., T | State[Any]]]:
    """Gives a flow a parameter for each field of a request, which is the first argument of the function.

    Fields in `without` keep their defaults. The function's own parameter replaces a field of its name. Its
    docstring describes its own parameters, except `warehouse`. It runs as in `with_final_state`.
    """

    def decorate(function: Callable[..., T]) -> Callable[..., T | State[Any]]:
        own = list(signature(function, eval_str=True).parameters.values())[0 if request is None else 1 :]
        asked = {} if request is None else asked_by(request)
        asked = {name: one for name, one in asked.items() if name not in {*without, *(p.name for p in own)}}
        required = [one for one in own if one.default is Parameter.empty]
        parameters = [*required, *(_parameter(name, one) for name, one in asked.items())]
        parameters += [one for one in own if one not in required]
        form = Signature(sorted(parameters, key=lambda one: one.default is not Parameter.empty))

        @wraps(function)
        def run(*args: Any, **kwargs: Any) -> T | State[Any]:
            bound = form.bind(*args, **kwargs)
            bound.apply_defaults()
            given = bound.arguments

            def work() -> T:
                check_checkout()
                check_no_password(given["warehouse"])
                if request is None:
                    return function(**given)
                fields = {name: given[name] for name in asked_by(request) if name in given}
                return function(request(**fields), **{one.name: given[one.name] for one in own})

            return with_final_state(work)

        run.__dict__["__signature__"] = form
        described = {name: _described(one) for name, one in asked.items()} | {"warehouse": WAREHOUSE_HELP}
        run.__doc__ = _with_arguments(cleandoc(function.__doc__ or ""), described)
        return run

    return decorate


def _parameter(name: str, asking: Asking) -> Parameter:
    kinds = {str: Name, list: Names}
    kind = kinds.get(asking.type, asking.type)
    if kind in (int, float):
        kind = Annotated[kind, Field(ge=asking.option.least, le=asking.option.most)]
    annotation = kind | None if asking.is_optional else kind
    return Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, default=asking.default, annotation=annotation)


def _described(asking: Asking) -> str:
    default = asking.option.default
    return f"{asking.option.help} Default: {default}." if default else asking.option.help


def _with_arguments(text: str, described: Mapping[str, str]) -> str:
    """The docstring with what it says of its own arguments, and of these."""
    head, _, own = text.partition("\n\nArgs:\n")
    lines = [f"    {name}: {help}" for name, help in described.items()]
    return "\n".join([head, "", "Args:", *lines, *filter(None, [own])])


@contextmanager
def secret_kept(parameters: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Parameters without a warehouse's password, which the environment holds: a server stores parameters."""
    given = parameters.get("warehouse")
    if given is None or without_password(given) == given:
        yield dict(parameters)
        return
    before = os.environ.get(WAREHOUSE)
    os.environ[WAREHOUSE] = given
    try:
        yield {**parameters, "warehouse": None}
    finally:
        del os.environ[WAREHOUSE]
        if before is not None:
            os.environ[WAREHOUSE] = before


def check_no_password(warehouse: str | None) -> None:
    """Raises InputError for a location with a password: the server stores and shows parameters."""
    if warehouse is not None and (shown := without_password(warehouse)) != warehouse:
        raise InputError(
            f"the parameter warehouse, {shown}, holds a password, but parameters are stored and shown; "
            "change that password, set RLFOCAL_WAREHOUSE where the worker runs, and leave the parameter out"
        )
