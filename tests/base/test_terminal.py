"""What a person at a terminal sees: completion, help, progress, and tables that fit 80 columns."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from rlfocal.cli import main
from rlfocal.cli.app import app
from rlfocal.cli.pools import _weights
from rlfocal.cli.support.progress import IN_ALL, progress_bars, with_total
from rlfocal.pool import load_pool
from warehouse import Warehouse, open_warehouse
from warehouse.scripts import defined

Complete = Callable[..., list[str]]


@pytest.fixture
def complete(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Complete:
    """What bash would offer for the last of the words."""

    def offered(*words: str, cwd: Path) -> list[str]:
        shell = {"_RLFOCAL_COMPLETE": "complete_bash", "COMP_CWORD": str(len(words) - 1)}
        for name, value in (shell | {"COMP_WORDS": " ".join(words)}).items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("RLFOCAL_WAREHOUSE", raising=False)
        monkeypatch.chdir(cwd)
        monkeypatch.setattr(sys, "argv", ["rlfocal"])
        with pytest.raises(SystemExit) as stop:
            main()
        told = capsys.readouterr()
        assert (stop.value.code, told.err) == (0, "")
        return told.out.split()

    return offered


def files(folder: Path) -> list[Path]:
    """All but those that SQLite keeps beside a catalogue that is read."""
    return sorted(path for path in folder.rglob("*") if not path.name.startswith("catalog.sqlite-"))


@pytest.fixture(scope="module")
def here(empty_warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a warehouse in its usual place and a pool of its own."""
    folder = tmp_path_factory.mktemp("here")
    shutil.copytree(empty_warehouse, folder / ".rlfocal" / "warehouse")
    rows: dict[str, list[object]] = {
        "benchmark": ["toys", "tools"],
        "task": ["t", "t"],
        "model": ["ada", "bert"],
    }
    rows |= {"extraction_id": ["1", "2"], "n_docs": [0, 0]}
    with open_warehouse(folder / ".rlfocal" / "warehouse") as opened, opened.transaction("fill"):
        opened.append("extractions", pa.table(rows))
    (folder / "pools").mkdir()
    (folder / "pools" / "mine.yaml").write_text(
        "name: mine\nbenchmarks: [lab-mmlu, lab-musr]\n"
        "models: [{model: emil, hf_repo: a/b, params_b: 1}, {model: emma, hf_repo: a/c, params_b: 1}]\n"
    )
    return folder


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["extract", "--pool", "mi"], ["mine"]),
        (["add-model", "s"], ["small"]),
        (["regenerate", "--pool", "mine", "--models", "em"], ["emil", "emma"]),
        (["regenerate", "--pool", "mine", "--models", "emil,em"], ["emil,emma"]),
        (["plan", "--pool", "mine", "--benchmarks", "lab-mu"], ["lab-musr"]),
        (["train", "--benchmark", "to"], ["tools", "toys"]),
        (["evaluate", "-b", "toys", "--models", "a"], ["ada"]),
        (["remove-model", "mine", "em"], ["emil", "emma"]),
        (["study", "window", "--benchmark", "toy"], ["toys"]),
        (["datasets", "mirror", "x", "--benchmarks", "gsm"], ["gsm8k", "gsm8k@chat"]),
        (["extract", "--pool", "nowhere", "--models", "em"], []),
        (["train", "--warehouse", "nowhere", "--benchmark", "to"], []),
        (["train", "--warehouse", "pools", "--benchmark", "to"], []),
    ],
    ids=" ".join,
)
def test_names_are_completed(here: Path, complete: Complete, words: list[str], offered: list[str]) -> None:
    before = files(here)
    assert complete("rlfocal", *words, cwd=here) == offered
    assert files(here) == before


def test_a_broken_catalogue_completes_nothing(complete: Complete, tmp_path: Path) -> None:
    (tmp_path / ".rlfocal" / "warehouse").mkdir(parents=True)
    (tmp_path / ".rlfocal" / "warehouse" / "catalog.sqlite").write_bytes(b"no database" * 100)
    assert complete("rlfocal", "train", "--benchmark", "t", cwd=tmp_path) == []
    (tmp_path / "pools").mkdir()
    (tmp_path / "pools" / "bad.yaml").write_text("{")
    assert complete("rlfocal", "plan", "--pool", "bad", "--models", "e", cwd=tmp_path) == []


def test_help_of_sql_lists_all_there_is(warehouse: Warehouse) -> None:
    tables = warehouse.rows("SELECT table_name FROM duckdb_tables() WHERE database_name = 'warehouse'")
    views = warehouse.rows(
        "SELECT view_name FROM duckdb_views() WHERE database_name = 'warehouse' AND NOT internal"
    )
    macros = warehouse.rows(
        "SELECT function_name, function_type, parameters FROM duckdb_functions() "
        "WHERE database_name = 'warehouse' AND NOT internal"
    )
    found = defined()
    named = {
        kind: {d.name for d in found if d.kind == kind} for kind in ("table", "view", "macro", "function")
    }
    assert named["table"] == {name for (name,) in tables}
    assert named["view"] == {name for (name,) in views}
    assert named["macro"] == {name for name, kind, _ in macros if kind == "table_macro"}
    assert named["function"] == {name for name, kind, _ in macros if kind == "macro"}
    parameters = {name: given for name, _, given in macros}
    for definition in found:
        if definition.parameters:
            words = definition.parameters.strip("()").split(", ")
            assert [word.split(" ")[0] for word in words if word] == parameters[definition.name]
    shown = CliRunner().invoke(app, ["sql", "--help"]).output
    text = " ".join(shown.split())
    assert all(definition.name in text for definition in found)
    assert (
        "all_pools(benchmark, max_size, task := '*', split := '*', models := '*', snapshot := 'now')" in text
    )


@pytest.mark.parametrize("pool", ["lab", "small", "paper"])
def test_a_plan_fits_80_columns_with_whole_names(pool: str, tmp_path: Path) -> None:
    ran = CliRunner(env={"COLUMNS": "80"}).invoke(
        app, ["plan", "--pool", pool, "--warehouse", str(tmp_path / "w")]
    )
    assert ran.exit_code == 0, ran.output
    assert max(map(len, ran.output.splitlines())) <= 80
    assert "…" not in ran.output
    first = [line.split(" ")[0] for line in ran.output.splitlines()]
    assert {model.model for model in load_pool(pool).models} <= set(first)


def test_one_bar_shows_the_share_done() -> None:
    pool = load_pool("lab")
    weights = _weights(pool)
    assert set(weights) == {
        *(f"extract {model.model}" for model in pool.models),
        *(f"{b.name} {method}" for b in pool.benchmarks for method in ("rl_focal", "rl_focal_sequential")),
    }
    heard: list[tuple[str, float]] = []
    tell = with_total(lambda title, share: heard.append((title, share)), weights)
    for title in weights:
        for share in (0.5, 1.0, 0.0):  # a second try starts anew, and time left must not grow
            tell(title, share)
    tell("something else", 0.3)
    total = [share for title, share in heard if title == IN_ALL]
    assert total[0] == 0.0
    assert total == sorted(total)
    assert total[-1] == pytest.approx(1.0)
    large = _weights(load_pool("paper"))
    trained = sum(weight for title, weight in large.items() if " rl_focal" in title)
    assert trained < 0.1 * sum(large.values()), "hours of extraction, minutes of training"


def test_the_whole_is_never_done_before_the_command_is(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bars() as on_progress:
        tell = with_total(on_progress, {"extract m": 1.0})
        tell("extract m", 1.0)
        tell("report", 1.0)
    assert capsys.readouterr().err.splitlines() == ["extract m: done", "report: done"]


@pytest.mark.slow
def test_imports_report_and_doctor_tell_how_far_they_are(tmp_path: Path) -> None:
    docs, scores = tmp_path / "docs.csv", tmp_path / "scores.jsonl"
    docs.write_text("benchmark,task,doc_id,label\n" + "".join(f"b,t,{i},{i % 2}\n" for i in range(20)))
    scores.write_text(
        "".join(
            f'{{"benchmark": "b", "task": "t", "doc_id": {i}, "model": "m", "choice_logprobs": [-1, -2]}}\n'
            for i in range(20)
        )
    )
    place = ["--warehouse", str(tmp_path / "warehouse")]
    run = CliRunner().invoke
    given = ["import", "predictions", "--docs", str(docs), "--scores", str(scores)]
    assert run(app, [*given, *place]).stderr.splitlines() == ["read: done", "write: done"]
    assert "files read: done" in run(app, ["doctor", *place]).stderr
    run(app, ["evaluate", "-b", "b", "--methods", "best_single,plurality", *place])
    report = ["report", "-o", str(tmp_path / "report.html"), *place]
    assert run(app, report).stderr == "report: done\n"
    assert run(app, report).stderr == "", "it is there already"
    page = tmp_path / "report.html"
    before = page.stat().st_mtime_ns
    assert run(app, [*report, "--force"]).stderr == "report: done\n"
    assert page.stat().st_mtime_ns > before


@pytest.mark.parametrize("package", ["rlfocal", "warehouse", "flows"])
def test_packages_say_that_they_are_typed(package: str) -> None:
    assert (Path(__file__).resolve().parents[2] / package / "py.typed").is_file()
