"""Progress of a run, for the command line if it runs the flow itself, and for the run's page."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from typing import cast
from uuid import UUID

from prefect import get_run_logger
from prefect.artifacts import create_progress_artifact, update_progress_artifact

from rlfocal.base.request import Progress

SECONDS_BETWEEN_UPDATES = 5.0
LAST_TRIES = 6
"""A busy server is offered the last share this often; a run waits for it at its end anyway."""

# A flow's parameters are JSON, which a callback is not; Prefect hands this context on to its task threads.
_listener: ContextVar[Progress | None] = ContextVar("listener", default=None)


@contextmanager
def progress_sink(listener: Progress | None) -> Iterator[None]:
    """Inside, `report_progress` calls `listener`."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def report_progress(title: str, share: float) -> None:
    """Calls the listener, if there is one."""
    if (listener := _listener.get()) is not None:
        listener(title, share)


@contextmanager
def show_progress(name: str) -> Iterator[Progress]:
    """Inside, the listener is called, and the run's page shows the finished share under the name.

    A separate thread talks to the server, so that no work waits for a server that is down.
    """
    finished = [0.0]
    has_ended, is_whole = threading.Event(), threading.Event()
    bars: list[UUID] = []

    def put() -> bool:
        with suppress(Exception):  # a page is worth no run
            if bars:
                update_progress_artifact(bars[0], 100 * finished[0])
            else:  # Prefect's types leave open whether a coroutine is returned; in a thread none is
                made = create_progress_artifact(100 * finished[0], key=_key(name), description=name)
                bars.append(cast(UUID, made))
            return True
        return False

    def show() -> None:
        put()
        while not has_ended.wait(SECONDS_BETWEEN_UPDATES):
            put()
        for _ in range(LAST_TRIES):
            if put():
                is_whole.set()
                break
            time.sleep(SECONDS_BETWEEN_UPDATES)

    def on_progress(title: str, share: float) -> None:
        finished[0] = share
        report_progress(title, share)

    page = threading.Thread(target=copy_context().run, args=(show,), daemon=True)
    page.start()
    try:
        yield on_progress
    finally:
        has_ended.set()
        page.join(LAST_TRIES * SECONDS_BETWEEN_UPDATES)
        if not is_whole.is_set():
            get_run_logger().warning("the server is busy: the page's bar of %s may stand still", name)


def _key(name: str) -> str:
    """As Prefect wants it.

    >>> _key("extract Qwen/Qwen3-0.6B")
    'extract-qwen-qwen3-0-6b'
    """
    return re.sub("[^a-z0-9]+", "-", name.lower()).strip("-")
