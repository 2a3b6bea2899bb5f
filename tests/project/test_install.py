"""Setting up: where packages are looked for, who installs them; the wheel needs no checkout."""

from __future__ import annotations

import json
import os
import runpy
import shlex
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from support.basics import run_python

SCRIPT = Path(__file__).parents[2] / "packaging" / "install.py"


def test_what_pip_is_told_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    told = tmp_path / "pip.conf"
    told.write_text(
        "[global]\nindex-url = https://packages.example/simple\ncert = /ca.pem\ntimeout = 9\n"
        "find-links =\n  /a\n  /b\n[install]\ntrusted-host = packages.example\n[freeze]\nno-index = true\n"
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(told))
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "https://one.example https://two.example")
    monkeypatch.setenv("SSL_CERT_FILE", "/own.pem")
    script = runpy.run_path(str(SCRIPT))
    environment = script["uv_environment"]()
    expected = {
        "UV_DEFAULT_INDEX": "https://packages.example/simple",
        "UV_INDEX": "https://one.example https://two.example",
        "UV_FIND_LINKS": "/a,/b",
        "UV_INSECURE_HOST": "packages.example",
        "SSL_CERT_FILE": "/own.pem",
    }
    assert {name: environment.get(name) for name in expected} == expected
    assert "UV_NO_INDEX" not in environment
    assert script["ways"](environment) == [[]]  # what it was told of has torch
    assert script["ways"]({"SSL_CERT_FILE": "/own.pem"}) == [["--torch-backend=auto"], []]


def test_the_shell_has_duckdbs_version() -> None:
    """It loads the extensions of its own version only, and those are packaged for that of duckdb."""
    extras = tomllib.loads((SCRIPT.parents[1] / "pyproject.toml").read_text("utf-8"))["project"]
    assert extras["optional-dependencies"]["shell"] == [f"duckdb-cli=={version('duckdb-extension-ducklake')}"]
    assert version("duckdb-extension-ducklake") == version("duckdb")


@pytest.mark.slow
def test_pip_installs_what_uv_cannot() -> None:
    pytest.importorskip("uv")
    wrong = os.environ | {"UV_CONSTRAINT": "/no/such/file"}
    done = subprocess.run(
        [sys.executable, SCRIPT, "packaging"], env=wrong, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "uv could not install this; trying pip" in done.stderr


SMALL = "--pool lab --models lab-llama-small,lab-gemma-small --benchmarks lab-mmlu --limit 20"
COMMANDS = f"""
plan {SMALL}
regenerate {SMALL} --seeds 1
regenerate {SMALL} --seeds 1
train -b lab-mmlu --method rl_focal_sequential --seeds 1
evaluate -b lab-mmlu --methods knn,stacking,rl_focal --budgets 1,2 --seeds 1
report --force
doctor
export exported
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory in which all commands run, one after the other."""
    return tmp_path_factory.mktemp("elsewhere")


def run(command: str, wheel: dict[str, str], folder: Path) -> str:
    program = "from rlfocal.cli import main; main()"
    return run_python("-c", program, *shlex.split(command), env=wheel, cwd=folder)


@pytest.mark.slow
def test_every_command_runs_from_the_wheel_in_an_empty_directory(wheel: dict[str, str], folder: Path) -> None:
    where = "import rlfocal, warehouse, flows; print(rlfocal.__file__, warehouse.__file__, flows.__file__)"
    assert str(SCRIPT.parents[1]) not in run_python("-c", where, env=wheel, cwd=folder)
    printed = [run(command, wheel, folder) for command in COMMANDS.strip().splitlines()]
    assert "rl_focal_sequential" in printed[1]
    assert "nothing was extracted" in printed[2]
    assert (folder / ".rlfocal" / "report.html").stat().st_size > 10_000
    rows = run("sql --format json 'SELECT count(*) AS n FROM extractions'", wheel, folder)
    assert json.loads(rows) == [{"n": 12}]
