"""A warehouse with something of each kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pytest

from support.rows import SCORES, answer_rows, choice_rows, docs, extraction
from warehouse import Warehouse, open_warehouse
from warehouse.writing import digest_runs

ODD = "b=c, 100% é"  # a task whose name a folder cannot bear as it is


def set_all(table: pa.Table, **values: Any) -> pa.Table:
    for name, value in values.items():
        column = pa.array([value] * len(table))
        if name in table.column_names:
            table = table.set_column(table.column_names.index(name), name, column)
        else:
            table = table.append_column(name, column)
    return table


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    """Choices of two models, odd names of tasks, answers, GPQA, flagged documents; two runs."""
    with open_warehouse(tmp_path_factory.mktemp("filled") / "warehouse") as warehouse:
        for benchmark, task, model in [
            ("b", "t", "m"),
            ("b", "t", "other"),
            ("b", ODD, "m"),
            ("b", "01", "m"),
            ("gpqa@chat", "main", "m"),
            ("flagged", "t", "m"),
        ]:
            place = {"benchmark": benchmark, "task": task}
            texts = set_all(docs(5), **place, confidential=benchmark == "flagged")
            rows = set_all(choice_rows((SCORES * 3)[:5], model), **place, token_ids=[17, 4])
            warehouse.put_partition(texts, rows, extraction(model, n_docs=5) | place)
        place = {"benchmark": "answers"}
        given = set_all(docs(5), **place).drop_columns(["choices", "label"])
        passes: list[list[str | None]] = [
            ["yes", None],
            ["no", "no"],
            ["yes", "no"],
            [None, None],
            ["1", "2"],
        ]
        rows = set_all(answer_rows(passes), **place, text="It is 'so', \"they\" say")
        warehouse.put_partition(given, rows, extraction(n_docs=5) | place)
        with warehouse.transaction("runs"):
            runs = {"run_id": ["one", "both"], "task": ["*", "*"], "benchmark": ["b", "b"]}
            pools = pa.array([["m"], ["m", "other"]])
            warehouse.append("evaluations", pa.table(runs | {"models": pools}))
            warehouse.append(
                "decisions", pa.table(runs | {"task": ["t", "t"], "doc_id": [0, 0], "pool": pools})
            )
            digest_runs(warehouse.connection, "true")
        yield warehouse
