"""Labels are corrected, models removed: each a snapshot, and nothing else changes. Old renames count."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from support.corrections import correct_from_file
from support.postgres_server import DIRECTORY_FIRST
from support.rows import SCORES, answer_rows, choice_rows, docs, extraction, put_shifted, rename
from typer.testing import CliRunner

from rlfocal.base.errors import InputError
from rlfocal.cli.app import app
from rlfocal.evaluation import evaluate, train
from rlfocal.evaluation.leaderboard import leaderboard
from rlfocal.exchange.imports.predictions import import_predictions
from rlfocal.methods.trained import load_checkpoint
from rlfocal.report import write_report
from rlfocal.report.pools import pool_choice
from warehouse import Warehouse, open_warehouse
from warehouse.corrections import first_names, remove_from_benchmarks, remove_model
from warehouse.integrity import examine
from warehouse.snapshots import diff, snapshots

N = 20


def fill(warehouse: Warehouse, *models: str) -> None:
    for model in models:
        put_shifted(warehouse, model, n=N)


def write(path: Path, *rows: Mapping[str, object]) -> Path:
    lines = [json.dumps({"benchmark": "b", "task": "t", **row}) for row in rows]
    path.write_text("\n".join(lines) + "\n")
    return path


def accuracy(warehouse: Warehouse) -> list[float]:
    return [a for (a,) in warehouse.rows("SELECT accuracy FROM accuracy ORDER BY model")]


@DIRECTORY_FIRST
def test_corrected_labels(place: str, tmp_path: Path) -> None:
    with open_warehouse(place) as warehouse:
        fill(warehouse, "m")  # says 0, 1, 0, 1, ...; every label is 0
        assert accuracy(warehouse) == [0.5]
        before = warehouse.snapshot()
        labels = write(tmp_path / "l.jsonl", *({"doc_id": i, "label": 1} for i in (1, 3, 4)))
        assert correct_from_file(warehouse, labels) == 3
        after = warehouse.snapshot()
        assert accuracy(warehouse) == [(10 + 2 - 1) / N]
        assert snapshots(warehouse)[-1].message == "correct labels"
        assert warehouse.rows("SELECT label, gold FROM docs WHERE doc_id IN (2, 3) ORDER BY doc_id") == [
            (0, "yes"),
            (1, "no"),
        ]
        (change,) = diff(place, before, after).partitions
        assert (change.change, change.became_right, change.became_wrong) == ("relabelled", 2, 1)
        assert correct_from_file(warehouse, labels) == 0
        again = CliRunner().invoke(app, ["correct-labels", str(labels), "--warehouse", place])
        assert again.stdout == f"nothing to do: the documents are already as in {labels}\n"
        assert warehouse.snapshot() == after
        assert examine(warehouse).is_sound


def test_a_correction_outlasts_the_same_documents_again(warehouse: Warehouse, tmp_path: Path) -> None:
    fill(warehouse, "m")
    correct_from_file(warehouse, write(tmp_path / "l.jsonl", {"doc_id": 3, "label": 1}))
    correct_from_file(warehouse, write(tmp_path / "l.jsonl", {"doc_id": 3, "label": 2}))
    longer = docs(N + 2)
    warehouse.put_partition(longer, choice_rows(SCORES * (N // 2 + 1), "n"), extraction("n", n_docs=N + 2))
    assert warehouse.rows("SELECT label, gold FROM docs WHERE doc_id = 3") == [(2, "maybe")]
    whole = {("b", "t"): None}
    assert warehouse.documents_differ(docs(N), whole) == {}
    elsewhere = docs(N, labels=[0, 0, 0, 1] + [0] * (N - 4))
    assert "label was 2, is 1" in warehouse.documents_differ(elsewhere, whole)["b", "t"]
    # Corrected back, it is as it was; only runs in between read another label.
    correct_from_file(warehouse, write(tmp_path / "l.jsonl", {"doc_id": 3, "label": 0}))
    assert warehouse.rows("SELECT label, label_before FROM corrections") == [(0, 0)]
    assert warehouse.documents_differ(docs(N), whole) == {}


def test_corrected_answers(warehouse: Warehouse, tmp_path: Path) -> None:
    documents = docs(2).drop_columns(["label", "gold", "choices"]).append_column("gold", pa.array(["7", "8"]))
    warehouse.put_partition(documents, answer_rows([["18"], ["8"]]), extraction())
    assert accuracy(warehouse) == [0.5]
    assert correct_from_file(warehouse, write(tmp_path / "l.jsonl", {"doc_id": 0, "gold": "$18.0"})) == 1
    assert accuracy(warehouse) == [1.0]


def test_documents_are_named_by_the_ids_that_they_came_with(warehouse: Warehouse, tmp_path: Path) -> None:
    table = {"benchmark": ["b"] * 4, "task": ["t"] * 4, "model": ["m"] * 4, "id": ["d", "c", "b", "a"]}
    scores = {"logprob_A": [-1.0] * 4, "logprob_B": [-2.0] * 4, "label": [0] * 4}
    import_predictions(warehouse, pa.table(table | scores))
    named = write(tmp_path / "l.jsonl", {"source_id": "d", "label": 1})
    assert correct_from_file(warehouse, named) == 1
    assert warehouse.rows("SELECT source_id FROM docs WHERE label = 1") == [("d",)]
    both = write(tmp_path / "l.jsonl", {"source_id": "d", "doc_id": 0, "label": 1})
    with pytest.raises(InputError, match="document 0 of b/t has the source_id a, not d"):
        correct_from_file(warehouse, both)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    """What wrong corrections leave as it is."""
    with open_warehouse(tmp_path_factory.mktemp("filled") / "warehouse") as warehouse:
        fill(warehouse, "m")
        yield warehouse


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"doc_id": 99, "label": 0}, "row 2: b/t has no document 99"),
        ({"doc_id": 0, "label": 0, "task": "other"}, "row 2: b/other has no document 0"),
        ({"doc_id": 0, "label": 3}, "row 2: label 3 is out of range: document 0 of b/t has 3 choices"),
        ({"doc_id": 0, "label": -1}, "row 2: label -1 is out of range"),
        ({"doc_id": 0, "gold": "yes"}, "row 2: no label, but document 0 of b/t has choices"),
        ({"doc_id": 1, "label": 2}, "row 1: duplicate document 1 of b/t"),
        ({"doc_id": 0, "label": "two"}, "label 'two' is not a whole number"),
        ({"doc_id": None, "label": 1}, "row 2: no benchmark, task, or doc_id"),
        ({"source_id": "q", "label": 1}, "row 2: b/t has no document q"),
    ],
)
def test_wrong_corrections(filled: Warehouse, tmp_path: Path, row: dict[str, object], reason: str) -> None:
    before = filled.snapshot()
    with pytest.raises(InputError, match=reason):
        correct_from_file(filled, write(tmp_path / "l.jsonl", {"doc_id": 1, "label": 1}, row))
    assert filled.snapshot() == before


def test_evaluations_are_stale_until_they_run_again(warehouse: Warehouse, tmp_path: Path) -> None:
    """Also those that read an older snapshot since; not those whose labels were corrected back."""
    fill(warehouse, "m", "n")
    then = warehouse.snapshot()
    current = "SELECT DISTINCT method, stale, data FROM current_evaluations ORDER BY 1"

    def run(snapshot: int | None = None) -> None:
        evaluate(warehouse, "b", methods=["best_single", "plurality"], snapshot=snapshot)

    def correct(label: int) -> None:
        correct_from_file(warehouse, write(tmp_path / "l.jsonl", {"doc_id": N - 1, "label": label}))

    def stale() -> list[bool]:
        return [stale for _, stale, _ in warehouse.rows(current)]

    run()
    first = warehouse.rows(current)
    assert stale() == [False, False]
    correct(1)
    assert stale() == [True, True]
    [board] = leaderboard(warehouse)
    assert (
        "Evaluated before labels were corrected: best_single, plurality. Run `rlfocal evaluate --benchmark b "
        "--methods best_single,plurality` again." in board.notes
    )
    run()
    assert stale() == [False, False]
    assert warehouse.rows(current) != first
    run(then)
    assert stale() == [True, True]
    run()
    assert stale() == [False, False]
    correct(0)
    assert stale() == [True, True]
    run()
    assert warehouse.rows(current) == first
    correct(1)
    assert stale() == [True, True]
    correct(0)
    assert stale() == [False, False]  # as they were when it read them
    warehouse.connection.execute("UPDATE evaluations SET docs_digest = NULL")  # as of earlier versions
    assert stale() == [True, True]
    run()
    assert warehouse.rows(current) == first
    [board] = leaderboard(warehouse)
    assert not any("corrected" in note for note in board.notes)


def test_a_benchmark_goes_with_the_last_model_that_answered_it(warehouse: Warehouse) -> None:
    fill(warehouse, "m", "n")
    for model, left in (("m", [("b", "choices", None, None, None)]), ("n", [])):
        with remove_from_benchmarks(warehouse, model, ["b"]):
            pass
        assert warehouse.rows("FROM benchmarks") == left
        assert len(warehouse.rows("FROM tasks")) == len(left)


def put_four(warehouse: Warehouse, n: int = 40) -> None:
    """Models a, b, c and d, that are often right and sometimes not."""
    rng = np.random.default_rng(0)
    for name in "abcd":
        scores = rng.normal([1.2, 0.0, 0.0], 1, (n, 3)).tolist()
        warehouse.put_partition(docs(n), choice_rows(scores, name), extraction(name, n_docs=n))


@pytest.mark.slow
def test_past_runs_and_agents_follow_a_new_name(warehouse: Warehouse) -> None:
    put_four(warehouse)
    before = evaluate(warehouse, "b", methods=["single:b", "best_plurality:2"])
    [path] = train(warehouse, "b", seeds=1).checkpoints
    rename(warehouse, "b", "bb")
    # It keeps its place in the alphabet, by which ties are settled: nothing is computed anew.
    after = evaluate(warehouse, "b", methods=["single:bb", "best_plurality:2"])
    assert after.ran == ()
    assert [row.accuracy for row in after.rows] == [row.accuracy for row in before.rows]
    again = train(warehouse, "b", seeds=1)
    assert (again.checkpoints, again.trained) == ((path,), 0)
    assert load_checkpoint(path).models == ("a", "bb", "c", "d")
    # Last in the alphabet it may lose ties it won: all is computed anew, and the old runs stay.
    rename(warehouse, "bb", "z")
    moved = evaluate(warehouse, "b", methods=["soft_vote", "single:z"])
    assert len(moved.ran) == 2
    # Back under its first name it is what it was.
    rename(warehouse, "z", "b")
    assert evaluate(warehouse, "b", methods=["single:b"]).ran == ()


@pytest.mark.slow
def test_a_name_that_was_given_up_is_another_models(warehouse: Warehouse) -> None:
    put_four(warehouse)
    evaluate(warehouse, "b", methods=["soft_vote"], models=["a", "b"])
    rename(warehouse, "b", "bb")
    scores = [[2.0, 0.0, 0.0]] * 40
    warehouse.put_partition(docs(40), choice_rows(scores, "b"), extraction("b", n_docs=40))
    assert first_names(warehouse)["bb"] == "b"
    assert len(evaluate(warehouse, "b", methods=["soft_vote"], models=["a", "b"]).ran) == 1
    assert evaluate(warehouse, "b", methods=["soft_vote"], models=["a", "bb"]).ran == ()


@pytest.mark.slow
def test_the_report_and_evaluations_outlive_models(warehouse: Warehouse, tmp_path: Path) -> None:
    put_four(warehouse)
    evaluate(warehouse, "b", methods=["rl_focal_sequential", "log_linear", "single:b"], seeds=1)
    [whole] = leaderboard(warehouse)
    remove_model(warehouse, "b")
    [left] = leaderboard(warehouse)
    assert left.rows == whole.rows
    assert [single.model for single in whole.singles if single.model != "b"] == [
        s.model for s in left.singles
    ]
    note, missing = left.notes
    assert missing.startswith("Not evaluated, though usual: ")
    assert note.startswith("No longer in the warehouse: b. Runs are shown as they were stored")
    runs = [run.run_id for run in left.ours[0].runs]
    choice = pool_choice(warehouse, "b", runs, left.models)
    assert choice is not None
    assert sum(pool.share for pool in choice.chosen_pools) == pytest.approx(1)
    for pool in (choice.whole_pool, *choice.chosen_pools):
        assert (pool.plurality_accuracy is None) == ("b" in pool.models)
    later = evaluate(warehouse, "b", methods=["soft_vote"])
    assert {tuple(row.models) for row in later.rows} == {("a", "c", "d")}
    [board] = [board for board in leaderboard(warehouse) if board.models == ("a", "c", "d")]
    assert board.rows[0].method == "soft_vote"
    for model in "acd":
        remove_model(warehouse, model)
    page = write_report(warehouse, tmp_path / "report.html").read_text("utf-8")
    assert "No longer in the warehouse: a, c, d. Runs are shown as they were stored" in page
    with pytest.raises(InputError, match="no model answered all 40 documents of 'b'"):
        evaluate(warehouse, "b")


def test_remove(warehouse: Warehouse) -> None:
    fill(warehouse, "m", "n")
    evaluate(warehouse, "b", methods=["best_single"])
    runs = warehouse.rows("FROM evaluations ORDER BY ALL")
    with pytest.raises(InputError, match="unknown benchmark 'c'"):
        remove_model(warehouse, "m", ["c"])
    where = ["--warehouse", str(warehouse.location.directory)]
    run = CliRunner().invoke
    result = run(app, ["remove-model", "m", "--benchmarks", "b", *where, "--json"])
    assert json.loads(result.stdout) == {"partitions": 1, "snapshot": warehouse.snapshot()}
    assert warehouse.rows("SELECT DISTINCT model FROM choice_logprobs") == [("n",)]
    assert list(warehouse.fingerprints()) == [("n", "b", "t")]
    assert warehouse.rows("FROM evaluations ORDER BY ALL") == runs
    assert examine(warehouse).is_sound
    assert isinstance(run(app, ["remove-model", "m", *where]).exception, InputError)
    before = warehouse.snapshot()
    again = run(app, ["remove-model", "m", "--benchmarks", "b", *where])
    assert (again.exit_code, again.stdout) == (0, "nothing to do: m is already removed\n")
    assert warehouse.snapshot() == before
    fill(warehouse, "m")
    assert {model for model, _, _ in warehouse.fingerprints()} == {"m", "n"}
