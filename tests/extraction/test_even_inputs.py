"""What every macro does with names that do not exist, NULL, empty splits, and pools of none and one."""

from __future__ import annotations

from functools import cache

import duckdb
import numpy as np
import pytest
from support.pool_oracles import Answers, fill, insert
from support.sql import KNOWN, MACROS, rounded

REFUSED = [
    ("benchmark", "'nowhere'", "no benchmark nowhere"),
    ("benchmark", "NULL", "name a benchmark, not NULL"),
    ("task", "'x'", "no task x in benchmark b"),
    ("task", "NULL", "no task NULL in benchmark b"),
    ("task", "['t00', 'x']", "no task x in benchmark b"),
    ("task", "[]", "name at least one task"),
    ("split", "'dev'", "split dev is neither train nor test"),
    ("split", "NULL", "split NULL is neither train nor test"),
    ("models", "['nobody', 'm01']", "nothing of model nobody on benchmark b"),
    ("models", "[NULL, 'm01']", "nothing of model NULL on benchmark b"),
]


ONE_TASK = {"task": "'t00'", "split": "'test'"}
OWN_CHECKS = ("pairwise_diversity", "pool_documents", "calibration", "best_partner", "compare_models")
"""Macros that reach the checks each in another way; the others only have to hand on what is given."""


@pytest.fixture(scope="module")
def sql(sql: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """Three models on four documents of two tasks, all of split test."""
    predictions = np.array([[0, 1, 0], [1, 1, 2], [2, 0, 2], [3, 3, 3]])
    fill(sql, Answers("choices", predictions, np.array([0, 1, 2, 0]), np.ones((4, 3), bool)))
    return sql


@cache
def rows(sql: duckdb.DuckDBPyConnection, macro: str, **changed: str) -> list[tuple[object, ...]]:
    """What several tests ask is asked once: planning such a query takes longer than running it."""
    return sql.execute(f"FROM {macro}({MACROS[macro].format(**KNOWN | changed)})").fetchall()


@pytest.mark.parametrize("macro", MACROS)
def test_names_that_do_not_exist_are_refused_in_the_same_words(
    sql: duckdb.DuckDBPyConnection, macro: str
) -> None:
    first = {parameter: value for parameter, value, _ in reversed(REFUSED)}
    for parameter, value, message in REFUSED:
        if f"{{{parameter}}}" in MACROS[macro] and (macro in OWN_CHECKS or value == first[parameter]):
            with pytest.raises(duckdb.Error, match=message):
                rows(sql, macro, **{parameter: value})


@pytest.mark.parametrize("macro", MACROS)
def test_an_empty_split_is_no_error(sql: duckdb.DuckDBPyConnection, macro: str) -> None:
    """Nothing to list; of one pool or one comparison, a row that says n = 0 and knows nothing else."""
    if "{split}" not in MACROS[macro]:
        return
    found = rows(sql, macro, split="'train'")
    if macro == "pool_diversity":
        assert [row[:2] for row in found] == [(0, 2)]
        assert {value for row in found for value in row[2:]} == {None}
    elif macro == "compare_models":
        assert found == [(0, None, None, None, None, 0, 0, None)]
    elif macro == "ceiling":
        assert [row[:2] for row in found] == [(0, 0)]
        assert {value for row in found for value in row[2:]} == {None}
    else:
        assert found == []


@pytest.mark.parametrize("macro", MACROS)
def test_a_list_of_all_tasks_is_all_tasks(sql: duckdb.DuckDBPyConnection, macro: str) -> None:
    every = rounded(rows(sql, macro))
    assert rounded(rows(sql, macro, task="['t00', 't01']")) == every
    one = rounded(rows(sql, macro, task="['t00']"))
    assert one == rounded(rows(sql, macro, **ONE_TASK))
    assert one != every or macro in ("pass_at_k", "all_pools", "calibration", "flipped_by_models")


@pytest.mark.parametrize("macro", MACROS)
def test_every_argument_may_be_a_column_and_nothing_is_in_use(
    sql: duckdb.DuckDBPyConnection, macro: str
) -> None:
    expected = rows(sql, macro, **ONE_TASK)
    columns = ", ".join(f"{value} AS {name}" for name, value in (KNOWN | ONE_TASK).items())
    arguments = MACROS[macro].format(**{name: f"v.{name}" for name in KNOWN})
    sql.execute("USE memory")
    try:
        call = f"SELECT m.* FROM (SELECT {columns}) AS v, warehouse.{macro}({arguments}) AS m"
        assert rounded(sql.execute(call).fetchall()) == rounded(expected)
    finally:
        sql.execute("USE warehouse")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("all_pools('b', 0)", "max_size must be at least 1"),
        ("all_pools('b', NULL)", "max_size must be at least 1"),
        ("all_pools('b', 3, models := [])", "name at least one model"),
        ("pool_diversity('b', [])", "name at least one model"),
        ("pool_diversity('b', '*')", "name each model: "),
        ("compare_models('b', '*', 'm01')", "name each model: "),
        ("flipped_by_models('b', 'm01', '*')", "name each model: "),
        ("best_partner('b', '*')", "name each model: "),
        ("best_partner('b', 'm01', models := [])", "name at least one model"),
        ("pool_diversity('b', NULL)", "nothing of model NULL"),
        ("pool_diversity_over_time('b', [], 5)", "name at least one model"),
        ("pool_diversity_over_time('b', ['m00'], 0)", "window must be at least 1"),
        ("pool_diversity_over_time('b', ['m00'], -5)", "window must be at least 1"),
        ("pool_diversity_over_time('b', ['m00'], NULL)", "window must be at least 1"),
        ("calibration('b', bins := 0)", "bins must be at least 1"),
        ("calibration('b', bins := NULL)", "bins must be at least 1"),
        ("pass_at_k('b', 0)", "k must be at least 1"),
        ("compare_models('b', 'm00', NULL)", "nothing of model NULL"),
    ],
)
def test_numbers_out_of_range_are_refused(sql: duckdb.DuckDBPyConnection, call: str, message: str) -> None:
    with pytest.raises(duckdb.Error, match=message):
        sql.execute(f"FROM {call}").fetchall()


def test_one_model_has_no_pairs(sql: duckdb.DuckDBPyConnection) -> None:
    alone = "models := ['m00']"
    calls = [f"pairwise_diversity('b', {alone})", f"agreement('b', {alone})", f"all_pools('b', 3, {alone})"]
    for call in (*calls, f"best_partner('b', 'm00', {alone})", "all_pools('b', 1)"):
        assert sql.execute(f"FROM {call}").fetchall() == []
    [(n, size, accuracy)] = sql.execute(
        "SELECT n, size, plurality_accuracy FROM pool_diversity('b', ['m00', 'm00'])"
    ).fetchall()
    assert (n, size, accuracy) == (4, 1, 0.75)


def test_a_benchmark_that_nobody_answered_has_no_rows(sql: duckdb.DuckDBPyConnection) -> None:
    insert(sql, "docs", [{"benchmark": "new", "task": "t", "doc_id": 0, "label": 0, "split": "test"}])
    for call in (
        "pairwise_diversity('new')",
        "all_pools('new', 3)",
        "model_scores('new')",
        "agreement('new')",
    ):
        assert sql.execute(f"FROM {call}").fetchall() == []
