"""The command line: its commands read arguments, call the library and print; none computes anything
itself."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from rlfocal.base.errors import InputError, RunError
from rlfocal.base.failures import describe_error, explain_failure
from rlfocal.cli.support.stopping import stopped_by_signals


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
