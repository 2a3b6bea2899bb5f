"""What `evaluate` prints at its end: the one table, and with `--all` what it rests on."""

from __future__ import annotations

import pytest
from support.cli import Cli, Result


def test_evaluate_ends_with_the_one_table(cli: Cli, toy: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    assert toy.code == 0
    monkeypatch.setenv("COLUMNS", "80")
    methods = ("--methods", "best_single,plurality,best_plurality,best_plurality:2,soft_vote,oracle")
    short = cli("evaluate", "-b", "toy", "--methods", "best_single,plurality")
    assert short.code == 0, short.err
    lines = short.out.splitlines()
    assert lines[0].split() == [
        "benchmark",
        "acc",
        "%",
        "asked",
        "¢/1k",
        "method",
        "against",
        "the",
        "best",
        "rival",
    ]
    assert [line[line.index("– ") + 2 :].split()[0] for line in lines[1:3]] == ["best_single", "plurality"]
    assert lines[1].endswith("best; RL-Focal was not evaluated")
    assert max(map(len, lines)) <= 80
    assert len(lines) < 12
    assert "±seeds" not in short.out
    whole = cli("evaluate", "-b", "toy", *methods, "--all").out
    assert "±seeds" in whole
    assert whole.index("±seeds") < whole.index("against the best rival")
    assert "RL-Focal was not evaluated" in whole
