"""A flow in a thread, so that the main thread stays free for signals; and threads that take turns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import copy_context
from threading import Condition, Thread
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


class Turns:
    """Lets threads through one at a time, by their numbers: 0, 1, ...

    A thread that has been through once does not wait for others again.
    """

    def __init__(self) -> None:
        self._next = 0
        self._changed = Condition()

    @contextmanager
    def turn(self, number: int) -> Iterator[None]:
        """The block begins when the blocks of all smaller numbers have ended, with an error or not."""
        with self._changed:
            self._changed.wait_for(lambda: self._next >= number)
        try:
            yield
        finally:
            with self._changed:
                self._next = max(self._next, number + 1)
                self._changed.notify_all()
