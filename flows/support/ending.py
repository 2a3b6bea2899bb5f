"""How flows end: with what they made, or failed with one sentence that says why."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

from prefect import get_run_logger
from prefect.client.schemas.objects import State
from prefect.logging import get_logger
from prefect.states import Failed

from flows.support.deploying import check_checkout
from flows.support.parameters import check_no_password
from flows.support.summary import IncompleteError, sentence
from rlfocal.base.errors import InputError, RunError
from rlfocal.base.failures import plain

T = TypeVar("T")


def ended(warehouse: str | None, work: Callable[[], T | State[T]]) -> T | State[T]:
    """What `work` returns, or a failed state whose message is one sentence. Checks what every flow needs."""
    _log_sentences()
    try:
        check_checkout()
        check_no_password(warehouse)
        return work()
    except (InputError, RunError) as error:
        return failed(error)


def failed(error: InputError | RunError) -> State[Any]:
    """A failed state whose message says why in one sentence; of a raised error Prefect logs a traceback."""
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


def _log_sentences() -> None:
    """From now on, the logs of runs show our errors as one sentence each."""
    logger = get_logger("flow_runs")
    if not any(isinstance(one, _Sentences) for one in logger.filters):
        logger.addFilter(_Sentences())
