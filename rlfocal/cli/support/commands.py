"""The registry of commands: modules of `rlfocal/cli/` register theirs, and `run` runs one."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pkgutil import walk_packages
from typing import Any, Literal, NoReturn, TypeVar, get_args

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption
from typer.exceptions import TyperException

from rlfocal.base.errors import InputError
from rlfocal.base.names import refuse_gone_words
from rlfocal.base.options import split

Panel = Literal["Run a pool of LLMs", "Learn and compare", "Data in and out", "Keep a warehouse"]
"""The headings of `rlfocal --help`, in the order in which they are shown."""

AUTO_VALUE = "auto"
"""The value of `--probe` if no number follows it."""
Function = TypeVar("Function", bound=Callable[..., Any])


class Command(TyperCommand):
    """A command that refuses an option given twice, of which the parser would silently take the last.

    An option that takes `a,b` may be repeated. Flags have no opposite: `--force` comes without `--no-force`.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for parameter in self.params:
            parameter.secondary_opts = []

    def make_parser(self, ctx: Any) -> Any:
        listed = list(filter(_is_listed, self.params))
        for option in listed:  # while it is made, so that it gathers their values; `split` takes them all
            option.multiple = True
        parser = super().make_parser(ctx)
        for option in listed:
            option.multiple = False
        return parser

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if any("--probe" in parameter.opts for parameter in self.params):
            args = _with_numbers(args)
        _, _, given = self.make_parser(ctx).parse_args(list(args))
        for option in given:
            if not isinstance(option, TyperOption) or option.multiple or option.is_flag or _is_listed(option):
                continue
            if given.count(option) > 1:
                raise typer.BadParameter("it is given twice", ctx, option)
        return super().parse_args(ctx, args)


def _with_numbers(args: list[str]) -> list[str]:
    """The arguments, with `auto` after each `--probe` without a number, which Typer cannot express."""
    following = [*args[1:], ""]
    return [
        f"{word}={AUTO_VALUE}" if word == "--probe" and not after[:1].isdigit() else word
        for word, after in zip(args, following, strict=False)
    ]


def _is_listed(parameter: Any) -> bool:
    return isinstance(parameter, TyperOption) and parameter.type_descriptor.parameter_info.parser is split


class Commands(typer.Typer):
    """A Typer whose commands are of the class `Command`."""

    def command(self, *args: Any, cls: type[Any] | None = None, **options: Any) -> Any:
        return super().command(*args, cls=cls or Command, **options)


@dataclass(frozen=True)
class _Entry:
    name: str
    panel: Panel
    function: Callable[..., None] | typer.Typer
    """The command's function; for a group of commands, its Typer."""
    cls: type[Any] | None = None


_COMMANDS: list[_Entry] = []


def command(name: str, panel: Panel, cls: type[Any] | None = None) -> Callable[[Function], Function]:
    """Registers the decorated function as `rlfocal NAME`."""

    def enter(function: Function) -> Function:
        _COMMANDS.append(_Entry(name, panel, function, cls))
        return function

    return enter


def group(
    name: str, panel: Panel, help: str, *, module: str | None = None, cls: type[TyperGroup] = TyperGroup
) -> typer.Typer:
    """Registers a group of commands as `rlfocal NAME ...`.

    `module`: the module that adds commands to it, imported only when one of them is called.
    """

    class Group(cls):  # type: ignore[valid-type, misc]
        def make_context(self, *args: Any, **options: Any) -> Any:
            if module is not None:
                import_module(module)
                for name, command in vars(typer.main.get_command(made))["commands"].items():
                    self.add_command(command, name)
            return super().make_context(*args, **options)

    made = Commands(cls=Group, help=help, no_args_is_help=True, rich_markup_mode="markdown")
    made.callback()(lambda: None)
    _COMMANDS.append(_Entry(name, panel, made))
    return made


def add_all(app: typer.Typer, package: str, path: list[str]) -> None:
    """Adds the commands that all modules of a package register to the app; modules named `_...` are left
    out."""
    for module in walk_packages(path, f"{package}."):
        if not any(part.startswith("_") for part in module.name.split(".")):
            import_module(module.name)
    for entered in sorted(_COMMANDS, key=lambda entered: get_args(Panel).index(entered.panel)):
        if isinstance(entered.function, typer.Typer):
            app.add_typer(entered.function, name=entered.name, rich_help_panel=entered.panel)
        else:
            app.command(entered.name, cls=entered.cls, rich_help_panel=entered.panel)(entered.function)


def run(app: typer.Typer, name: str = "rlfocal") -> NoReturn:
    """Runs the command that the arguments name, then exits. Raises InputError if the arguments are wrong."""
    _check_text()
    try:
        code = app(prog_name=name, standalone_mode=False)
    except TyperException as error:
        message = error.format_message().rstrip(".")
        if not message:  # there were no arguments, and the help is printed
            sys.exit(error.exit_code)
        refuse_gone_words(sys.argv[1:])
        if isinstance(error.__cause__, ValueError) and hasattr(error.__cause__, "errors"):  # pydantic's
            message += f", got {error.__cause__.errors()[0]['input']!r}"
        context = getattr(error, "ctx", None)
        command = context.command_path if context else name
        raise InputError(f"{message}; `{command} --help` shows how") from error
    sys.exit(code if isinstance(code, int) else 0)


def _check_text() -> None:
    """Raises InputError for arguments and variables that are not UTF-8, because a table cannot hold them."""
    given = {f"argument {i}": word for i, word in enumerate(sys.argv[1:], 1)}
    given |= {name: value for name, value in os.environ.items() if name.startswith("RLFOCAL_")}
    for place, word in given.items():
        try:
            word.encode()
        except UnicodeEncodeError:
            raise InputError(f"{place}, {word!r}, is not valid UTF-8; rename what it refers to") from None
