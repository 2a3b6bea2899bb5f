"""How flows end: with their result, or failed with one sentence that says why."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

from prefect import get_run_logger
from prefect.client.schemas.objects import State
from prefect.logging import get_logger
from prefect.states import Failed

from flows.support.summary import IncompleteError, sentence
from rlfocal.base.errors import InputError, RunError
from rlfocal.base.failures import plain

T = TypeVar("T")


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
