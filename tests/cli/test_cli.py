"""The command line as a user meets it: exit codes, messages, and nothing written on bad input."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from support.basics import run_python
from support.cli import Cli, Result

from flows import report_path


def test_import_evaluate_sql_and_report_work_together(toy: Result, cli: Cli) -> None:
    assert toy.code == 0, toy.err
    result = cli("evaluate", "--benchmark", "toy", "--methods", "best_single,plurality,oracle", "--json")
    assert result.code == 0, result.err
    rows = {row["method"]: row for row in json.loads(result.out) if row["task"] == "*"}
    assert rows["best_single"]["n"] == 10
    assert rows["oracle"]["accuracy"] >= rows["best_single"]["accuracy"]
    again = cli("evaluate", "--benchmark", "toy", "--methods", "best_single,plurality,oracle")
    assert "best_single" in again.out
    counted = cli("sql", "SELECT count(*) AS runs FROM evaluations WHERE task = '*'", "--format", "csv")
    assert counted.out.split() == ["runs", "3"]
    written = cli("report")
    assert written.code == 0
    assert Path(written.out.strip()).read_text().lstrip().startswith("<!doctype html>")


def test_each_warehouse_has_a_report_of_its_own(
    cli: Cli, toy: Result, fresh: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside the warehouse; the default one's, and that which the environment makes the default, is here."""
    assert toy.code == 0
    first = Path(cli("report").out.strip())
    kept = first.read_bytes()
    assert first == Path(".rlfocal/report.html")
    places = [Path("other"), Path(".rlfocal/other"), Path("deep/er/lake").absolute()]
    paths = [report_path(str(place)).absolute() for place in places]
    assert [path.parent for path in paths] == [place.absolute().parent for place in places]
    assert len({first.absolute(), *paths}) == 4
    fresh(places[0])
    assert Path(cli("report", "-w", "other").out.strip()).absolute() == paths[0]
    assert paths[0].exists()
    assert first.read_bytes() == kept
    monkeypatch.setenv("RLFOCAL_WAREHOUSE", "other")
    assert report_path("other") == first
    assert report_path(".rlfocal/warehouse") != first
    assert report_path("postgresql://me@host/db").is_absolute()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["extract", "--pool", "labb"], "unknown pool 'labb'; did you mean 'lab'"),
        (["extract", "--pool", "lab", "--models", "lab-lama"], "unknown model 'lab-lama' in pool 'lab'"),
        (["extract", "--pool", "lab", "--backend", "vlm"], "'vlm' is not one of"),
        (["extract", "--pool", "lab", "--models", ""], "--models is empty"),
        (["regenerate", "--pool", "lab", "--benchmarks", " , "], "--benchmarks is empty"),
        (["extract", "--pool", "nowhere.yaml"], "pool file 'nowhere.yaml' does not exist"),
        (["add-model", "lab", "nowhere.yaml"], "model entry 'nowhere.yaml' does not exist"),
        (["evaluate", "--benchmark", "mmlu"], "no warehouse"),
        (["train", "--benchmark", "mmlu"], "no warehouse"),
        (["report"], "no warehouse"),
        (["sql", "SELECT 1"], "no warehouse"),
        (["import", "predictions", "--docs", "no.parquet", "--scores", "no.parquet"], "no.parquet"),
    ],
)
def test_bad_input_without_a_warehouse(cli: Cli, tmp_path: Path, arguments: list[str], message: str) -> None:
    result = cli(*arguments)
    assert result.code == 2
    assert message in result.err
    assert "Traceback" not in result.err
    assert not list(tmp_path.iterdir()), "bad input left something behind"


WRONG = (
    (["evaluate", "--benchmark", "toys"], "unknown benchmark 'toys' in the warehouse; did you mean 'toy'"),
    (["evaluate", "--benchmark", "toy", "--methods", "pluralty"], "did you mean 'plurality'"),
    (["train", "--benchmark", "toy", "--method", "rl_focl"], "did you mean 'rl_focal'"),
    (["evaluate", "--benchmark", "toy", "--protocol", "onlin"], "protocol"),
    (["evaluate", "--benchmark", "toy", "--snapshot", "999"], "no snapshot 999"),
    (["sql", "DROP TABLE docs"], "DROP is refused"),
    (["sql", "SELEC 1"], "SELEC"),
)


def test_bad_input_with_a_warehouse(toy: Result, cli: Cli) -> None:
    before = cli("sql", "SELECT max(snapshot_id) FROM warehouse.snapshots()", "--format", "csv").out
    for arguments, message in WRONG:
        result = cli(*arguments)
        assert result.code == 2, result
        assert message in result.err
        assert "Traceback" not in result.err
    assert cli("sql", "SELECT max(snapshot_id) FROM warehouse.snapshots()", "--format", "csv").out == before


def test_an_unusable_path_is_bad_input(toy: Result, cli: Cli, tmp_path: Path) -> None:
    assert toy.code == 0, toy.err
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    for output in ("folder", "file/report.html"):
        result = cli("report", "-o", output)
        assert result.code == 2
        assert result.err.startswith("error: ")
        assert output.split("/")[0] in result.err


def test_other_errors_are_one_line_unless_debugged(
    toy: Result, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "planted-secret")

    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("planted-secret\n  by zero")

    monkeypatch.setattr("rlfocal.report.write_report", fail)
    result = cli("report")
    assert (result.code, result.err) == (
        1,
        "error: ZeroDivisionError: *** by zero\nrun with --debug for the traceback\n",
    )
    with pytest.raises(ZeroDivisionError):
        cli("report", "--debug")


def test_a_locale_without_our_signs_loses_no_result() -> None:
    """Tables have real minus signs and arrows, which ASCII does not have."""
    ascii_only = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    code = "from rlfocal.cli import run_guarded; run_guarded(lambda: print(chr(0x2212) + '8.3'))"
    assert run_python("-c", code, env=ascii_only) == "\\u22128.3\n"
