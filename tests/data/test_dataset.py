"""Warehouse rows as tensors: order, gaps, slots of answers."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from support.rows import answer_rows, docs, extraction, set_all

from rlfocal.base.errors import InputError
from rlfocal.data.loading import load_dataset
from warehouse import Warehouse


def put_answers(warehouse: Warehouse, passes: dict[str, list[list[str | None]]], gold: list[str]) -> None:
    """One task of answers: model -> document -> passes. The first document is train."""
    asked = docs(len(gold), n_train=1).drop_columns(["choices", "label", "gold"])
    asked = set_all(asked, benchmark="sums").append_column("gold", pa.array(gold))
    for model, said in passes.items():
        record = extraction(model, n_docs=len(said)) | {"benchmark": "sums"}
        warehouse.put_partition(asked, set_all(answer_rows(said, model), benchmark="sums"), record)


def test_answers_become_slots_ordered_by_total_probability(warehouse: Warehouse) -> None:
    put_answers(
        warehouse,
        {
            "b": [["7", "7", "8", None], ["1", "2", None, None]],
            "a": [["8", "9", "9", None], [None, None, None, None]],
        },
        gold=["8", "3"],
    )
    data = load_dataset(warehouse, "sums")
    assert (data.kind, data.models) == ("answers", ("a", "b"))
    # Totals of document 0 are .5 each; the tie goes to what model a gave, 9 before 8 by its passes.
    assert data.slots[0] == ("9", "8", "7")
    assert data.probs[0].tolist() == [[0.5, 0.25, 0.0], [0.0, 0.25, 0.5]]
    assert data.predictions.tolist() == [[0, 2], [-1, 0]]  # ties within a model: the earliest pass
    assert data.labels.tolist() == [1, -1]  # nobody gave 3
    assert data.correct.tolist() == [[False, False], [False, False]]
    assert data.n_choices.tolist() == [3, 2]
    sql = warehouse.rows("SELECT model, doc_id, answer, correct FROM predictions ORDER BY doc_id, model")
    assert sql == [("a", 0, "9", False), ("b", 0, "7", False), ("a", 1, None, False), ("b", 1, "1", False)]


def test_a_model_with_gaps_is_left_out_or_refused_by_name(warehouse: Warehouse) -> None:
    put_answers(warehouse, {"a": [["1"], ["2"]], "b": [["1"], ["2"]]}, gold=["1", "2"])
    with warehouse.transaction("lose"):
        warehouse.connection.execute("DELETE FROM answer_passes WHERE model = 'b' AND doc_id = 1")
    assert load_dataset(warehouse, "sums").models == ("a",)
    with pytest.raises(InputError, match="model 'b' answered 1 of 2 documents"):
        load_dataset(warehouse, "sums", ["a", "b"])
    with pytest.raises(InputError, match="unknown model 'c'"):
        load_dataset(warehouse, "sums", ["c"])
    with pytest.raises(InputError, match=r"unknown benchmark 'sum'.*did you mean 'sums'"):
        load_dataset(warehouse, "sum")


def test_choices_are_softmaxed_and_ragged_documents_padded(warehouse: Warehouse) -> None:
    documents = {("z", 0, 1, "test"): [-1.0, -2.0], ("a", 1, 0, "train"): [-3.0, -3.0, -5.0]}
    docs, rows = [], []
    for (task, doc, label, split), scores in documents.items():
        key = {"benchmark": "c", "task": task, "doc_id": doc}
        docs.append(key | {"label": label, "split": split})
        rows += [key | {"model": "m", "choice": c, "logprob": score} for c, score in enumerate(scores)]
    with warehouse.transaction("choices"):
        warehouse.append("docs", pa.Table.from_pylist(docs))
        warehouse.append("choice_logprobs", pa.Table.from_pylist(rows))
    data = load_dataset(warehouse, "c")
    assert data.tasks.tolist() == ["a", "z"]  # task, then doc_id
    assert data.n_choices.tolist() == [3, 2]
    assert data.predictions.tolist() == [[0], [0]]  # a tie: the lowest index
    weights = np.exp([[-3.0, -3.0, -5.0], [-1.0, -2.0, -np.inf]])
    assert data.probs[:, 0] == pytest.approx(weights / weights.sum(axis=1, keepdims=True))
    assert np.isneginf(data.logprobs[1, 0, 2])
    assert [name for name, _ in data.split_by_task()] == ["a", "z"]
    assert data.train.tasks.tolist() == ["a"]


def test_equal_rows_have_equal_fingerprints(warehouse: Warehouse) -> None:
    put_answers(warehouse, {"a": [["1"], ["2"]], "b": [["1"], ["3"]]}, gold=["1", "2"])
    data = load_dataset(warehouse, "sums")
    assert data.fingerprint() == load_dataset(warehouse, "sums").fingerprint()
    assert data.fingerprint() != load_dataset(warehouse, "sums", ["a"]).fingerprint()
    assert data.fingerprint() != data.test.fingerprint()
