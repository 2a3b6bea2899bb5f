"""A flow in a thread, so that the main thread stays free for signals."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from threading import Thread
from typing import TypeVar

T = TypeVar("T")


def in_thread(call: Callable[[], T]) -> T:
    """What `call` returns or raises. Ctrl-C ends the wait at once; `call` goes on until the process ends.

    On the main thread Prefect would take SIGTERM for itself, and after Ctrl-C wait for every model's process.
    """
    result: Future[T] = Future()
    context = copy_context()

    def work() -> None:
        try:
            result.set_result(context.run(call))
        except BaseException as error:
            result.set_exception(error)

    Thread(target=work, daemon=True).start()
    return result.result()
