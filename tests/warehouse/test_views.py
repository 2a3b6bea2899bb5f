"""Length-normalised accuracy, agreement, calibration and cost in SQL, against numpy and oracles."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import combinations
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.calibration import calibration_curve
from support.pool_oracles import column as numbers
from support.pool_oracles import insert, same

from rlfocal.data.dataset import Kind
from rlfocal.statistics.agreement import agreement, consensus
from rlfocal.statistics.calibration import reliability
from rlfocal.statistics.normalised import likelier_predictions, normalised_predictions
from warehouse import Warehouse
from warehouse.writing import append


def fill(connection: duckdb.DuckDBPyConnection, **tables: Sequence[Mapping[str, Any]]) -> None:
    """Leaves only these rows, all of benchmark b and task t."""
    for table in ("models", "docs", "choice_logprobs", "answer_passes", "extractions"):
        connection.execute(f"DELETE FROM {table}")
    answers = [*tables.get("choice_logprobs", ()), *tables.get("answer_passes", ())]
    named = sorted({row["model"] for row in answers})
    tables["extractions"] = [{"extraction_id": model, "model": model, "n_docs": 0} for model in named]
    for table, rows in tables.items():
        key = {} if table == "models" else {"benchmark": "b", "task": "t"}
        key |= {"split": "test"} if table == "docs" else {}
        insert(connection, table, [{**key, **row} for row in rows])


# Few values, so that choices tie, with and without their lengths.
SCORES = st.sampled_from([-6.0, -4.0, -3.0, -2.0, -1.0, -0.0, -90.0])
TEXTS = st.text(alphabet="aé漢", max_size=3)


@st.composite
def scored(draw: st.DrawFn) -> tuple[np.ndarray, list[list[str]], np.ndarray]:
    """Log-likelihoods (T, N, C), the choices' texts (T, C), labels (T,)."""
    t, n, c = draw(st.integers(1, 4)), draw(st.integers(1, 3)), draw(st.integers(2, 4))
    scores = draw(st.lists(SCORES, min_size=t * n * c, max_size=t * n * c))
    texts = draw(st.lists(st.lists(TEXTS, min_size=c, max_size=c), min_size=t, max_size=t))
    labels = draw(st.lists(st.integers(0, c - 1), min_size=t, max_size=t))
    return np.array(scores).reshape(t, n, c), texts, np.array(labels)


Columns = dict[str, list[Any]]


def fill_scored(
    connection: duckdb.DuckDBPyConnection, scores: np.ndarray, labels: np.ndarray, **more: np.ndarray
) -> tuple[Columns, Columns]:
    """Outcomes and accuracies of scores (T, N, C), with more columns of the same shape."""
    columns = {name: np.broadcast_to(values, scores.shape) for name, values in more.items()}
    choices = [
        {"doc_id": i, "model": f"m{j}", "choice": c, "logprob": x}
        | {name: values[i, j, c].item() for name, values in columns.items()}
        for (i, j, c), x in reversed(list(np.ndenumerate(scores)))
    ]
    docs = [{"doc_id": i, "label": int(y)} for i, y in enumerate(labels)]
    fill(connection, docs=docs, choice_logprobs=choices)
    found = connection.sql("FROM outcomes_norm ORDER BY doc_id, model").to_arrow_table().to_pydict()
    return found, connection.sql("FROM accuracy_norm ORDER BY model").to_arrow_table().to_pydict()


@given(data=scored())
def test_accuracy_norm(
    sql: duckdb.DuckDBPyConnection, data: tuple[np.ndarray, list[list[str]], np.ndarray]
) -> None:
    scores, texts, labels = data
    t, n, _ = scores.shape
    lengths = {
        "": np.array([[len(text) for text in row] for row in texts]),
        "_bytes": np.array([[len(text.encode()) for text in row] for row in texts]),
    }
    wide = {name: lengths[suffix][:, None] for name, suffix in (("n_chars", ""), ("n_bytes", "_bytes"))}
    found, shares = fill_scored(sql, scores, labels, **wide)
    for suffix, name in (("", "acc_norm"), ("_bytes", "acc_bytes")):
        predicted = normalised_predictions(scores, lengths[suffix])
        brute = [
            [_longest(scores[i, j].tolist(), lengths[suffix][i].tolist()) for j in range(n)] for i in range(t)
        ]
        np.testing.assert_array_equal(predicted, brute)
        assert found["prediction" + suffix] == predicted.ravel().tolist()
        right = predicted == labels[:, None]
        assert found["correct" + suffix] == right.ravel().tolist()
        same(numbers(shares[name]), right.mean(axis=0))
        if t > 1:
            stderr = right.std(axis=0, ddof=1) / math.sqrt(t)
            same(numbers(shares[name + "_stderr"]), stderr)
        else:
            assert shares[name + "_stderr"] == [None] * n


def _longest(scores: list[float], lengths: list[int]) -> int:
    per_unit = [x / length if length else -math.inf for x, length in zip(scores, lengths, strict=True)]
    return per_unit.index(max(per_unit))


@given(data=scored(), shift=st.lists(SCORES.filter(math.isfinite), min_size=48, max_size=48))
def test_accuracy_by_mutual_information(
    sql: duckdb.DuckDBPyConnection,
    data: tuple[np.ndarray, list[list[str]], np.ndarray],
    shift: list[float],
) -> None:
    scores, _, labels = data
    t, n, c = scores.shape
    alone = np.array(shift[: scores.size]).reshape(scores.shape)
    found, shares = fill_scored(sql, scores, labels, unconditional_logprob=alone)
    gains = [[[scores[i, j, k] - alone[i, j, k] for k in range(c)] for j in range(n)] for i in range(t)]
    brute = [[row.index(max(row)) for row in document] for document in gains]
    predicted = likelier_predictions(scores, alone)
    np.testing.assert_array_equal(predicted, brute)
    assert found["prediction_mutual_info"] == predicted.ravel().tolist()
    right = predicted == labels[:, None]
    assert found["correct_mutual_info"] == right.ravel().tolist()
    assert found["prediction"] == [None] * (t * n)
    same(numbers(shares["acc_mutual_info"]), right.mean(axis=0))
    stderr = right.std(axis=0, ddof=1) / math.sqrt(t) if t > 1 else np.full(n, np.nan)
    same(numbers(shares["acc_mutual_info_stderr"]), stderr)


def test_mutual_information_needs_every_choice(sql: duckdb.DuckDBPyConnection) -> None:
    choices = [
        {"doc_id": i, "model": m, "choice": k, "logprob": -1.0 - k, "unconditional_logprob": x}
        for m, alone in (("all", [-1.0, -4.0, -1.0, -2.0]), ("some", [-1.0, -4.0, None, -1.0]))
        for (i, k), x in zip([(0, 0), (0, 1), (1, 0), (1, 1)], alone, strict=True)
    ]
    fill(sql, docs=[{"doc_id": i, "label": i} for i in (0, 1)], choice_logprobs=choices)
    # Choice 1 of document 0 gains 2, its choice 0 nothing; both of document 1 gain nothing.
    found = sql.sql("SELECT model, prediction_mutual_info FROM outcomes_norm ORDER BY model, doc_id")
    assert found.fetchall() == [("all", 1), ("all", 0), ("some", 1), ("some", None)]
    shares = sql.sql("SELECT model, acc_mutual_info FROM accuracy_norm ORDER BY model")
    assert shares.fetchall() == [("all", 0.0), ("some", None)]


def test_normalising_needs_every_length(sql: duckdb.DuckDBPyConnection) -> None:
    choices = [
        {"doc_id": i, "model": m, "choice": c, "logprob": -1.0 - c, "n_chars": n, "n_bytes": 2}
        for m, lengths in (("all", [1, 1, 1, 1]), ("some", [1, 1, None, 1]), ("none", [None] * 4))
        for (i, c), n in zip([(0, 0), (0, 1), (1, 0), (1, 1)], lengths, strict=True)
    ]
    fill(sql, docs=[{"doc_id": i, "label": 0} for i in (0, 1)], choice_logprobs=choices)
    assert sql.sql("SELECT model, acc_norm, acc_bytes FROM accuracy_norm ORDER BY model").fetchall() == [
        ("all", 1.0, 1.0),
        ("none", None, 1.0),
        ("some", None, 1.0),
    ]


@st.composite
def said(draw: st.DrawFn) -> tuple[Kind, np.ndarray, np.ndarray]:
    """Predictions (T, N) as codes, -1 for none; labels (T,)."""
    kinds: list[Kind] = ["choices", "answers"]
    kind = draw(st.sampled_from(kinds))
    t, n = draw(st.integers(1, 8)), draw(st.integers(2, 5))
    codes = st.integers(0 if kind == "choices" else -1, draw(st.integers(0, 3)))
    predictions = draw(st.lists(codes, min_size=t * n, max_size=t * n))
    labels = draw(st.lists(st.integers(0, 3), min_size=t, max_size=t))
    return kind, np.array(predictions).reshape(t, n), np.array(labels)


def fill_said(
    connection: duckdb.DuckDBPyConnection, kind: Kind, predictions: np.ndarray, labels: np.ndarray
) -> None:
    docs = [
        {"doc_id": i, "label": int(y) if kind == "choices" else None, "gold": str(y)}
        for i, y in enumerate(labels)
    ]
    at = [({"doc_id": i, "model": f"m{j}"}, int(code)) for (i, j), code in np.ndenumerate(predictions)]
    if kind == "choices":
        rows = [{**key, "choice": c, "logprob": float(c == code)} for key, code in at for c in range(4)]
        fill(connection, docs=docs, choice_logprobs=rows)
    else:
        passes = [{**key, "pass": 0, "answer": str(code) if code >= 0 else None} for key, code in at]
        fill(connection, docs=docs, answer_passes=passes)


@given(data=said())
def test_agreement(sql: duckdb.DuckDBPyConnection, data: tuple[Kind, np.ndarray, np.ndarray]) -> None:
    kind, predictions, labels = data
    fill_said(sql, kind, predictions, labels)
    twin = agreement(predictions, labels)
    rows = sql.sql("FROM agreement('b')").fetchall()
    assert [row[:2] for row in rows] == [
        (f"m{a}", f"m{b}") for a, b in combinations(range(predictions.shape[1]), 2)
    ]
    for model_a, model_b, n, share, same_error in rows:
        a, b = int(model_a[1]), int(model_b[1])
        pairs = [(x, y, z) for x, y, z in zip(predictions[:, a], predictions[:, b], labels, strict=True)]
        wrong = [(x, y) for x, y, z in pairs if x != z and y != z]
        assert n == len(labels)
        assert share == pytest.approx(sum(x == y >= 0 for x, y, _ in pairs) / n, abs=1e-9)
        assert twin.agreement[a, b] == pytest.approx(share, abs=1e-9)
        if wrong:
            assert same_error == pytest.approx(sum(x == y >= 0 for x, y in wrong) / len(wrong), abs=1e-9)
            assert twin.same_error[a, b] == pytest.approx(same_error, abs=1e-9)
        else:
            assert same_error is None
            assert math.isnan(twin.same_error[a, b])


@given(data=said())
def test_consensus(sql: duckdb.DuckDBPyConnection, data: tuple[Kind, np.ndarray, np.ndarray]) -> None:
    kind, predictions, labels = data
    fill_said(sql, kind, predictions, labels)
    twin = consensus(predictions, labels, kind)
    found = sql.sql("FROM consensus ORDER BY doc_id").to_arrow_table().to_pydict()
    codes = found["prediction"] if kind == "choices" else [int(a or -1) for a in found["answer"]]
    assert codes == twin.prediction.tolist()
    assert found["n_agree"] == twin.n_agree.tolist()
    assert found["n_right"] == twin.n_right.tolist() == (predictions == labels[:, None]).sum(axis=1).tolist()
    assert found["correct"] == (twin.prediction == labels).tolist()
    for row, code, n_agree in zip(predictions.tolist(), codes, found["n_agree"], strict=True):
        votes = Counter(x for x in row if x >= 0)
        assert n_agree == max(votes.values(), default=0)
        tied = [x for x in votes if votes[x] == n_agree]
        # Counter keeps the order of the models, who are in alphabetical order.
        assert code == ((min(tied) if kind == "choices" else tied[0]) if tied else -1)


def test_an_unknown_benchmark_has_no_agreement(sql: duckdb.DuckDBPyConnection) -> None:
    fill_said(sql, "choices", np.array([[0, 1]]), np.array([0]))
    with pytest.raises(duckdb.Error, match="no benchmark nowhere"):
        sql.sql("FROM agreement('nowhere')").fetchall()
    with pytest.raises(duckdb.Error, match="nothing of model m9 on benchmark b"):
        sql.sql("FROM best_partner('b', 'm9')").fetchall()


@given(data=said())
def test_best_partner(sql: duckdb.DuckDBPyConnection, data: tuple[Kind, np.ndarray, np.ndarray]) -> None:
    kind, predictions, labels = data
    fill_said(sql, kind, predictions, labels)
    right = predictions == labels[:, None]
    for j in {0, predictions.shape[1] - 1}:
        rows = sql.execute("FROM best_partner('b', ?)", [f"m{j}"]).fetchall()
        assert {row[0] for row in rows} == {f"m{i}" for i in range(right.shape[1]) if i != j}
        rescued = [row[3] for row in rows]
        assert rescued == sorted(rescued, key=lambda share: -share if share is not None else 0)
        for partner, n, accuracy, share, either_right, double_fault in rows:
            mine, theirs = right[:, j], right[:, int(partner[1])]
            assert (n, accuracy) == (len(labels), pytest.approx(theirs.mean()))
            assert share == (pytest.approx(theirs[~mine].mean()) if not mine.all() else None)
            assert either_right == pytest.approx((mine | theirs).mean())
            assert double_fault == pytest.approx(1 - (mine | theirs).mean())


@pytest.mark.parametrize("bins", [1, 4, 10, 15])
def test_calibration(sql: duckdb.DuckDBPyConnection, bins: int) -> None:
    rng = np.random.default_rng(bins)
    scores, labels = rng.normal(size=(200, 3, 4)) * 2, rng.integers(0, 4, 200)
    fill_scored(sql, scores, labels)
    probs = np.exp(scores) / np.exp(scores).sum(axis=2, keepdims=True)
    for j in range(3):
        table = sql.execute(f"FROM calibration('b', bins := {bins}) WHERE model = 'm{j}'").to_arrow_table()
        found = table.to_pydict()
        confidence, right = probs[:, j].max(axis=1), probs[:, j].argmax(axis=1) == labels
        twin = reliability(confidence, right, bins)
        assert (found["bin"], found["n"]) == (twin.bin.tolist(), twin.n.tolist())
        assert sum(found["n"]) == 200
        accuracy, mean_confidence = calibration_curve(right, confidence, n_bins=bins)
        for shown, ours, theirs in (
            ("accuracy", twin.accuracy, accuracy),
            ("confidence", twin.confidence, mean_confidence),
        ):
            same(found[shown], ours)
            same(ours, theirs)


def test_calibration_of_answers(sql: duckdb.DuckDBPyConnection) -> None:
    """Shares lie on the bins' edges; the highest is in the last bin, and no answer in none."""
    given_answers: dict[int, Sequence[str | None]] = {
        0: ["7"] * 10,
        1: ["7"] * 3 + [None] * 7,
        2: ["8"] * 7 + ["7"] * 3,
        3: [None] * 10,
    }
    fill(
        sql,
        docs=[{"doc_id": i, "gold": "7"} for i in given_answers],
        answer_passes=[
            {"doc_id": i, "model": "m", "pass": p, "answer": answer}
            for i, passes in given_answers.items()
            for p, answer in enumerate(passes)
        ],
    )
    rows = sql.sql("SELECT bin, n, confidence, accuracy FROM calibration('b')").fetchall()
    assert rows == [(3, 1, 0.3, 1.0), (7, 1, 0.7, 0.0), (9, 1, 1.0, 1.0)]
    twin = reliability(np.array([1.0, 0.3, 0.7, np.nan]), np.array([True, True, False, False]))
    assert list(zip(*(column.tolist() for column in twin), strict=True)) == rows
    assert twin.expected_error == pytest.approx((0.7 + 0.7 + 0) / 3)
    assert reliability(np.array([0.29]), np.array([True]), bins=100).bin.tolist() == [29]


def test_cost(warehouse: Warehouse) -> None:
    """On the frontier are a and b: c is dearer than b, no better; d as dear as a, worse; e has no price."""
    right = {"a": 4, "b": 8, "c": 8, "d": 2, "e": 9}
    prices = {"a": 1.0, "b": 3.0, "c": 5.0, "d": 1.0, "e": None}
    with warehouse.transaction("fill"):
        key = {"benchmark": "b", "task": "t"}
        tables: dict[str, list[dict[str, Any]]] = {
            "models": [{"model": m, "price": price} for m, price in prices.items()],
            "docs": [{**key, "doc_id": i, "label": 0, "split": "test"} for i in range(10)],
            "choice_logprobs": [
                {**key, "doc_id": i, "model": m, "choice": c, "logprob": -1.0 if c == (i >= n) else -2.0}
                for m, n in right.items()
                for i in range(10)
                for c in (0, 1)
            ],
        }
        for table, rows in tables.items():
            warehouse.append(table, pa.Table.from_pylist(rows))
    assert warehouse.rows("SELECT * EXCLUDE (benchmark, n) FROM model_cost ORDER BY model") == [
        ("a", 0.4, 1.0, 2.5, True, None),
        ("b", 0.8, 3.0, 3.75, True, 2.0 / 40),
        ("c", 0.8, 5.0, 6.25, False, None),
        ("d", 0.2, 1.0, 5.0, False, None),
        ("e", 0.9, None, None, False, None),
    ]
    pools = (
        "SELECT pool_cost(['a', 'b', 'b']), pool_cost(['a', 'e']), pool_cost(['a', 'unknown']), pool_cost([])"
    )
    assert warehouse.rows(pools) == [(4.0, None, None, None)]
    of_all = "SELECT models, pool_cost(models) FROM all_pools('b', 3) WHERE NOT list_contains(models, 'e')"
    assert {tuple(models): cost for models, cost in warehouse.rows(of_all)} == {
        pool: sum(prices[m] or 0 for m in pool) for size in (2, 3) for pool in combinations("abcd", size)
    }


@st.composite
def runs(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Runs of a few methods on two pools, whose data change; the oldest first."""
    n = draw(st.integers(1, 12))
    return [
        {
            "run_id": f"r{draw(st.integers(0, 99))}-{at}",
            "benchmark": "b",
            "method": draw(st.sampled_from("xy")),
            "study": draw(st.sampled_from([None, None, "window"])),
            "seed": draw(st.sampled_from([None, 0])),
            "models": draw(st.sampled_from([["k"], ["k", "m"]])),
            "data": draw(st.sampled_from(["first", "second"])),
            "protocol": "frozen",
            "per": draw(st.sampled_from(["benchmark", "task"])),
            "split": "test",
            "created_at": datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=at),
        }
        for at in range(n)
    ]


@given(runs())
def test_current_evaluations(sql: duckdb.DuckDBPyConnection, found: list[dict[str, Any]]) -> None:
    """By the definition: of each pool the newest data, there each method's newest run; no study's."""
    rows = [run | {"task": task} for run in found for task in ("*", "t")]
    sql.execute("DELETE FROM evaluations")
    append(sql, "evaluations", pa.Table.from_pylist(rows))
    eligible = [run for run in found if run["study"] is None]
    newest_data = {(tuple(run["models"]), run["per"]): run["data"] for run in eligible}
    newest = {
        (tuple(run["models"]), run["per"], run["method"], run["seed"]): run["run_id"]
        for run in eligible
        if run["data"] == newest_data[tuple(run["models"]), run["per"]]
    }
    shown = sql.execute("SELECT run_id, task FROM current_evaluations").fetchall()
    assert sorted(shown) == sorted((run, task) for run in newest.values() for task in ("*", "t"))


def test_probes_have_each_estimates_own_interval(warehouse: Warehouse) -> None:
    estimates = {"accuracy": (0.5, 0.4, 0.6), "gain": (0.1, -0.2, 0.3), "swap": (0.0, -0.1, 0.7)}
    key = {"probe_id": "p", "model": "m", "benchmark": "b", "other": ""}
    rows = [
        {**key, "metric": metric, "value": value, "low": low, "high": high}
        for metric, (value, low, high) in estimates.items()
    ]
    insert(warehouse.connection, "probe_estimates", rows)
    columns = "accuracy, accuracy_low, accuracy_high, gain, gain_low, gain_high"
    assert warehouse.rows(f"SELECT {columns} FROM probes") == [estimates["accuracy"] + estimates["gain"]]
