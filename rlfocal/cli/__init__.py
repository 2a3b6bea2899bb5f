"""The command line: its commands read arguments, call the library and print; none computes anything itself.

Ctrl-C, SIGTERM or SIGHUP end a command within seconds, with one line on stderr. Committed answers survive any
end, even a kill -9, and child processes end with the command. So the command has a moment to clean up, and
then ends, whatever still runs.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache
from types import FrameType

from rlfocal.base.errors import InputError, RunError, describe_error, explain_failure

SIGNALS = {
    signal.SIGINT: "interrupted",
    signal.SIGTERM: "terminated",
    signal.SIGHUP: "the terminal was closed",
}
RESUME_ADVICE = "what was committed is kept; run the same command again to continue"
SECONDS_TO_UNWIND = 3.0
CLEAN_LINE = "\r\x1b[K\x1b[?25h"  # on a terminal: no half of a progress bar, and the cursor shows


def main() -> None:
    """Runs the command `rlfocal`."""
    run_guarded(_run)


def _run() -> None:
    from rlfocal.cli.app import app
    from rlfocal.cli.support.commands import run

    run(app)


def run_guarded(command: Callable[[], object]) -> None:
    """Runs a command line, and exits: code 0 done, 1 failed, 2 bad input, 130 Ctrl-C, 143 SIGTERM.

    An error is printed as one line, and with --debug as a traceback.
    """
    debug = "--debug" in sys.argv
    sys.argv = [word for word in sys.argv if word != "--debug"]
    if isinstance(sys.stdout, io.TextIOWrapper):  # a locale without ↓ loses no result
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        with stopped_by_signals():
            command()
    except (InputError, RunError) as error:
        if debug:
            raise
        print(f"error: {describe_error(error)}", file=sys.stderr)
        for note in getattr(error, "__notes__", ()):
            print(f"  {describe_error(InputError(note))}", file=sys.stderr)
        sys.exit(2 if isinstance(error, InputError) else 1)
    except BrokenPipeError:  # `rlfocal sql ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except Exception as error:
        if debug:
            raise
        if (known := explain_failure(error)) is not None:
            print(f"error: {describe_error(known)}", file=sys.stderr)
            sys.exit(2 if isinstance(known, InputError) else 1)
        print(f"error: {describe_error(error)}\nrun with --debug for the traceback", file=sys.stderr)
        sys.exit(1)


@contextlib.contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Makes a signal end the process with exit code 128 plus its number; a second signal ends it at once.

    During the block, the first signal raises KeyboardInterrupt; after it, there is nothing to clean up. A
    signal that was ignored before (`nohup`) stays ignored.
    """
    stop = _stop()
    stop.listen()
    try:
        yield
    finally:
        stop.leave()


class _Stop:
    def __init__(self) -> None:
        self._signum: int | None = None
        self._inside = False
        self._ending = threading.Lock()
        # The main thread hears of a signal when its C call returns; a thread of our own hears at once.
        heard, wakes = socket.socketpair()
        wakes.setblocking(False)
        signal.set_wakeup_fd(wakes.detach())
        threading.Thread(target=self._enforce, args=(heard,), daemon=True).start()

    def listen(self) -> None:
        self._inside = True
        for signum in SIGNALS:
            if signal.getsignal(signum) is not signal.SIG_IGN:
                signal.signal(signum, self._hear)

    def leave(self) -> None:
        self._inside = False
        if self._signum is not None:  # whatever was made of the KeyboardInterrupt on its way
            self._end(self._signum)

    def _hear(self, signum: int, frame: FrameType | None) -> None:
        if self._signum is not None or not self._inside:
            self._end(signum)
        self._signum = signum
        sys.unraisablehook = self._stop_if_lost
        raise KeyboardInterrupt

    def _stop_if_lost(self, unraisable: sys.UnraisableHookArgs) -> None:
        """Ends the process if Python dropped the KeyboardInterrupt, as it does in a callback or a
        `__del__`."""
        if self._signum is not None and isinstance(unraisable.exc_value, KeyboardInterrupt):
            self._end(self._signum)

    def _enforce(self, heard: socket.socket) -> None:
        while (signum := heard.recv(1)[0]) not in SIGNALS:
            pass
        time.sleep(SECONDS_TO_UNWIND)
        self._end(signum)

    def _end(self, signum: int) -> None:
        """Ends the process with one line on stderr, without waiting for threads."""
        if self._ending.acquire(blocking=False):  # else the line is written already
            line = f"{SIGNALS[signal.Signals(signum)]}; {RESUME_ADVICE}\n"
            with contextlib.suppress(OSError):  # `print` could meet itself: this may run in a signal handler
                os.write(2, f"{CLEAN_LINE if os.isatty(2) else ''}{line}".encode())
        os._exit(128 + signum)


@cache
def _stop() -> _Stop:
    """The only handler of signals in this process."""
    return _Stop()
