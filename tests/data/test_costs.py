"""What queries cost: by tokens where they and their prices are known, else the flat price, and never 0."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from support.rows import put_choices

from rlfocal.data.loading import load_dataset
from rlfocal.evaluation import evaluate
from rlfocal.methods import entries
from warehouse import Warehouse

N = 4


@pytest.fixture
def priced(warehouse: Warehouse) -> Warehouse:
    """`a` has token prices and a flat one, `b` a flat one, `c` token prices but no counted prompts."""
    put_choices(warehouse, {"a": [True] * N, "b": [True] * N, "c": [False] * N})
    with warehouse.transaction("prices"):
        warehouse.connection.execute("UPDATE models SET price = 7 WHERE model IN ('a', 'b')")
        warehouse.connection.execute(
            "UPDATE models SET price_input = 50, price_output = 200 WHERE model IN ('a', 'c')"
        )
        warehouse.connection.execute(
            "UPDATE choice_logprobs SET n_prompt_tokens = 100 + doc_id, n_tokens = 1 + choice "
            "WHERE model = 'a'"
        )
    return warehouse


def test_costs_are_by_tokens_else_flat_else_unknown(priced: Warehouse) -> None:
    data = load_dataset(priced, "b")
    by_hand = [((100 + doc) * 50 + 2 * 200) / 1_000_000 * 1_000 for doc in range(N)]
    np.testing.assert_allclose(data.costs[:, 0], by_hand)
    assert data.costs[:, 1].tolist() == [7.0] * N
    assert np.isnan(data.costs[:, 2]).all()
    in_sql = priced.rows("SELECT doc_id, model, cost FROM query_costs WHERE benchmark = 'b' ORDER BY ALL")
    assert {(doc, model): cost for doc, model, cost in in_sql} == {
        (doc, model): None if np.isnan(cost) else pytest.approx(cost)
        for doc, row in enumerate(data.costs)
        for model, cost in zip("abc", row.tolist(), strict=True)
    }


def test_prices_are_flat_else_by_tokens_of_train_documents(priced: Warehouse) -> None:
    with priced.transaction("only by tokens"):
        priced.connection.execute("UPDATE models SET price = NULL WHERE model = 'a'")
    data = load_dataset(priced, "b")
    assert data.is_train.tolist() == [True, False] * (N // 2)
    np.testing.assert_allclose(data.prices, [data.costs[::2, 0].mean(), 7, np.nan])
    with priced.transaction("one was not counted"):
        priced.connection.execute("UPDATE choice_logprobs SET n_prompt_tokens = NULL WHERE doc_id = 0")
    np.testing.assert_allclose(load_dataset(priced, "b").prices, [data.costs[2, 0], 7, np.nan])


@pytest.mark.parametrize("name", [n for n, one in entries().items() if "prices" in one.needs])
def test_what_needs_prices_takes_those_by_tokens(priced: Warehouse, name: str) -> None:
    """As of pools/modern.yaml, of which no model has a flat price."""
    with priced.transaction("only by tokens"):
        priced.connection.execute("UPDATE models SET price = NULL, price_input = 50, price_output = 200")
        priced.connection.execute("UPDATE choice_logprobs SET n_prompt_tokens = 100, n_tokens = 1")
        priced.connection.execute("UPDATE docs SET question = 'question ' || doc_id, choices = ['yes', 'no']")
    data = load_dataset(priced, "b")
    lacking = entries()[name].explain_missing(data, "frozen") or ""
    assert "price" not in lacking
    if not lacking:
        assert [row.cost for row in evaluate(priced, "b", methods=[name]).rows if row.task == "*"]


def test_an_evaluation_costs_what_its_calls_cost(priced: Warehouse) -> None:
    data = load_dataset(priced, "b")
    rows = evaluate(priced, "b", methods=["single:a", "single:b", "single:c", "plurality"]).rows
    cost = {row.method: row.cost for row in rows if row.task == "*"}
    assert cost["single:a"] == pytest.approx(data.test.costs[:, 0].mean())
    assert cost["single:b"] == 7
    assert cost["single:c"] is None
    assert cost["plurality"] is None


def test_all_passes_of_a_query_are_paid_and_their_prompt_once(warehouse: Warehouse) -> None:
    keys = {"benchmark": ["g"] * 4, "task": ["t"] * 4, "doc_id": [0, 0, 1, 1], "model": ["m"] * 4}
    given = {"pass": [0, 1, 0, 1], "answer": ["1", "2", "1", None], "n_tokens": [10, 20, 30, None]}
    with warehouse.transaction("fill"):
        docs = {"benchmark": ["g"] * 2, "task": ["t"] * 2, "doc_id": [0, 1], "gold": ["1", "1"]}
        warehouse.append("docs", pa.table(docs | {"split": ["train", "test"]}))
        warehouse.append(
            "models", pa.table({"model": ["m"], "price_input": [1000.0], "price_output": [10.0]})
        )
        warehouse.append("answer_passes", pa.table(keys | given | {"n_prompt_tokens": [5] * 4}))
    found = warehouse.rows("SELECT doc_id, cost FROM query_costs ORDER BY doc_id")
    assert found == [(0, pytest.approx((5 * 1000 + 30 * 10) / 1000)), (1, None)]


def test_other_token_prices_make_another_run_of_the_same_data(priced: Warehouse) -> None:
    before = evaluate(priced, "b", methods=["best_single"])
    assert not evaluate(priced, "b", methods=["best_single"]).ran
    with priced.transaction("dearer"):
        priced.connection.execute("UPDATE models SET price_input = 500 WHERE model = 'a'")
    after = evaluate(priced, "b", methods=["best_single"])
    assert after.ran
    assert {row.data for row in after.rows} == {row.data for row in before.rows}
