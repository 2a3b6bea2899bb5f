"""A message is one short line whatever it tells of, and its end, which says what to do, survives."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlfocal.base.errors import (
    MAX_MESSAGE_CHARACTERS,
    InputError,
    RunError,
    describe_error,
    escape_controls,
    explain_failure,
)


@given(st.text(), st.text(), st.integers(1, 200), st.sampled_from([InputError, RunError, ValueError]))
def test_one_short_line_of_anything(start: str, repeated: str, times: int, kind: type[Exception]) -> None:
    told = describe_error(kind(start + repeated * times))
    assert told.isprintable()
    assert len(told) <= MAX_MESSAGE_CHARACTERS


@pytest.mark.parametrize("value", ["x" * 5000, "x " * 2500, "/".join(["folder"] * 900), "ab" * 60])
def test_the_place_and_the_fix_survive(value: str) -> None:
    start, end = "pools/mine.yaml: model ", " has no weights; save them there with save_pretrained"
    told = describe_error(InputError(f"{start}{value!r}{end}"))
    assert told.startswith(f"{start}'")
    assert told.endswith(end)
    assert (value in told) == (len(value) < 200)


def test_names_stay_on_one_line() -> None:
    assert escape_controls("a\nb\x1b[2J\ud800é") == "a\\nb\\x1b[2J\\ud800é"
    assert describe_error(InputError("there is no file a\nb")) == "there is no file a\\nb"
    assert describe_error(ValueError("no such\n  file")) == "ValueError: no such file"


def test_an_os_error_names_the_path_that_was_given() -> None:
    error = OSError(36, "File name too long", "x" * 5000)
    assert describe_error(explain_failure(error) or error).startswith("'xxx")
    assert describe_error(explain_failure(error) or error).endswith(
        "': File name too long; give another path"
    )
    full = explain_failure(OSError(28, "No space left on device", "x"))
    assert isinstance(full, RunError)
    assert "'x'" in str(full)
    assert explain_failure(OSError("said by hand")) is None


def test_a_folder_that_is_gone_is_named(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    command = "import os; os.rmdir(os.getcwd()); from rlfocal.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", command, "sql", "SELECT 1"], cwd=gone, capture_output=True)
    assert done.returncode == 2
    assert done.stderr == b"error: the folder that you are in no longer exists; cd into another\n"
    assert explain_failure(ValueError("x")) is None


@pytest.mark.parametrize("message", ["bad token hf_abcdefghijKLMNOP", "https://user:planted-secret@hub/x"])
def test_reasons_are_one_line_without_secrets(monkeypatch: pytest.MonkeyPatch, message: str) -> None:
    monkeypatch.setenv("HF_TOKEN", "planted-secret")
    told = describe_error(OSError(f"{message}\n  see\n{'x ' * 400}"))
    assert told.startswith("OSError: ")
    assert len(told) <= 300
    assert not any(secret in told for secret in ("\n", "hf_abc", "planted"))
