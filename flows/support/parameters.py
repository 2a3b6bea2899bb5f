"""Parameters that only flows have, and the final states of flows."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from inspect import signature
from typing import Annotated, Any, ParamSpec, TypeVar

from prefect import get_run_logger
from prefect.client.schemas.objects import State
from prefect.logging import get_logger
from prefect.states import Failed
from pydantic import Field

from flows.support.deploying import check_checkout
from flows.support.pages import IncompleteError, sentence
from rlfocal.base import options
from rlfocal.base.environment import set_variables
from rlfocal.base.errors import InputError, RunError, describe_error
from rlfocal.base.options import Option
from rlfocal.base.request import MAX_NUMBER
from warehouse.locations import without_password

Asked = ParamSpec("Asked")
T = TypeVar("T")
Count = Annotated[int, Field(ge=1, le=MAX_NUMBER)]
Hours = Annotated[int, Field(ge=0, le=100_000)]
WAREHOUSE_VARIABLE = "RLFOCAL_WAREHOUSE"
Place = Annotated[
    options.Name | None,
    Option(
        "A directory that every worker reaches, or the URI of a Postgres catalogue without its password.",
        default=f"{WAREHOUSE_VARIABLE} of the worker, else .rlfocal/warehouse in its checkout",
    ),
]


def with_final_state(work: Callable[Asked, T]) -> Callable[Asked, T | State[Any]]:
    """Makes a flow end in the result of `work`, or in a failed state with the reason in one sentence.

    For a raised error, Prefect would log a traceback. The flow first checks the worker's checkout, and that
    the location `warehouse` has no password. Do not postpone annotations in modules that use this: Prefect
    would look their names up in this module.
    """

    @wraps(work)
    def run(*args: Asked.args, **kwargs: Asked.kwargs) -> T | State[Any]:
        logger = get_logger("flow_runs")
        if not any(isinstance(each, _Sentences) for each in logger.filters):
            logger.addFilter(_Sentences())
        try:
            check_checkout()
            check_no_password(signature(work).bind(*args, **kwargs).arguments.get("warehouse"))
            return work(*args, **kwargs)
        except (InputError, RunError) as error:
            if isinstance(error, IncompleteError):
                for gap in error.summary.gaps:
                    get_run_logger().error("failed: %s", sentence(gap))
            return Failed(message=describe_error(error), data=error)

    return run


class _Sentences(logging.Filter):
    """A filter that logs InputError and RunError as one sentence, where Prefect would log a traceback."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, InputError | RunError):
            record.msg, record.args, record.exc_info = describe_error(error), (), None
        return True


@contextmanager
def hide_password(parameters: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields the parameters with a warehouse's password moved to the environment, as a server stores
    parameters."""
    given = parameters.get("warehouse")
    if given is None or without_password(given) == given:
        yield dict(parameters)
        return
    with set_variables({WAREHOUSE_VARIABLE: given}):
        yield {**parameters, "warehouse": None}


def check_no_password(warehouse: str | None) -> None:
    """Raises InputError for a location with a password, because the server stores and shows parameters."""
    if warehouse is not None and (shown := without_password(warehouse)) != warehouse:
        raise InputError(
            f"the parameter warehouse, {shown}, holds a password, but parameters are stored and shown; "
            "change that password, set RLFOCAL_WAREHOUSE where the worker runs, and leave the parameter out"
        )
