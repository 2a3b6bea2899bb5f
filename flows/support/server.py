"""Runs flows of the command line on a temporary Prefect server, and off the main thread.

The server ends with the process that started it, however that ends; Prefect's own would stay. As a program,
this module serves until its stdin closes.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from contextvars import copy_context
from functools import cache
from typing import NamedTuple, TypeVar

from rlfocal.base.errors import RunError

T = TypeVar("T")
SERVER_ENVIRONMENT = {
    "PREFECT_UI_ENABLED": "0",
    "PREFECT_SERVER_LOGGING_LEVEL": "CRITICAL",  # it tries again what a busy SQLite refused
    "PREFECT__SERVER_EPHEMERAL": "1",
    "PREFECT__SERVER_FINAL": "1",
}
SECONDS_TO_END = 2.0
UNREACHABLE = "Failed to reach API"
"""What Prefect's RuntimeError begins with if a server does not answer."""


@contextmanager
def prefect_server() -> Iterator[None]:
    """Gives the flows in a block a server: the one that PREFECT_API_URL names, else a temporary one.

    Raises RunError if the named server cannot be reached, or the temporary one does not start.
    """
    from prefect.settings import PREFECT_API_URL, temporary_settings

    if named := PREFECT_API_URL.value():
        try:
            yield
        except RuntimeError as error:
            if not str(error).startswith(UNREACHABLE):
                raise
            raise RunError(
                f"the Prefect server at PREFECT_API_URL={named} cannot be reached; start it (`prefect server "
                "start`), or unset PREFECT_API_URL to run without it"
            ) from error
    else:
        with temporary_settings({PREFECT_API_URL: _start_temporary().api_url}):
            yield


class _TemporaryServer(NamedTuple):
    process: subprocess.Popen[str]
    """The server's process, which ends when its stdin closes."""
    api_url: str


@cache
def _start_temporary() -> _TemporaryServer:
    """This process's only temporary server; it stays to the end, because Prefect sends it events then."""
    from prefect.settings import get_current_settings

    settings = get_current_settings().to_environment_variables(exclude_unset=True)
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", __name__],  # -P: a folder `flows` where the user stands is another
        env={**os.environ, **settings, **SERVER_ENVIRONMENT},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C on the terminal is for its owner
        text=True,
    )
    assert process.stdout is not None
    port = process.stdout.readline().strip()
    if not port:
        raise RunError(f"Prefect's temporary server ended with exit code {process.wait()} as it started")
    return _TemporaryServer(process, f"http://127.0.0.1:{port}/api")


def run_in_thread(call: Callable[[], T]) -> T:
    """Calls a function in a thread, and returns or raises what it does; Ctrl-C ends the wait at once.

    `call` then goes on until the process ends. On the main thread, Prefect would take SIGTERM for itself, and
    wait for every model's process after Ctrl-C.
    """
    result: Future[T] = Future()
    context = copy_context()

    def work() -> None:
        try:
            result.set_result(context.run(call))
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return result.result()


def main() -> None:
    """Serves Prefect's API on a free port, and prints the port's number."""
    threading.Thread(target=_end_with_stdin, daemon=True).start()  # before the long imports
    import uvicorn

    listener = socket.create_server(("127.0.0.1", 0))

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            with suppress(BrokenPipeError):  # its owner has died
                os.write(1, b"%d\n" % listener.getsockname()[1])
            os.dup2(2, 1)  # nobody reads on

    app = "prefect.server.api.server:create_app"
    Server(uvicorn.Config(app, factory=True, lifespan="on", log_level="error")).run([listener])


def _end_with_stdin() -> None:
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)  # once it serves, uvicorn stops in order
    time.sleep(SECONDS_TO_END)
    os._exit(1)


if __name__ == "__main__":
    main()
