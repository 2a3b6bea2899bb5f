"""Tables that an import would misread in silence: each is refused, or noted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd  # type: ignore[import-untyped]
import pytest

from rlfocal.base.errors import InputError
from rlfocal.exchange.imports.predictions import import_predictions
from warehouse import Warehouse

SCORED = {"id": [0, 1], "model": "llama", "logprob_A": [-1.0, -3.0], "logprob_B": [-2.0, -1.0]}


def notes(warehouse: Warehouse, frame: dict[str, Any], **options: Any) -> str:
    return str(import_predictions(warehouse, pd.DataFrame(frame), benchmark="b", **options))


def refusal(warehouse: Warehouse, columns: dict[str, Any]) -> str:
    with pytest.raises(InputError) as refused:
        notes(warehouse, columns)
    return "\n".join([str(refused.value), *getattr(refused.value, "__notes__", [])])


def test_choices_in_an_order_of_each_model_are_refused(unwritten: Warehouse) -> None:
    columns = {
        "id": 0,
        "model": ["llama", "qwen"],
        "option_A": ["yes", "no"],
        "option_B": ["no", "yes"],
        "logprob_A": [-1, -1],
        "logprob_B": [-2, -2],
        "label": "yes",
    }
    assert "row 2: choices '[no, yes]' of the document, which was '[yes, no]'" in refusal(unwritten, columns)


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        (SCORED | {"label": [1, 1], "correct": [1, 1]}, "1 of 2 answers of llama otherwise than its labels"),
        (
            {"id": [0, 1], "model": "llama", "answer": ["3", "It is 4"], "gold": [3, 4], "acc": [1.0, 1.0]},
            "1 of 2 answers of llama otherwise than its golds",
        ),
    ],
    ids=["labels", "golds"],
)
def test_grades_that_contradict_are_noted(warehouse: Warehouse, columns: dict[str, Any], told: str) -> None:
    assert f"b: the table grades {told} do" in notes(warehouse, columns)


def test_marks_of_right_choices_are_no_grades(warehouse: Warehouse) -> None:
    columns = {
        "id": [0, 0, 1, 1],
        "model": "llama",
        "choice": ["A", "B"] * 2,
        "logprob": [-2, -1, -1, -2],
        "is_correct": [0, 1, 1, 0],
        "label": ["B", "B", "A", "A"],
    }
    assert "grades" not in notes(warehouse, columns)


def test_grades_may_be_wrong_answers_instead(warehouse: Warehouse) -> None:
    columns = {"id": [0, 1], "model": "llama", "prediction": [0, 1], "correct": [1, 1]}
    with pytest.raises(InputError, match="'prediction' and 'correct' both hold 1 and 0; say what they are"):
        notes(warehouse, columns)
    notes(warehouse, columns, columns="correct=gold")
    assert warehouse.rows("SELECT accuracy FROM benchmark_accuracy") == [(0.5,)]
    notes(warehouse, columns, columns="prediction=text", names="llama=graded")
    assert warehouse.rows("SELECT accuracy FROM benchmark_accuracy WHERE model = 'graded'") == [(1.0,)]


@pytest.mark.parametrize(
    "grades", [[" True", "False "], ["1", " "], ["1.0", "nan"]], ids=["spaces", "blank", "nan"]
)
def test_grades_may_have_spaces_and_gaps(warehouse: Warehouse, grades: list[str]) -> None:
    columns = {"id": [0, 1], "model": "llama", "correct": ["yes", "no"], "acc": grades}
    report = notes(warehouse, columns)
    assert "acc as answer (grades) (not used: correct)" in report
    assert "--comparison" not in report
    assert warehouse.rows("SELECT accuracy FROM benchmark_accuracy") == [(0.5,)]


def test_a_table_without_right_answers_names_its_columns(unwritten: Warehouse) -> None:
    told = refusal(unwritten, SCORED | {"correct": ["B", "A"]})
    assert "no column of right answers, label or gold; it has id, model, logprob_A, logprob_B, corr" in told


def test_losses_are_noted_however_few(warehouse: Warehouse) -> None:
    losses = SCORED | {"logprob_A": [1.0, 3.0], "logprob_B": [2.0, 1.0], "label": ["A", "B"]}
    assert "b: all scores of llama are above 0, where log-probs lie below" in notes(warehouse, losses)


def test_percentages_are_to_be_divided(unwritten: Warehouse) -> None:
    told = refusal(unwritten, {"id": 0, "model": "llama", "prob_A": [90], "prob_B": [10], "label": "A"})
    assert "[90.0, 10.0] are not all probabilities, from 0 to 1; divide percentages by 100" in told


def test_one_pair_may_be_a_text(warehouse: Warehouse) -> None:
    notes(warehouse, {"id": [0], "model": "llama", "said": "x", "gold": "x"}, columns="said=answer")
    assert warehouse.rows("SELECT accuracy FROM benchmark_accuracy") == [(1.0,)]


@pytest.mark.parametrize(
    ("labels", "stored"), [([1, 2], [0, 1]), ([3, 1], [2, 0]), ([0, 2], [0, 2]), (["B", "C"], [1, 2])]
)
@pytest.mark.parametrize("columns", ["logprob_{}", "option{}"])
def test_labels_count_as_their_columns_do(
    warehouse: Warehouse, labels: list[object], stored: list[int], columns: str
) -> None:
    frame: dict[str, Any] = {"id": [0, 1], "model": "llama", "label": labels}
    frame |= {columns.format(number): [-1.5, -1.0 - number] for number in (1, 2, 3)}
    if columns == "option{}":
        frame["logprobs"] = [[-1, -2, -3], [-2, -1, -3]]
    report = notes(warehouse, frame)
    assert ("label (indices from 1)" in report) == (labels in ([1, 2], [3, 1]))
    assert warehouse.rows("SELECT label FROM docs ORDER BY doc_id") == [(label,) for label in stored]


def test_ids_of_scores_may_be_floats(warehouse: Warehouse) -> None:
    docs = pd.DataFrame({"id": [1, 2], "label": [0, 1]})
    scores = pd.DataFrame(SCORED | {"id": [1.0, 2.0]})
    import_predictions(warehouse, docs=docs, scores=scores, benchmark="b")
    assert warehouse.rows("SELECT accuracy FROM benchmark_accuracy") == [(1.0,)]
    with pytest.raises(InputError, match=r"row 2: document 7\.0 is not described; add it to the documents"):
        import_predictions(warehouse, docs=docs, scores=scores.assign(id=[1.0, 7.0]), benchmark="c")


@pytest.mark.parametrize("name", ['we"ird', "it's", "a/b", "~0", "$.id"])
def test_names_of_columns_may_have_any_sign(warehouse: Warehouse, tmp_path: Path, name: str) -> None:
    frame = pd.DataFrame({"id": [0, 1], "model": "llama", name: ["x", "y"], f"{name}2": ["x", "z"]})
    frame.to_json(lines := tmp_path / "t.jsonl", orient="records", lines=True)
    columns = {name: "gold", f"{name}2": "answer"}
    import_predictions(warehouse, frame, benchmark="frame", columns=columns)
    import_predictions(warehouse, lines, benchmark="lines", columns=columns)
    import_predictions(
        warehouse,
        lines,
        benchmark="unused",
        columns={name: "answer", "model": "gold"},
        names={"t.jsonl": "m"},
    )
    stored = warehouse.rows("SELECT benchmark, accuracy FROM benchmark_accuracy ORDER BY 1")
    assert stored == [("frame", 0.5), ("lines", 0.5), ("unused", 0.0)]


def test_a_column_without_a_name_is_an_index(warehouse: Warehouse) -> None:
    assert "(not used: Unnamed: 0)" in notes(warehouse, SCORED | {"label": [0, 1], "": [5, 6]})
