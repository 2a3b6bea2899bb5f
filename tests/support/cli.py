"""The command line in the process of a test, and a small import to try it on."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import duckdb
import pytest
from typer.testing import CliRunner

from rlfocal.cli import main


class Result(NamedTuple):
    code: int
    out: str
    err: str


Cli = Callable[..., Result]


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RLFOCAL_WAREHOUSE", raising=False)

    def run(*arguments: str, main: Callable[[], None] = main) -> Result:
        monkeypatch.setattr(sys, "argv", ["rlfocal", *arguments])
        capsys.readouterr()
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = int(stop.code or 0)
        return Result(code, *capsys.readouterr())

    return run


def write(path: Path, query: str) -> Path:
    duckdb.sql(f"COPY ({query}) TO '{path}' (FORMAT parquet)")
    return path


DOCS = """
    SELECT 'toy' AS benchmark, 't' AS task, i AS doc_id, i % 3 AS label, ['x', 'y', 'z'] AS choices
    FROM range(50) r(i)"""


SCORES = """
    SELECT 'toy' AS benchmark, 't' AS task, i AS doc_id, m AS model,
        [(CASE WHEN c = i % 3 THEN 1.0 ELSE 0.0 END) + ((i * 7 + c * 5) % k) / 4.0 FOR c IN [0, 1, 2]]
            AS choice_logprobs
    FROM range(50) r(i), (VALUES ('weak', 11), ('strong', 5), ('other', 9)) models(m, k)"""


@pytest.fixture(scope="session")
def imported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """A warehouse with the small import, to copy, and what the command said."""
    from rlfocal.cli.app import app

    folder = tmp_path_factory.mktemp("toy")
    docs, scores = write(folder / "docs.parquet", DOCS), write(folder / "scores.parquet", SCORES)
    command = ["import", "predictions", "--docs", str(docs), "--scores", str(scores)]
    found = CliRunner().invoke(app, [*command, "--warehouse", str(folder / "warehouse")])
    return folder / "warehouse", Result(found.exit_code, found.stdout, found.stderr)


@pytest.fixture
def toy(tmp_path: Path, imported: tuple[Path, Result]) -> Result:
    """The small import, in the usual place of a test's folder."""
    warehouse, result = imported
    shutil.copytree(warehouse, tmp_path / ".rlfocal" / "warehouse")
    return result
