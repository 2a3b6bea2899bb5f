"""`rlfocal audit-labels`: what it names, its file for `correct-labels`, its figures; real data with flips."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from support.cli import Cli
from support.report_lab import MODELS, Lab

import rlfocal
from rlfocal.base.arrays import Bools, Ints
from rlfocal.base.errors import InputError
from rlfocal.data.dataset import Dataset
from rlfocal.data.loading import load_dataset
from rlfocal.evaluation import auditing
from rlfocal.evaluation.auditing import LabelAudit, audit_labels
from rlfocal.report.sections import labels_table
from rlfocal.statistics.auditing import cross_fit, label_noise_rates
from warehouse import Warehouse, open_warehouse

TASKS = ("birds", "cities")
N = 150  # documents a task
SKILLS = (0.95, 0.9, 0.9, 0.85, 0.9, 0.8)
FLIPPED = [("birds", 3), ("birds", 77), ("cities", 9), ("cities", 140)]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A benchmark of which four labels are wrong."""
    location = tmp_path / "lake"
    with open_warehouse(location) as warehouse:
        fill(warehouse)
    return location


def fill(warehouse: Warehouse) -> None:
    Lab(warehouse).add_benchmark("facts", TASKS, N, SKILLS, seed=5)
    for task, doc_id in FLIPPED:
        warehouse.connection.execute(
            "UPDATE docs SET label = (label + 1) % 4 WHERE task = ? AND doc_id = ?", [task, doc_id]
        )


def truth(warehouse: Warehouse, task: str, doc_id: int) -> int:
    [(label,)] = warehouse.rows("SELECT label FROM docs WHERE task = ? AND doc_id = ?", [task, doc_id])
    return (int(label) - 1) % 4


def test_wrong_labels_are_named_first_with_what_the_models_say(place: Path) -> None:
    with open_warehouse(place) as warehouse:
        found = rlfocal.audit_labels(warehouse, "facts")
        first = found.suspects[:4]
        assert {(one.task, one.doc_id) for one in first} == set(FLIPPED)
        for one in first:
            right = truth(warehouse, one.task, one.doc_id)
            assert (one.likeliest, one.label) == (str(right), str((right + 1) % 4))
            assert one.kind == "wrong label"
            assert one.wrong > 0.5
            assert next(iter(one.said)) == str(right)
            assert sum(one.said.values()) == len(MODELS)
            assert one.choices == tuple("abcd")
    assert 3 < found.expected < 8
    assert found.expected == pytest.approx(sum(one.expected for one in found.tasks))
    assert {one.task: one.order for one in found.tasks} == dict.fromkeys(TASKS)


def test_accuracies_if_labels_were_right(place: Path) -> None:
    """In expectation; the four wrong labels are most of what changes."""
    with open_warehouse(place) as warehouse:
        found = audit_labels(warehouse, "facts")
        stored = dict(warehouse.rows("SELECT model, sum(accuracy * n) / sum(n) FROM accuracy GROUP BY model"))
        for task, doc_id in FLIPPED:
            warehouse.connection.execute(
                "UPDATE docs SET label = (label + 3) % 4 WHERE task = ? AND doc_id = ?", [task, doc_id]
            )
        data = load_dataset(warehouse, "facts")
    right = dict(zip(data.models, data.correct.mean(axis=0).tolist(), strict=True))
    for one in found.models:
        assert one.accuracy == pytest.approx(stored[one.model])
        assert one.expected > one.accuracy
        assert one.expected == pytest.approx(right[one.model], abs=0.01)
    assert [one.place for one in found.models] == [1, 2, 3, 4, 5, 6]
    assert sorted(one.expected_place for one in found.models) == [1, 2, 3, 4, 5, 6]
    assert found.models[0].model in found.sentences()[-1]


def test_a_task_whose_labels_are_shifted_is_told_to_be_looked_at_first(place: Path) -> None:
    with open_warehouse(place) as warehouse:
        warehouse.connection.execute("UPDATE docs SET label = (label + 1) % 4 WHERE task = 'cities'")
        found = audit_labels(warehouse, "facts")
    assert [one.order for one in found.tasks if one.task == "birds"] == [None]
    assert found.sentences()[1] == (
        "Look at task cities first: each label should be the choice 3 places further, around the end."
    )


def test_the_file_goes_to_a_person_and_then_to_correct_labels(place: Path, cli: Cli, tmp_path: Path) -> None:
    where = ["--warehouse", str(place)]
    named = cli("audit-labels", "-b", "facts", *where, "--csv", "doubts.csv", "--rows", "2")
    assert named.code == 0, named.err
    assert "labels are wrong in expectation" in named.out
    assert "in doubts.csv" in named.out
    file = tmp_path / "doubts.csv"
    rows = list(csv.DictReader(file.open(newline="")))
    assert {(row["task"], int(row["doc_id"])) for row in rows[:4]} == set(FLIPPED)
    assert {(row["label"], row["gold"]) for row in rows} == {("", "")}
    empty = cli("correct-labels", "doubts.csv", *where)
    assert empty.code == 2
    assert "doubts.csv: no row has a label, or gold for answers" in empty.err
    for row in rows[:2]:
        row["label"] = row["rather"]
    with file.open("w", newline="") as out:
        writer = csv.DictWriter(out, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    done = cli("correct-labels", "doubts.csv", *where)
    left = len(rows) - 2
    assert done.out == f"2 documents corrected; {left} row{'s' * (left > 1)} without a label left out\n"
    again = json.loads(cli("correct-labels", "doubts.csv", *where, "--json").out)
    assert (again["corrected"], again["unfilled"]) == (0, left)
    with open_warehouse(place) as warehouse:
        found = audit_labels(warehouse, "facts")
    corrected = {(row["task"], int(row["doc_id"])) for row in rows[:2]}
    assert not corrected & {(one.task, one.doc_id) for one in found.suspects}


def test_cells_of_the_file_are_no_formulas() -> None:
    suspect = auditing.Suspect("-t", 1, 0.5, "wrong label", "=1", "@2", {"+3": 2}, "-q", ("a", "b"))
    found = LabelAudit("=b", 60, 1.0, (suspect,), (), ())
    [_, row] = csv.reader(found.csv().splitlines())
    assert row[:3] == ["=b", "-t", "1"]  # keys stay as they are, or no document has them
    assert row[7:11] == ["'=1", "'@2", "'+3 ×2", "'-q"]


def test_tasks_rows_and_json(place: Path, cli: Cli) -> None:
    where = ["--warehouse", str(place), "-b", "facts"]
    found = json.loads(cli("audit-labels", *where, "--task", "birds", "--json").out)
    assert {one["task"] for one in found["suspects"]} == {"birds"}
    assert {one["task"] for one in found["tasks"]} == set(TASKS)
    one_row = cli("audit-labels", *where, "--rows", "1").out
    assert sum(line.startswith(TASKS) for line in one_row.splitlines()) == 1
    wrong = cli("audit-labels", *where, "--task", "bird")
    assert wrong.code == 2
    assert "bird" in wrong.err
    assert "did you mean 'birds'" in wrong.err
    named = cli("audit-labels", *where, "--csv", "doubts.txt")
    assert named.code == 2
    assert "--csv doubts.txt: give a file that ends in .csv" in named.err
    few = json.loads(cli("audit-labels", *where, "--models", "ada,bert", "--json").out)
    assert {one["model"] for one in few["models"]} == {"ada", "bert"}


def test_the_report_has_a_section_without_confidential_questions(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Board:
        benchmark, models = "facts", MODELS

    class SecretBenchmark:
        confidential = True

    with open_warehouse(place) as warehouse:
        table = labels_table(warehouse, Board(), confidential=False)  # type: ignore[arg-type]
        assert table.header[-1] == "question"
        assert {(row[0], int(row[1])) for row in table.rows[:4]} == set(FLIPPED)
        assert "labels are wrong in expectation" in table.caption
        monkeypatch.setattr("rlfocal.report.sections.load_benchmarks", lambda: {"facts": SecretBenchmark()})
        hidden = labels_table(warehouse, Board(), confidential=False)  # type: ignore[arg-type]
        assert "question" not in hidden.header
        shown = labels_table(warehouse, Board(), confidential=True)  # type: ignore[arg-type]
        assert shown.header[-1] == "question"
        unknown = type("Board", (), {"benchmark": "facts", "models": ("nobody",)})()
        assert not labels_table(warehouse, unknown, confidential=False).rows


def answers(said: list[list[str]], gold: list[str]) -> tuple[pa.Table, pa.Table]:
    """Documents with gold answers, and what models m0, m1, ... said to each."""
    docs = {"benchmark": "sums", "task": "t", "split": "train"}
    documents = pa.Table.from_pylist([docs | {"doc_id": i, "gold": one} for i, one in enumerate(gold)])
    scores = [
        {"benchmark": "sums", "task": "t", "doc_id": i, "model": f"m{m}", "answer": answer}
        for i, of in enumerate(said)
        for m, answer in enumerate(of)
    ]
    return documents, pa.Table.from_pylist(scores)


def test_for_free_answers_the_alternative_is_what_most_models_say(
    warehouse: Warehouse, tmp_path: Path, cli: Cli
) -> None:
    """Also where no model gave the gold answer."""
    rng = np.random.default_rng(0)
    gold = [str(100 + i) for i in range(120)]
    said = [[one if rng.random() < 0.85 else str(rng.integers(900)) for _ in range(7)] for one in gold]
    gold[4], gold[50] = "7", said[50][0] if said[50][0] != gold[50] else "8"
    for name, table in zip(("docs", "scores"), answers(said, gold), strict=True):
        pa.parquet.write_table(table, tmp_path / f"{name}.parquet")
    rlfocal.import_predictions(warehouse, tmp_path / "docs.parquet", tmp_path / "scores.parquet")
    found = audit_labels(warehouse, "sums")
    first = {one.doc_id: one for one in found.suspects[:2]}
    assert set(first) == {4, 50}
    assert (first[4].label, first[4].likeliest) == ("7", "104")
    assert first[4].wrong > 0.5
    assert (first[50].label, first[50].likeliest) == (gold[50], "150")


def test_what_cannot_be_audited_is_refused(warehouse: Warehouse, tmp_path: Path) -> None:
    Lab(warehouse).add_benchmark("few", ("t",), 20, SKILLS, seed=1)
    with pytest.raises(InputError, match="few has 20 documents; an audit needs 50"):
        audit_labels(warehouse, "few")
    with pytest.raises(InputError, match=r"'fow'.*did you mean 'few'"):
        audit_labels(warehouse, "fow")
    graded = [["right" if (i + m) % 3 else "wrong" for m in range(4)] for i in range(60)]
    for name, table in zip(("docs", "scores"), answers(graded, ["right"] * 60), strict=True):
        pa.parquet.write_table(table, tmp_path / f"{name}.parquet")
    rlfocal.import_predictions(warehouse, tmp_path / "docs.parquet", tmp_path / "scores.parquet")
    with pytest.raises(InputError, match="answers to sums are only graded"):
        audit_labels(warehouse, "sums")


def flipped(data: Dataset, share: float, seed: int) -> tuple[Dataset, Bools]:
    """A dataset with a share of its labels changed to other choices at random, and which."""
    rng = np.random.default_rng(seed)
    at = rng.choice(len(data), round(share * len(data)), replace=False)
    labels: Ints = data.labels.copy()
    labels[at] = (labels[at] + 1 + (rng.random(len(at)) * (data.n_choices[at] - 1)).astype(np.int64)) % (
        data.n_choices[at]
    )
    is_flipped = np.zeros(len(data), dtype=np.bool_)
    is_flipped[at] = True
    return replace(data, labels=labels), is_flipped


def doubts(data: Dataset) -> LabelAudit:
    return auditing._audit(data, {})


def place_of(data: Dataset) -> dict[tuple[str, int], int]:
    return {key: at for at, key in enumerate(zip(data.tasks.tolist(), data.doc_ids.tolist(), strict=True))}


@pytest.mark.slow
def test_on_mmlu_flips_are_found_at_least_as_well_as_by_confident_learning(real_warehouse: Path) -> None:
    """Given the same probabilities, out of sample. Confident learning counts far more than there are.

    Of the first 100, those that are not flipped were doubtful before, but for a few.
    """
    from cleanlab.count import num_label_issues
    from cleanlab.rank import get_label_quality_scores

    with open_warehouse(real_warehouse, read_only=True) as warehouse:
        data = load_dataset(warehouse, "mmlu")
    before = doubts(data)
    assert 0.005 * len(data) < before.expected < 0.03 * len(data)  # by MMLU-Redux some 2 % to 3 %
    changed, is_flipped = flipped(data, 0.02, seed=0)
    found, place = doubts(changed), place_of(data)
    first = [place[one.task, one.doc_id] for one in found.suspects[:100]]
    x, exists, labels = auditing._read_witnesses(changed)
    tasks = np.unique(changed.tasks, return_inverse=True)[1]
    p = cross_fit(x, exists, labels, label_noise_rates(exists, labels), tasks, np.ones(4, dtype=np.bool_))
    theirs = np.argsort(get_label_quality_scores(labels, p))[:100]
    named_before = {place[one.task, one.doc_id] for one in before.suspects}
    assert is_flipped[first].sum() >= is_flipped[theirs].sum()
    assert (is_flipped[first] | np.isin(first, list(named_before))).sum() >= 90
    n_flipped = int(is_flipped.sum())
    assert abs(found.expected - before.expected - n_flipped) < 0.5 * n_flipped
    assert num_label_issues(labels, p) > 2 * found.expected


@pytest.mark.slow
@pytest.mark.parametrize(("benchmark", "share"), [("mmlu", 0.05), ("bbh", 0.02), ("bbh", 0.1)])
def test_on_real_data_with_flips_probabilities_are_calibrated(
    real_warehouse: Path, benchmark: str, share: float
) -> None:
    """Of documents said to be wrong with some probability, so many are or more: flipped, or wrong before, by
    the audit without flips. Never are they far fewer."""
    with open_warehouse(real_warehouse, read_only=True) as warehouse:
        data = load_dataset(warehouse, benchmark)
    changed, is_flipped = flipped(data, share, seed=1)
    place, before = place_of(data), {(o.task, o.doc_id): o.wrong for o in doubts(data).suspects}
    said = [(one.wrong, place[one.task, one.doc_id], one) for one in doubts(changed).suspects]
    for low, high in ((0.1, 0.3), (0.3, 0.7), (0.7, 1.01)):
        here = [
            (wrong, max(float(is_flipped[at]), before.get((one.task, one.doc_id), 0.0)))
            for wrong, at, one in said
            if low <= wrong < high
        ]
        claimed, true = np.mean(here, axis=0)
        assert -0.35 < claimed - true < 0.08 + 0.5 / np.sqrt(len(here)), (low, high, len(here))


@pytest.mark.slow
def test_on_mmlu_a_shifted_task_is_named_alone(real_warehouse: Path) -> None:
    with open_warehouse(real_warehouse, read_only=True) as warehouse:
        data = load_dataset(warehouse, "mmlu")
    shifted = np.where(data.tasks == "astronomy", (data.labels + 1) % data.n_choices, data.labels)
    for labels, expected in ((data.labels, []), (shifted, ["astronomy"])):
        found = doubts(replace(data, labels=labels))
        assert [one.task for one in found.tasks if one.order] == expected
