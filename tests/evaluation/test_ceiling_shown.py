"""What no policy can pass is told before any method, and which answers no asked model gave after them."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import pytest
from support.cli import Cli
from support.pool_oracles import insert
from support.rows import choice_rows, docs, extraction

from rlfocal.evaluation import evaluate
from rlfocal.evaluation.leaderboard import leaderboard
from rlfocal.evaluation.verdicts import ceiling_sentence, unnamed_sentence
from rlfocal.report.tables import results_table
from warehouse import Warehouse, open_warehouse

LINE = re.compile(
    r"^toy: no policy that returns a model's answer can exceed ([\d.]+) % \(([\d.]+) to ([\d.]+)\): "
    r"on ([\d.]+) % of 10 test documents no model is right\.$"
)
N = 150
METHODS = ["best_single", "plurality", "soft_vote", "log_linear", "stacking", "constant_choice", "oracle"]


@pytest.fixture
def torn(tmp_path: Path) -> Iterator[Warehouse]:
    """Three models that often name different choices, of three."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, N)
    with open_warehouse(tmp_path / "own") as warehouse:
        for model in ("a", "b", "c"):
            scores = rng.normal(size=(N, 3)) + 0.8 * np.eye(3)[labels]
            warehouse.put_partition(
                docs(N, labels.tolist()), choice_rows(scores.tolist(), model), extraction(model, n_docs=N)
            )
        yield warehouse


@pytest.mark.usefixtures("toy")
def test_it_comes_before_the_table_of_methods(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    said = cli("evaluate", "-b", "toy", "--methods", "plurality", "--models", "weak,other")
    pool = ["--models", "weak,other"]
    asked = "SELECT oracle, beta_low, beta_high, beta FROM ceiling('toy', ['weak', 'other'], split := 'test')"
    [row] = json.loads(cli("sql", asked, "--format", "json").out)
    expected = [100 * row["oracle"], 100 * (1 - row["beta_high"]), 100 * (1 - row["beta_low"])]
    for out in (said.out, cli("advise", "-b", "toy", *pool).out):
        told = next(filter(None, map(LINE.match, out.splitlines())), None)
        assert told, out
        assert [float(number) for number in told.groups()] == pytest.approx(
            [*expected, 100 * row["beta"]], abs=0.0501
        )
        assert out.index("no policy") < re.search("Verdicts|best team", out).start()  # type: ignore[union-attr]
    found = json.loads(cli("advise", "-b", "toy", *pool, "--json").out)["ceiling"]
    assert (found["n"], found["oracle"]) == (10, pytest.approx(row["oracle"]))
    assert cli("report").code == 0
    text = Path(".rlfocal/report.html").read_text("utf-8")
    assert text.index('class="verdict"') < text.index("no policy that returns a model")


def test_what_was_not_evaluated_on_the_given_rows(torn: Warehouse) -> None:
    """Of other splits the documents that were decided count, and of a pool that lost a model none."""
    evaluate(torn, "b", methods=["plurality"], split="random")
    [board] = leaderboard(torn)
    [(n,)] = torn.rows(
        "SELECT count(*) FROM (SELECT 1 FROM decisions AS d JOIN runs AS r USING (run_id) "
        "JOIN outcomes AS o ON (o.task, o.doc_id) = (d.task, d.doc_id) WHERE r.method = 'plurality' "
        "GROUP BY d.task, d.doc_id HAVING max(o.correct::INT) = 0)"
    )
    assert board.n_none_right == n
    told = ceiling_sentence("b", n + 1, board.n)
    assert told.startswith("b: no policy that returns a model's answer can exceed")
    with torn.transaction("a model goes"):
        for table in ("choice_logprobs", "extractions"):
            torn.connection.execute(f"DELETE FROM {table} WHERE model = 'a'")
    [board] = leaderboard(torn)
    assert (board.n_none_right, unnamed_sentence(board)) == (None, "")
    assert ceiling_sentence("b", None, board.n) == ""
    assert ceiling_sentence("b", 0, board.n) == "", "a ceiling of 100 % says nothing"


def test_answers_that_no_asked_model_gave(torn: Warehouse) -> None:
    """Of every method, against decisions and predictions read row by row."""
    evaluate(torn, "b", methods=METHODS)
    said = defaultdict(set)
    for task, doc_id, model, choice in torn.rows("SELECT task, doc_id, model, prediction FROM outcomes"):
        said[task, doc_id, model].add(choice)
    expected: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    decided = "SELECT method, d.task, doc_id, pool, prediction, correct FROM decisions AS d JOIN runs USING "
    for method, task, doc_id, pool, choice, correct in torn.rows(f"{decided}(run_id)"):
        is_own = bool(pool) and not any(choice in said[task, doc_id, model] for model in pool)
        expected[method] = [
            x + y for x, y in zip(expected[method], (1, is_own, is_own and correct), strict=True)
        ]
    counted = (
        "SELECT r.method, u.* EXCLUDE (run_id) FROM unnamed_answers('*') AS u JOIN runs AS r USING (run_id)"
    )
    found = {method: list(counts) for method, *counts in torn.rows(counted)}
    assert found == expected
    assert {method for method in METHODS if not found[method][1]} >= {
        "best_single",
        "plurality",
        "constant_choice",
        "oracle",
    }
    assert found["stacking"][1] > 0
    [board] = leaderboard(torn)
    of_name = {s.method: s for s in board.rows}
    n, own, right = found["stacking"]
    assert (of_name["stacking"].unnamed, of_name["stacking"].unnamed_right) == (own / n, right / own)
    assert (of_name["plurality"].unnamed, of_name["plurality"].unnamed_right) == (0, None)
    told = unnamed_sentence(board, METHODS)
    assert "stacking on" in told
    assert "plurality" not in told
    table = results_table(board)
    at = table.header.index("unnamed %")
    cells = {row[0]: row[at] for row in table.rows}
    assert cells["stacking"] == f"{100 * own / n:.1f} ({100 * right / own:.1f})"
    assert cells["plurality"] == "–"


def test_the_column_is_left_out_where_nobody_answers_so(torn: Warehouse) -> None:
    evaluate(torn, "b", methods=["plurality"])
    [board] = leaderboard(torn)
    assert "unnamed %" not in results_table(board).header
    assert unnamed_sentence(board) == ""


def test_minority_answers_and_runs_that_do_not_exist(sql: duckdb.DuckDBPyConnection) -> None:
    """A free answer is a model's where most of its passes gave it."""
    for table in ("docs", "answer_passes", "choice_logprobs", "decisions"):
        sql.execute(f"DELETE FROM {table}")
    key: dict[str, object] = {"benchmark": "b", "task": "t", "doc_id": 0}
    insert(sql, "docs", [key | {"gold": "7", "split": "test"}])
    passes: dict[str, list[str | None]] = {"m0": ["1", "1", "7"], "m1": ["2", None, "2"]}
    insert(
        sql,
        "answer_passes",
        [key | {"model": m, "pass": i, "answer": a} for m, of in passes.items() for i, a in enumerate(of)],
    )
    runs: dict[str, tuple[str | None, list[str]]] = {"minority": ("7", ["m0", "m1"])}
    runs |= {"named": ("2", ["m0", "m1"]), "unasked": ("2", ["m0"]), "silent": (None, ["m0"])}
    runs |= {"alone": ("7", [])}
    insert(
        sql,
        "decisions",
        [
            key | {"run_id": run, "pool": pool, "answer": answer, "correct": answer == "7"}
            for run, (answer, pool) in runs.items()
        ],
    )
    found = {run: counts for run, *counts in sql.execute("FROM unnamed_answers('*')").fetchall()}
    assert found == {
        "minority": [1, 1, 1],
        "named": [1, 0, 0],
        "unasked": [1, 1, 0],
        "silent": [1, 0, 0],
        "alone": [1, 0, 0],
    }
    assert sql.execute("FROM unnamed_answers('unasked')").fetchall() == [("unasked", 1, 1, 0)]
    lateral = "FROM (VALUES ('minority'), ('named')) AS one(run), unnamed_answers(one.run) AS own"
    assert sql.execute(f"SELECT own.n_unnamed {lateral} ORDER BY one.run").fetchall() == [(1,), (0,)]
    for name in ("'gone'", "NULL", "['named', 'gone']"):
        with pytest.raises(duckdb.Error, match=r"no run (gone|NULL)"):
            sql.execute(f"FROM unnamed_answers({name})").fetchall()
