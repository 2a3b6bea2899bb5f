"""Arguments that no command can use: exit code 2, one short line on stderr, and nothing written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.cli import Cli

VALUES = {
    "a long file": "x" * 5000 + ".yaml",
    "two lines": "a\nb",
    "half a surrogate pair": "a\udce9.yaml",
    "an unknown user": "~nosuchuser/w",
}
COMMANDS = [
    ["import", "predictions", "--docs", "?", "--scores", "s.jsonl"],
    ["import", "lm-eval", "?"],
    ["sql", "?"],
    ["sql", "SELECT 1", "--warehouse", "?"],
    ["evaluate", "--benchmark", "?"],
    ["correct-labels", "?"],
    ["audit-labels", "--benchmark", "?"],
    ["add-model", "lab", "?"],
    ["extract", "--pool", "lab", "--datasets", "?"],
    ["export", "?/x"],
    ["?"],
    ["sql", "--?"],
]


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_they_end_in_one_line(cli: Cli, tmp_path: Path, command: list[str], value: str) -> None:
    result = cli(*(word.replace("?", VALUES[value]) for word in command))
    assert result.code == 2, result
    [line] = result.err.splitlines()
    assert line.startswith("error: ")
    assert line.isprintable()
    assert len(line) <= len("error: ") + 300
    assert "Error: " not in line.removeprefix("error: SQL: Parser Error: "), "a Python exception's name"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "command",
    [
        ["evaluate", "-b", "lab-mmlu", "--benchmark", "lab-bbh"],
        ["sql", "SELECT 1", "--format=csv", "--format", "json"],
    ],
    ids=" ".join,
)
def test_of_an_option_given_twice_neither_is_taken(cli: Cli, tmp_path: Path, command: list[str]) -> None:
    result = cli(*command)
    assert result.code == 2, result
    assert "it is given twice" in result.err
    assert not list(tmp_path.iterdir())


def test_settings_and_flags_may_be_given_twice(cli: Cli) -> None:
    again = cli("evaluate", "-b", "x", "--set", "knn.k=1", "--set", "knn.metric=cosine", "--json", "--json")
    assert "there is no warehouse" in again.err


@pytest.mark.usefixtures("toy")
def test_of_lists_given_twice_all_values_count(cli: Cli) -> None:
    found = cli(
        *("evaluate", "-b", "toy", "--methods", "soft_vote", "--method=plurality,best_single", "--json"),
        *("--models", "weak", "--models", "strong"),
    )
    rows = json.loads(found.out)
    assert {row["method"] for row in rows} == {"soft_vote", "plurality", "best_single"}
    assert rows[0]["models"] == ["strong", "weak"]


def test_a_variable_that_is_no_text(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLFOCAL_WAREHOUSE", "w\udce9")
    result = cli("sql", "SELECT 1")
    assert result.code == 2
    assert result.err.startswith("error: RLFOCAL_WAREHOUSE")
