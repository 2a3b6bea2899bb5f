"""Which documents train, whatever the order of rows; and what is said where train and test differ."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest
from scipy.stats import hypergeom
from typer.testing import CliRunner

from rlfocal.cli.app import app
from rlfocal.data.loading import load_dataset
from rlfocal.evaluation.running import evaluate
from rlfocal.exchange.imports.predictions import import_predictions
from rlfocal.statistics.homogeneity import Share, find_differences, p_values
from warehouse import Warehouse, open_warehouse

N, TOPICS = 200, ("law", "biology", "geography", "medicine")
DETERMINISTIC = ["best_single", "plurality", "log_linear", "knn", "stacking"]


def answers(*, ids: str = "q{:03d}") -> pd.DataFrame:
    """Log-probs of two models to questions of four topics."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, N)
    rows: list[dict[str, Any]] = []
    for model, skill in (("a", 0.5), ("b", 0.7)):
        for i in range(N):
            scores = rng.normal(0, 0.5, 4)
            scores[labels[i]] += 2 * (rng.random() < skill)
            rows.append(
                {
                    "id": ids.format(i * 37 % N),
                    "model": model,
                    "topic": TOPICS[i * 4 // N],
                    "label": "ABCD"[labels[i]],
                }
                | {"question": "word " * (20 + i % 41) + str(i)}
                | {f"logprob_{letter}": scores[at] for at, letter in enumerate("ABCD")}
            )
    return pd.DataFrame(rows)


def figures(table: pd.DataFrame, path: Path) -> tuple[Any, ...]:
    """The split by the documents' questions, what each method decides on which of them, and a hash of
    all that methods learn from and decide on, in its order: rl_focal's batches, too.
    """
    with open_warehouse(path) as warehouse:
        import_predictions(warehouse, table, benchmark="b")
        evaluate(warehouse, "b", methods=DETERMINISTIC)
        split = warehouse.rows("SELECT task, question, split FROM docs ORDER BY ALL")
        decided = warehouse.rows(
            "SELECT e.method, q.question, d.pool, d.prediction, d.correct FROM decisions AS d "
            "JOIN evaluations AS e ON e.run_id = d.run_id AND e.task = '*' "
            "JOIN docs AS q ON (q.task, q.doc_id) = (d.task, d.doc_id) ORDER BY ALL"
        )
        return split, decided, load_dataset(warehouse, "b").fingerprint()


@pytest.mark.parametrize(
    ("ids", "order"),
    [
        ("q{:03d}", None),
        ("{}", "label"),
        (None, None),
        *(pytest.param("{}", name, marks=pytest.mark.slow) for name in ("topic", "question", "id", None)),
    ],
)
def test_no_order_of_rows_changes_the_split_or_a_figure(
    tmp_path: Path, ids: str | None, order: str | None
) -> None:
    """Ids are texts, numbers or missing; rows are sorted by a column or shuffled."""
    table = answers(ids=ids or "{}")
    if ids is None:
        table = table.drop(columns="id")
    other = table.sample(frac=1, random_state=1)
    if order is not None:
        other = other.sort_values(order, kind="stable")
    first, second = (
        figures(each.reset_index(drop=True), tmp_path / str(i)) for i, each in enumerate((table, other))
    )
    assert {task for task, _, _ in first[0]} == {*TOPICS}
    assert [split for _, _, split in first[0]].count("train") == 4 * 40
    assert first == second


def note_of(table: pd.DataFrame, path: Path, **how: Any) -> str:
    with open_warehouse(path) as warehouse:
        return " ".join(import_predictions(warehouse, table, benchmark="b", **how).notes)


def test_what_tells_train_from_test_is_said(tmp_path: Path) -> None:
    """At import, in the verdict, on the page's board and in JSON; of columns that are not used, too."""
    path = str(tmp_path / "w")
    sorted_ = answers().sort_values("topic", kind="stable")
    note = note_of(sorted_, tmp_path / "w", split="first", columns={"topic": "none"})
    assert "topic medicine (6.2 % of train, 100.0 % of test)" in note
    command = ["evaluate", "-b", "b", "--methods", "plurality", "--warehouse", path]
    done, shown, anew = (
        CliRunner().invoke(app, [*command, *more]) for more in (["--json"], [], ["--split", "random"])
    )
    assert done.exit_code == 0, done.output
    assert all("topic medicine" in row["train_and_test"] for row in json.loads(done.stdout))
    assert "topic medicine" in " ".join(shown.output.split())
    assert "more than chance" not in " ".join(anew.output.split())
    for name, word in (("label", "label 3"), ("length", "longest quarter")):
        table = answers().assign(length=lambda rows: rows["question"].str.len())
        table = table.sort_values(name, kind="stable").drop(columns=["length", "topic"])
        assert word in note_of(table, tmp_path / name, split="first")
        assert "chance" not in note_of(table, tmp_path / f"{name}-hash")


def test_models_that_know_the_train_documents(warehouse: Warehouse) -> None:
    table = answers().drop(columns="topic")
    train = table["id"] < "q160"
    table["split"] = np.where(train, "train", "test")
    known = train & (table["model"] == "a")
    for letter in "ABCD":
        table.loc[known, f"logprob_{letter}"] = np.where(table["label"] == letter, 5.0, 0.0)[known]
    notes = " ".join(import_predictions(warehouse, table, benchmark="b").notes)
    assert "a is right (100.0 % of train" in notes
    assert "b is right" not in notes


def test_random_splits_seldom_differ() -> None:
    """And p-values are those of Fisher's exact test by doubling."""
    rng = np.random.default_rng(0)
    said = 0
    for _ in range(500):
        test = rng.permutation(300) < 60
        has = rng.random((12, 300)) < rng.uniform(0.05, 0.95, (12, 1))
        shares = [Share("x", "x", 240, int(h[~test].sum()), 60, int(h[test].sum())) for h in has]
        said += bool(find_differences(shares))
    assert said <= 12  # expected at most 5
    for share, p in zip(shares, p_values(shares), strict=True):
        chance = hypergeom(300, share.k_train + share.k_test, 60)
        expected = 2 * min(chance.cdf(share.k_test), chance.sf(share.k_test - 1))
        assert p == pytest.approx(min(1, expected), rel=1e-9)


@pytest.mark.parametrize(
    ("name", "values", "is_task"),
    [
        ("category", lambda i: f"c{i % 5}", True),
        ("Domain", lambda i: f"c{i % 5}", True),
        ("section", lambda i: i % 5, True),
        ("topic", lambda i: f"c{i}", False),  # names documents
        ("topic", lambda i: "a/b" if i % 2 else "c", False),  # no name of a file
        ("topic", lambda i: None if i == 3 else "c", False),
        ("kind", lambda i: f"c{i % 5}", False),
    ],
)
def test_columns_that_name_tasks(warehouse: Warehouse, name: str, values: Any, is_task: bool) -> None:
    table = answers().drop(columns="topic")
    table[name] = [values(int(i[1:])) for i in table["id"]]
    import_predictions(warehouse, table, benchmark="b")
    tasks = {task for (task,) in warehouse.rows("SELECT DISTINCT task FROM docs")}
    assert tasks == ({str(values(i)) for i in range(N)} if is_task else {"b"})


def test_what_differs_by_model_names_no_task(warehouse: Warehouse) -> None:
    table = answers().drop(columns="topic")
    table["category"] = ["slip" if i % 3 else "good" for i in range(len(table))]
    import_predictions(warehouse, table, benchmark="b")
    assert warehouse.rows("SELECT DISTINCT task FROM docs") == [("b",)]
    # Where ids begin anew in each task, a column has to tell them apart.
    anew = answers(ids="{}")
    anew["id"] = anew.groupby(["model", "topic"]).cumcount()
    docs = anew[anew["model"] == "a"][["id", "topic", "label", "question"]]
    import_predictions(warehouse, docs, anew.drop(columns=["label", "question"]), benchmark="c")
    assert warehouse.rows("SELECT count(DISTINCT task), count(*) FROM docs WHERE benchmark = 'c'") == [(4, N)]


def test_two_files_agree_on_the_task(warehouse: Warehouse) -> None:
    """A column of the scores that the documents lack is none."""
    table = answers()
    docs = table[table["model"] == "a"][["id", "topic", "label"]]
    scores = table.drop(columns=["topic", "label"]).assign(category=lambda rows: rows["model"])
    import_predictions(warehouse, docs, scores, benchmark="b")
    assert {task for (task,) in warehouse.rows("SELECT DISTINCT task FROM docs")} == {*TOPICS}
