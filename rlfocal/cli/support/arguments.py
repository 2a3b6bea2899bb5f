"""The command line's arguments: wrong ones raise InputError, as wrong files do."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

import typer
from typer.exceptions import TyperException

from rlfocal.base.errors import InputError


def run(app: typer.Typer, name: str = "rlfocal") -> NoReturn:
    """Does what the arguments ask for, then exits. Raises InputError if they are wrong."""
    _check_text()
    try:
        code = app(prog_name=name, standalone_mode=False)
    except TyperException as error:
        message = error.format_message().rstrip(".")
        if not message:  # there were no arguments, and the help is printed
            sys.exit(error.exit_code)
        context = getattr(error, "ctx", None)
        command = context.command_path if context else name
        raise InputError(f"{message}; `{command} --help` shows how") from error
    sys.exit(code if isinstance(code, int) else 0)


def _check_text() -> None:
    """Raises InputError for arguments that are not UTF-8: a table cannot hold them."""
    given = {f"argument {i}": word for i, word in enumerate(sys.argv[1:], 1)}
    given |= {name: value for name, value in os.environ.items() if name.startswith("RLFOCAL_")}
    for place, word in given.items():
        try:
            word.encode()
        except UnicodeEncodeError:
            raise InputError(f"{place}, {word!r}, is not valid UTF-8; rename what it refers to") from None
