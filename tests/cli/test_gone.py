"""What earlier versions had and this one has not: refused in one sentence, and shown where it is stored."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.cli import Cli
from support.report_lab import Lab

from rlfocal.base.gone import _REPLACEMENTS
from rlfocal.methods import entries

METHODS = [name.removeprefix("method ") for name in _REPLACEMENTS if name.startswith("method ")]
WORDS = [name.split() for name in _REPLACEMENTS if not name.startswith("method ")]


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_a_command_or_option_that_is_gone_says_what_takes_its_place(words: list[str], cli: Cli) -> None:
    refused = cli(*words, "--json", "anything")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err == f"error: {' '.join(words)} is gone: {_REPLACEMENTS[' '.join(words)]}\n"


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.usefixtures("toy")
def test_a_method_that_is_gone_says_what_takes_its_place(method: str, cli: Cli) -> None:
    assert method not in entries()
    for command in (
        ("evaluate", "-b", "toy", "--methods", f"plurality,{method}+task"),
        ("train", "-b", "toy", "--method", method),
        ("explain", "-b", "toy", "--method", method),
    ):
        refused = cli(*command)
        assert (refused.code, refused.out) == (2, "")
        assert refused.err == f"error: method {method} is gone: {_REPLACEMENTS[f'method {method}']}\n"


def test_stored_runs_of_methods_that_are_gone_are_shown(small_lab: Lab, cli: Cli) -> None:
    small_lab.evaluate("best_single", 12, 1)
    small_lab.evaluate("rl_focal", 14, 3, seed=0)
    for method in METHODS:
        small_lab.evaluate(method, 19, 2, seed=0)
    small_lab.warehouse.close()
    place = ("--warehouse", str(small_lab.warehouse.location.directory))
    shown = cli("report", *place)
    assert shown.code == 0, shown.err
    page = Path(shown.out.strip()).read_text("utf-8")
    for method in METHODS:
        assert method in page
    advised = cli("advise", "-b", "facts", *place)
    assert advised.code == 0, advised.err
