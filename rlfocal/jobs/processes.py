"""A process of its own for every job: what one does to memory, the GPU or itself, the next never notices."""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from time import monotonic
from typing import Any

from rlfocal.jobs import fork_server
from rlfocal.jobs.faults import explained, killed, over_time

Send = Callable[[Any], None]
SECONDS_TO_EXIT = 60
_starting = threading.Lock()


class _Ended(str):
    """A job's last message: why it failed, or nothing."""


def run_each(
    job: Callable[..., None],
    arguments: Mapping[str, tuple[Any, ...]],
    *,
    at_once: int,
    on_event: Callable[[str, Any], None],
    preload: Sequence[str] = (),
    seconds: float | None = None,
) -> dict[str, str | None]:
    """Runs `job(send, *arguments[name])` in a process per name, at most `at_once` of them at a time.

    Calls `on_event(name, event)` here for everything a job sends. Returns, by name, None or the reason in one
    sentence why the process ended early. Processes die with the caller, and what they started with them.
    `preload`: modules that processes find imported already; the first call decides. `seconds`: how long each
    may take; then it is ended.
    """
    waiting = list(arguments)
    running: dict[str, tuple[Connection, BaseProcess]] = {}
    ended: dict[str, str | None] = {}
    until: dict[str, float] = {}
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                name = waiting.pop(0)
                running[name] = _start(job, arguments[name], preload)
                until[name] = math.inf if seconds is None else monotonic() + seconds
            # The sentinel too: a grandchild may hold the connection open after its parent's death.
            ends = [end for connection, process in running.values() for end in (connection, process.sentinel)]
            first = min(until[name] for name in running)
            ready = wait(ends, None if first == math.inf else max(0.0, first - monotonic()))
            for name, (connection, process) in list(running.items()):
                last = _forward(connection, partial(on_event, name))
                if last is not None or process.sentinel in ready:
                    del running[name]
                    _finish(connection, process)
                    ended[name] = _reason(last, process.exitcode)
                elif seconds is not None and monotonic() >= until[name]:
                    del running[name]
                    _kill(process)
                    connection.close()
                    ended[name] = over_time(seconds)
    finally:
        for _, process in running.values():
            _kill(process)
    return ended


def _forward(connection: Connection, on_event: Callable[[Any], None]) -> _Ended | None:
    """Passes on what has arrived; returns the last message, if that is among it."""
    while (event := _received(connection)) is not None:
        if isinstance(event, _Ended):
            return event
        on_event(event)
    return None


def _received(connection: Connection) -> Any:
    try:
        return connection.recv() if connection.poll() else None
    except (EOFError, OSError):  # the process died, perhaps in the middle of a message
        return None


def _finish(connection: Connection, process: BaseProcess) -> None:
    process.join(SECONDS_TO_EXIT)
    _kill(process)
    connection.close()


def _kill(process: BaseProcess) -> None:
    """Ends a process and all that it started: an engine's own processes would keep the GPU's memory."""
    if process.pid is not None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()  # it may not lead a group yet
    process.join()


def _reason(last: _Ended | None, exitcode: int | None) -> str | None:
    if last is not None:
        return str(last) or None
    if exitcode is not None and exitcode < 0:
        return killed(signal.Signals(-exitcode).name)
    return f"its process ended early with exit code {exitcode}"


def _start(
    job: Callable[..., None], arguments: tuple[Any, ...], preload: Sequence[str]
) -> tuple[Connection, BaseProcess]:
    context = multiprocessing.get_context("forkserver")
    receiver, sender = context.Pipe(duplex=False)
    # Not a daemon: an engine may need processes of its own.
    process = context.Process(target=_run, args=(sender, dict(os.environ), job, arguments), daemon=False)
    with _starting, _main_hidden(), _deaf_to_ctrl_c(), fork_server.owned():
        context.set_forkserver_preload([fork_server.__name__, *preload])
        process.start()
    sender.close()
    return receiver, process


@contextlib.contextmanager
def _deaf_to_ctrl_c() -> Iterator[None]:
    """What is started here inherits a blocked SIGINT: the parent ends its children, so no tracebacks."""
    resource_tracker.ensure_running()  # or it starts inside, and then unblocks the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _main_hidden() -> Iterator[None]:
    """Children need nothing from the caller's __main__, and importing it again could run a script twice."""
    main = sys.modules["__main__"]
    hidden = {name: vars(main)[name] for name in ("__spec__", "__file__") if name in vars(main)}
    main.__spec__ = None
    main.__file__ = None
    try:
        yield
    finally:
        for name in ("__spec__", "__file__"):
            if name in hidden:
                setattr(main, name, hidden[name])
            else:
                delattr(main, name)


def _run(
    sender: Connection, environment: dict[str, str], job: Callable[..., None], arguments: tuple[Any, ...]
) -> None:
    os.setsid()  # a group of its own, which ends as one
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent gets Ctrl-C too, and ends its children
    threading.Thread(target=_die_with_parent, daemon=True).start()
    os.environ.update(environment)  # the fork server may have been started before a change
    os.dup2(2, 1)  # stdout belongs to the caller's result
    try:
        job(sender.send, *arguments)
    except Exception as error:
        sender.send(_Ended(explained(error)))
    else:
        sender.send(_Ended(""))


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os.killpg(0, signal.SIGKILL)
