"""In which round each model was asked, through renames."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa

from warehouse import Warehouse
from warehouse.corrections import rename_model
from warehouse.integrity import examine
from warehouse.writing import digest_runs

MODELS = ["a", "b", "c", "d"]


def store(warehouse: Warehouse, run: str, rounds: dict[str, int]) -> None:
    pool = sorted(rounds)
    keyed = pa.array([[{"model": m, "round": n} for m, n in rounds.items()]])
    run_row = {"run_id": run, "benchmark": "b", "task": "*", "method": "m", "models": pool}
    about = {"snapshot": warehouse.snapshot(), "created_at": datetime.now(UTC), "n": 1, "accuracy": 1.0}
    with warehouse.transaction(f"evaluate {run}"):
        warehouse.append("evaluations", pa.Table.from_pylist([run_row | about]))
        decided = {"run_id": [run], "benchmark": ["b"], "task": ["t"], "doc_id": [0], "pool": [pool]}
        decided["correct"] = [True]
        warehouse.append("decisions", pa.table(decided | {"rounds": keyed}))
        digest_runs(warehouse.connection, "run_id = ?", [run])


def stored(warehouse: Warehouse) -> dict[str, dict[str, int] | None]:
    rows = [
        (run, pool, None if rounds is None else {r["model"]: r["round"] for r in rounds})
        for run, pool, rounds in warehouse.rows("SELECT run_id, pool, rounds FROM decisions")
    ]
    for _, pool, rounds in rows:
        assert pool == sorted(pool)
        assert rounds is None or sorted(rounds) == pool
    return {run: rounds for run, _, rounds in rows}


def add_models(warehouse: Warehouse) -> None:
    with warehouse.transaction("models"):
        warehouse.append("models", pa.table({"model": MODELS}))


def test_rounds_follow_a_renamed_model(warehouse: Warehouse) -> None:
    add_models(warehouse)
    store(warehouse, "r", {"a": 3, "b": 1, "d": 2})
    store(warehouse, "altered", {"a": 1})
    with warehouse.transaction("alter"):
        warehouse.connection.execute("UPDATE decisions SET probability = 1 WHERE run_id = 'altered'")
    assert altered(warehouse) == {"altered"}
    rename_model(warehouse, "a", "z")
    assert stored(warehouse) == {"r": {"z": 3, "b": 1, "d": 2}, "altered": {"z": 1}}
    assert altered(warehouse) == {"altered"}


def altered(warehouse: Warehouse) -> set[str]:
    return {run.run_id for run in examine(warehouse).runs or () if "altered" in run.reason}
