"""Setting up: uv looks where pip is told to look, and pip installs where uv cannot."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

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
    environment = runpy.run_path(str(SCRIPT))["uv_environment"]()
    expected = {
        "UV_DEFAULT_INDEX": "https://packages.example/simple",
        "UV_INDEX": "https://one.example https://two.example",
        "UV_FIND_LINKS": "/a,/b",
        "UV_INSECURE_HOST": "packages.example",
        "SSL_CERT_FILE": "/own.pem",
    }
    assert {name: environment.get(name) for name in expected} == expected
    assert "UV_NO_INDEX" not in environment


def test_an_audit_that_checks_nothing_fails() -> None:
    """Where the index has no records of vulnerabilities, pip-audit skips every package and finds none."""
    planned = subprocess.run(
        ["make", "--dry-run", "audit"], cwd=SCRIPT.parents[1], capture_output=True, text=True, check=True
    )
    assert "pip-audit --strict" in planned.stdout


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
