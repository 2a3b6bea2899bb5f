"""What a later partition changes in the documents that it shares with an earlier one."""

from __future__ import annotations

from typing import Any

import pytest
from support.rows import SCORES, choice_rows, docs, extraction, set_all

from warehouse import Warehouse
from warehouse.writing import Partition


def partition(model: str, n: int, **columns: Any) -> Partition:
    scores = (SCORES * n)[:n]
    return Partition(set_all(docs(n), **columns), choice_rows(scores, model), extraction(model, n_docs=n))


@pytest.mark.parametrize(
    ("column", "value"), [("split", "train"), ("split", "test"), ("confidential", True), ("prompt_hash", "p")]
)
def test_one_changed_column_is_stored(warehouse: Warehouse, column: str, value: Any) -> None:
    warehouse.put_partitions([partition("a", 2)])
    warehouse.put_partitions([partition("b", 2, **{column: value})])
    assert warehouse.rows(f"SELECT DISTINCT {column} FROM docs") == [(value,)]
    [(n_docs,)] = warehouse.rows("SELECT count(*) FROM docs")
    assert n_docs == 2


def test_what_a_later_partition_does_not_know_stays(warehouse: Warehouse) -> None:
    warehouse.put_partitions([partition("a", 2, confidential=True, prompt_hash="p")])
    warehouse.put_partitions([partition("b", 2, split="test")])
    stored = warehouse.rows("SELECT DISTINCT split, confidential, prompt_hash FROM docs")
    assert stored == [("test", True, "p")]


def test_a_part_of_the_documents_does_not_move_between_train_and_test(warehouse: Warehouse) -> None:
    warehouse.put_partitions([partition("a", 4, split="train")])
    warehouse.put_partitions([partition("b", 2, split="test")])
    assert warehouse.rows("SELECT DISTINCT split FROM docs") == [("train",)]
