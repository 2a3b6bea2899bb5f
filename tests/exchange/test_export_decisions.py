"""Decisions without labels: canonical lines, and a hash that holds them."""

from __future__ import annotations

import json
import shutil
import subprocess
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from support.cli import Cli

from rlfocal.base.errors import InputError
from rlfocal.exchange.exports import canonical_json
from rlfocal.exchange.exports.decisions import export_decisions
from warehouse import Warehouse, open_warehouse

KEYS = [
    "answer", "benchmark", "doc_hash", "doc_id", "method", "models", "per", "probability", "protocol",
    "rounds", "seed", "task",
]  # fmt: skip


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse with two tasks of choices and runs of two methods, one of them with two seeds."""
    from support.cli import DOCS, SCORES
    from support.cli import write as write_table

    from rlfocal.evaluation import evaluate
    from rlfocal.exchange.imports.predictions import import_predictions

    folder = tmp_path_factory.mktemp("evaluated")
    parts = [
        f"({query.replace(chr(39) + 't' + chr(39) + ' AS task', repr(task) + ' AS task')})"
        for query in (DOCS, SCORES)
        for task in ("é", "B")
    ]
    docs = write_table(folder / "docs.parquet", " UNION ALL ".join(parts[:2]))
    scores = write_table(folder / "scores.parquet", " UNION ALL ".join(parts[2:]))
    with open_warehouse(folder / "w") as warehouse:
        import_predictions(warehouse, docs, scores)
        evaluate(warehouse, "toy", methods=["best_single", "random_select"], seeds=2)
    return folder / "w"


@pytest.fixture
def runs(evaluated: Path, tmp_path: Path) -> Any:
    shutil.copytree(evaluated, tmp_path / "w")
    with open_warehouse(tmp_path / "w") as opened:
        yield opened


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_lines_are_what_was_decided(runs: Warehouse, tmp_path: Path) -> None:
    report = export_decisions(runs, tmp_path / "out.jsonl", "toy")
    found = lines(report.path)
    assert report.n_lines == len(found) == 3 * 20
    assert (report.n_runs, report.snapshot) == (3, runs.snapshot())
    assert all(list(line) == KEYS for line in found)
    stored = runs.rows(
        "SELECT d.prediction::VARCHAR, d.task, d.doc_id, o.doc_hash, d.pool, e.method, e.seed "
        "FROM decisions AS d JOIN docs AS o USING (benchmark, task, doc_id) "
        "JOIN evaluations AS e ON e.run_id = d.run_id AND e.task = '*'"
    )
    names = ("answer", "task", "doc_id", "doc_hash", "models", "method", "seed")
    key = str
    assert sorted(([line[name] for name in names] for line in found), key=key) == sorted(
        map(list, stored), key=key
    )
    order = [
        (line["method"], -1 if line["seed"] is None else line["seed"], line["task"], line["doc_id"])
        for line in found
    ]
    assert order == sorted(order)
    assert {(line["benchmark"], line["per"], line["protocol"]) for line in found} == {
        ("toy", "benchmark", "frozen")
    }


def test_no_label_shows(runs: Warehouse, tmp_path: Path) -> None:
    """Another label changes no byte, so none tells anything of it."""
    export_decisions(runs, tmp_path / "before.jsonl", "toy")
    with runs.transaction("labels"):
        runs.connection.execute("UPDATE docs SET label = (label + 1) % 3, gold = 'x'")
        runs.connection.execute("UPDATE decisions SET correct = NOT correct, reward = -reward")
        runs.connection.execute("UPDATE evaluations SET accuracy = 1 - accuracy")
    export_decisions(runs, tmp_path / "after.jsonl", "toy")
    assert (tmp_path / "before.jsonl").read_bytes() == (tmp_path / "after.jsonl").read_bytes()


def test_equal_decisions_are_equal_bytes(runs: Warehouse, tmp_path: Path) -> None:
    first = export_decisions(runs, tmp_path / "first.jsonl", "toy")
    with runs.transaction("another order, other ids, other times"):
        runs.connection.execute("CREATE TEMP TABLE kept AS FROM decisions ORDER BY hash(doc_id)")
        runs.connection.execute("DELETE FROM decisions")
        runs.connection.execute("INSERT INTO decisions SELECT * REPLACE ('x' || run_id AS run_id) FROM kept")
        runs.connection.execute("UPDATE evaluations SET run_id = 'x' || run_id, created_at = now()")
    again = export_decisions(runs, tmp_path / "again.jsonl", "toy")
    assert again.sha256 == first.sha256 == sha256(first.path.read_bytes()).hexdigest()
    with runs.transaction("one answer"):
        runs.connection.execute(
            "UPDATE decisions SET prediction = '2' WHERE doc_id = 49 AND prediction <> '2'"
        )
    assert export_decisions(runs, tmp_path / "other.jsonl", "toy").sha256 != first.sha256


def test_what_is_asked_for(runs: Warehouse, tmp_path: Path) -> None:
    def exported(**asked: Any) -> set[tuple[str, int | None]]:
        (tmp_path / "out.jsonl").unlink(missing_ok=True)
        report = export_decisions(runs, tmp_path / "out.jsonl", "toy", **asked)
        return {(line["method"], line["seed"]) for line in lines(report.path)}

    assert exported(method="best_single") == {("best_single", None)}
    assert exported(seed=1) == {("best_single", None), ("random_select", 1)}
    assert exported(method="random_select", seed=0) == {("random_select", 0)}
    assert len(exported(models=["weak", "other", "strong"])) == 3


def test_refusals(runs: Warehouse, tmp_path: Path) -> None:
    from rlfocal.evaluation import evaluate

    target = tmp_path / "out.jsonl"
    for asked, reason in (
        ({"benchmark": "joy"}, "benchmark 'joy'"),
        ({"method": "best"}, "method 'best'"),
        ({"seed": 7, "method": "random_select"}, r"there are seeds \[0, 1\]"),
        ({"models": ["weak"]}, "--models other,strong,weak"),
        ({"protocol": "online"}, "no online run on toy; `rlfocal evaluate -b toy --protocol online`"),
    ):
        with pytest.raises(InputError, match=reason):
            export_decisions(runs, target, **{"benchmark": "toy", **asked})  # type: ignore[arg-type]
        assert sorted(path.name for path in tmp_path.iterdir()) == ["w"]
    evaluate(runs, "toy", methods=["best_single"], models=["weak", "other"])
    with pytest.raises(
        InputError, match="2 pools; name one: --models other,strong,weak or --models other,weak"
    ):
        export_decisions(runs, target, "toy")
    assert export_decisions(runs, target, "toy", models=["weak", "other"]).n_lines == 20
    with pytest.raises(InputError, match="exists; give a new file"):
        export_decisions(runs, target, "toy", models=["weak", "other"])


def test_an_earlier_snapshot(runs: Warehouse, tmp_path: Path) -> None:
    first = export_decisions(runs, tmp_path / "first.jsonl", "toy")
    snapshot = runs.snapshot()
    with runs.transaction("one answer"):
        runs.connection.execute("UPDATE decisions SET prediction = '0'")
    with open_warehouse(tmp_path / "w", read_only=True, snapshot=snapshot) as earlier:
        assert export_decisions(earlier, tmp_path / "again.jsonl", "toy").sha256 == first.sha256


def test_canonical_json() -> None:
    assert canonical_json({"b": None, "a": ["é", 1]}) == '{"a":["é",1],"b":null}\n'.encode()
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json({"a": float("nan")})


def test_the_command(cli: Cli, evaluated: Path, tmp_path: Path) -> None:
    shutil.copytree(evaluated, tmp_path / "w")
    done = cli("export", "decisions", "-b", "toy", "--out", "out.jsonl", "-w", "w")
    assert done.code == 0
    assert "60 decisions of 3 runs" in done.err
    assert done.out == f"{sha256(Path('out.jsonl').read_bytes()).hexdigest()}  out.jsonl\n"
    Path("SHA256SUMS").write_text(done.out)
    subprocess.run(["sha256sum", "-c", "SHA256SUMS"], check=True, capture_output=True)
    shown = json.loads(cli("export", "decisions", "-b", "toy", "--out", "b.jsonl", "-w", "w", "--json").out)
    assert (shown["n_lines"], shown["sha256"]) == (60, done.out.split()[0])
    assert cli("export", "decisions", "-b", "toy", "--out", "out.jsonl", "-w", "w").code == 2
    assert cli("export", "decisions", "-b", "toy", "--out", "new/x.jsonl", "-w", "w", "--seed", "9").code == 0
    refused = cli("export", "decisions", "-b", "toy", "--out", "out.jsonl/x", "-w", "w")
    assert (refused.code, "Traceback" in refused.err) == (2, False)
    assert "SHA-256" in cli("export", "decisions", "--help").out


@pytest.mark.parametrize(
    "arguments",
    [
        ("out",),
        ("--tables", "docs", "out"),
        ("tables", "--tables", "docs", "out"),
        ("out", "--format", "parquet", "--tables", "docs"),
        ("-w", "w", "--tables", "docs", "out"),
    ],
)
def test_export_of_a_folder_is_the_default(
    cli: Cli, evaluated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    shutil.copytree(evaluated, tmp_path / "w")
    monkeypatch.setenv("RLFOCAL_WAREHOUSE", str(tmp_path / "w"))
    done = cli("export", *arguments)
    assert done.code == 0
    assert (tmp_path / "out" / "docs").is_dir()


def test_exports_help(cli: Cli) -> None:
    shown = cli("export", "--help").out
    for name in ("tables", "every-eval-ever", "decisions"):
        assert name in shown
    assert "--format" in cli("export", "tables", "--help").out
    assert cli("export").code == 2
    assert cli("export", "--nonsense").code == 2
