"""What earlier versions had and this one has not: refused in one sentence, and shown where it is stored."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.cli import Cli
from support.report_lab import Lab

from rlfocal.base.names import _REPLACEMENTS
from rlfocal.methods import entries

METHODS = [name.removeprefix("method ") for name in _REPLACEMENTS if name.startswith("method ")]
WORDS = [name.split() for name in _REPLACEMENTS if not name.startswith("method ")]


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_a_command_or_option_that_is_gone_says_what_takes_its_place(words: list[str], cli: Cli) -> None:
    refused = cli(*words, "--json", "anything")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err == f"error: {' '.join(words)} is gone: {_REPLACEMENTS[' '.join(words)]}\n"


@pytest.mark.usefixtures("toy")
def test_a_method_that_is_gone_says_what_takes_its_place(cli: Cli) -> None:
    assert entries().keys().isdisjoint(METHODS)
    evaluate, one = ("evaluate", "-b", "toy", "--methods"), METHODS[0]
    for method, command in (
        *((method, (*evaluate, f"plurality,{method}+task")) for method in METHODS),
        (one, ("train", "-b", "toy", "--method", one)),
        (one, ("explain", "-b", "toy", "--method", one)),
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
