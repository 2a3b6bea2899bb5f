"""Runs every job in its own process, so that its use of memory and GPUs does not affect the next job."""

from __future__ import annotations

import contextlib
import gc
import math
import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from time import monotonic, sleep
from typing import Any, Self

from rlfocal.base.environment import set_variables
from rlfocal.base.errors import RunError
from rlfocal.extraction.gpus import Lease, Placement, restrict_to
from rlfocal.extraction.running.events import explain, explain_kill, explain_timeout

Send = Callable[[Any], None]
SECONDS_TO_EXIT = 60
FORK_SERVER_OWNER = "RLFOCAL_FORK_SERVER_OWNER"
SECONDS_BETWEEN_LOOKS = 0.2
_starting = threading.Lock()
_is_to_stop = threading.Event()


class StoppedError(RunError):
    """The error of a process that a signal told to stop while it had work left."""


def check_not_stopped() -> None:
    """Raises StoppedError if this process was told to stop. A job calls it between two pieces of work."""
    if _is_to_stop.is_set():
        raise StoppedError("the process was told to stop")


class _JobEnd(str):
    """A job's last message: the reason why it failed; "" if it did not fail."""


class Processes:
    """Concurrent processes, one per name. They and all processes that they start end with the caller.

    `on_event(name, event)` is called in this process for everything that a job sends. `preload` names modules
    to import before processes fork; only the first call's count. `seconds` is the time limit of each process.
    """

    def __init__(
        self,
        on_event: Callable[[str, Any], None],
        preload: Sequence[str] = (),
        seconds: float | None = None,
    ) -> None:
        self._on_event = on_event
        self._preload = preload
        self._seconds = math.inf if seconds is None else seconds
        self._running: dict[str, tuple[Connection, BaseProcess]] = {}
        self._deadlines: dict[str, float] = {}
        self._stop_reasons: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._running)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        for _, process in self._running.values():
            _kill(process)

    def start(
        self,
        name: str,
        job: Callable[..., None],
        arguments: tuple[Any, ...],
        environment: Mapping[str, str] | None = None,
        lease: Lease | None = None,
    ) -> None:
        """Starts `job(send, *arguments)` in a process, with `environment` added to the caller's own. The
        lease passes to the process. It imports the job's modules only when its environment is set."""
        self._running[name] = _start(job, arguments, self._preload, environment or {}, lease)
        self._deadlines[name] = monotonic() + self._seconds

    def stop(self, names: Iterable[str], reason: str, *, at_once: bool) -> None:
        """Tells processes to stop after their current piece of work, or kills them if `at_once`. `wait`
        returns `reason` for them."""
        for name in names:
            _, process = self._running[name]
            if process.pid is not None and (at_once or name not in self._stop_reasons):
                with contextlib.suppress(ProcessLookupError):  # it has just ended
                    os.kill(process.pid, signal.SIGKILL if at_once else signal.SIGUSR1)
            self._stop_reasons[name] = reason

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._running))

    def wait(self, seconds: float | None = None) -> dict[str, str | None]:
        """Waits until a process sends something or ends, but at most `seconds`. Returns the processes that
        ended, by name: None, or the reason why the process ended early."""
        # The sentinel too: a grandchild may hold the connection open after its parent's death.
        ends = [
            end for connection, process in self._running.values() for end in (connection, process.sentinel)
        ]
        first = min((self._deadlines[name] for name in self._running), default=math.inf) - monotonic()
        least = min(math.inf if seconds is None else seconds, max(0.0, first))
        ready = wait(ends, None if least == math.inf else least)
        ended: dict[str, str | None] = {}
        for name, (connection, process) in list(self._running.items()):
            last = _forward(connection, partial(self._on_event, name))
            if last is not None or process.sentinel in ready:
                del self._running[name]
                process.join(SECONDS_TO_EXIT)
                _kill(process)
                connection.close()
                ended[name] = self._stop_reasons.get(name) or _explain_end(last, process.exitcode)
            elif monotonic() >= self._deadlines[name]:
                del self._running[name]
                _kill(process)
                connection.close()
                ended[name] = explain_timeout(self._seconds)
        return ended


def run_each(
    job: Callable[..., None],
    arguments: Mapping[str, tuple[Any, ...]],
    *,
    at_once: int,
    on_event: Callable[[str, Any], None],
    preload: Sequence[str] = (),
    seconds: float | None = None,
    gpus: Placement | None = None,
) -> dict[str, str | None]:
    """Runs `job(send, *arguments[name])` in a process per name, at most `at_once` at a time.

    Calls `on_event(name, event)` in this process for everything that a job sends. Returns, by name, None or
    the reason why the process ended early. Processes and all that they start end with the caller. `preload`
    names modules to import before processes fork; only the first call's count. `seconds` is the time limit of
    each process. `gpus` is the placement that gives each process its GPUs; the process sees no others. Jobs
    that fit overtake jobs that need more GPUs than are free.
    """
    waiting = dict(arguments)
    ended: dict[str, str | None] = {}
    with Processes(on_event, preload, seconds) as processes:
        while waiting or processes:
            refused = {} if gpus is None else gpus.refuse(waiting)
            ended |= refused
            waiting = {name: given for name, given in waiting.items() if name not in refused}
            while waiting and len(processes) < at_once:
                if gpus is None:
                    name = next(iter(waiting))
                    processes.start(name, job, waiting.pop(name))
                elif placed := gpus.place(waiting, is_idle=not processes):
                    name, lease = placed
                    processes.start(name, job, waiting.pop(name), restrict_to(lease.devices), lease)
                else:
                    break
            just_ended = processes.wait(None if gpus is None else SECONDS_BETWEEN_LOOKS)
            ended |= just_ended
            if gpus is not None:
                _keep_budget(processes, gpus, just_ended)
    return ended


def _keep_budget(processes: Processes, gpus: Placement, just_ended: Iterable[str]) -> None:
    """Stops processes that use GPUs if their GPU-hours are nearly used up."""
    for name in just_ended:
        gpus.end(name)
    if gpus.budget is not None and gpus.budget.is_ending:
        names = [name for name in processes if gpus.uses_gpus(name)]
        processes.stop(names, gpus.budget.reason, at_once=gpus.budget.is_spent)


def start_fork_server(preload: Sequence[str]) -> None:
    """Imports modules in the background, for processes that fork later. Only the first call's modules
    count."""
    with _fork_server(preload):
        forkserver.ensure_running()


@contextlib.contextmanager
def _fork_server(preload: Sequence[str]) -> Iterator[None]:
    """Prepares the block so that a fork server started inside imports these modules, and ends with this
    process."""
    with _starting, _hide_main(), _fork_servers_environment(), _ignore_ctrl_c():
        multiprocessing.get_context("forkserver").set_forkserver_preload([__name__, *preload])
        yield


def _forward(connection: Connection, on_event: Callable[[Any], None]) -> _JobEnd | None:
    """Passes arrived events to `on_event`. Returns the job's last message if it has arrived."""
    while (event := _receive(connection)) is not None:
        if isinstance(event, _JobEnd):
            return event
        on_event(event)
    return None


def _receive(connection: Connection) -> Any:
    try:
        return connection.recv() if connection.poll() else None
    except (EOFError, OSError):  # the process died, perhaps in the middle of a message
        return None


def _kill(process: BaseProcess) -> None:
    """Kills a process and all that it started, because an engine's own processes would keep the GPU's
    memory."""
    if process.pid is not None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()  # it may not lead a group yet
    process.join()


def _explain_end(last: _JobEnd | None, exitcode: int | None) -> str | None:
    if last is not None:
        return str(last) or None
    if exitcode is not None and exitcode < 0:
        return explain_kill(signal.Signals(-exitcode).name)
    return f"its process ended early with exit code {exitcode}"


def _start(
    job: Callable[..., None],
    arguments: tuple[Any, ...],
    preload: Sequence[str],
    environment: Mapping[str, str],
    lease: Lease | None,
) -> tuple[Connection, BaseProcess]:
    context = multiprocessing.get_context("forkserver")
    receiver, sender = context.Pipe(duplex=False)
    # Pickled apart: reading it imports the job's modules, which must find the environment as it is to be.
    work = ForkingPickler.dumps((job, arguments))
    given = (sender, {**os.environ, **environment}, lease, bytes(work))
    # Not a daemon: an engine may need processes of its own.
    process = context.Process(target=_run, args=given, daemon=False)
    try:
        with _fork_server(preload):
            process.start()
    finally:
        sender.close()
        if lease is not None:
            lease.close()  # it is the process's from now on, and ends with it
    return receiver, process


@contextlib.contextmanager
def _ignore_ctrl_c() -> Iterator[None]:
    """Blocks SIGINT for processes started in the block. Their parent ends them, so that they print no
    tracebacks."""
    resource_tracker.ensure_running()  # or it starts inside, and then unblocks the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _hide_main() -> Iterator[None]:
    """Hides the caller's __main__ from child processes, because importing it again could run a script
    twice."""
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


def _run(sender: Connection, environment: dict[str, str], lease: Lease | None, work: bytes) -> None:
    os.setsid()  # a group of its own, which ends as one
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent gets Ctrl-C too, and ends its children
    signal.signal(signal.SIGUSR1, lambda *_: _is_to_stop.set())
    if lease is not None:
        lease.guard()
    threading.Thread(target=_die_with_parent, daemon=True).start()
    os.environ.update(environment)  # the fork server may have been started before a change
    os.dup2(2, 1)  # stdout belongs to the caller's result
    try:
        job, arguments = pickle.loads(work)
        job(sender.send, *arguments)
    except Exception as error:
        sender.send(_JobEnd(explain(error)))
    else:
        sender.send(_JobEnd(""))


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os.killpg(0, signal.SIGKILL)


def _fork_servers_environment() -> contextlib.AbstractContextManager[None]:
    """Sets the environment so that a fork server started inside ends with this process.

    Python's own fork server notices the death of its owner only between two forks, not during seconds of
    imports. The server also imports nothing from the working directory. Up to Python 3.12, it would import a
    user's warehouse.py there.
    """
    return set_variables({FORK_SERVER_OWNER: str(os.getpid()), "PYTHONSAFEPATH": "1"})


def _end_with(owner: int) -> None:
    while os.getppid() == owner:
        sleep(SECONDS_BETWEEN_LOOKS)
    os._exit(1)


# A fork server takes no call from its owner but an import; anywhere else the name is not set.
if FORK_SERVER_OWNER in os.environ:
    threading.Thread(target=_end_with, args=(int(os.environ.pop(FORK_SERVER_OWNER)),), daemon=True).start()
    gc.disable()  # looking for garbage takes a sixth of the imports' time
    os.register_at_fork(after_in_child=gc.enable)
