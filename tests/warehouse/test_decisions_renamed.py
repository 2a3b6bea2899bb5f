"""In which round each model was asked, through renames: those of today, and those before rounds had a key."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa

from warehouse import Warehouse
from warehouse.upkeep.corrections import rename_model

MODELS = ["a", "b", "c", "d"]
FORMER_RENAME = (
    "UPDATE evaluations SET models = list_sort(list_append(list_filter(models, lambda m: m <> $old), $new)) "
    "WHERE list_contains(models, $old)",
    "UPDATE decisions SET pool = list_sort(list_append(list_filter(pool, lambda m: m <> $old), $new)) "
    "WHERE list_contains(pool, $old)",
    "INSERT INTO renames VALUES ($old, $new, now())",
)
"""What versions before schema 10 did: `pool` was sorted anew, `rounds` was not."""


def store(warehouse: Warehouse, run: str, rounds: dict[str, int], *, by_model: bool) -> None:
    pool = sorted(rounds)
    in_order = pa.array([[rounds[m] for m in pool]], pa.list_(pa.int32()))
    keyed = pa.array([[{"model": m, "round": n} for m, n in rounds.items()]])
    run_row = {"run_id": run, "benchmark": "b", "task": "*", "method": "m", "models": pool}
    about = {"snapshot": warehouse.snapshot(), "created_at": datetime.now(UTC)}
    with warehouse.transaction(f"evaluate {run}"):
        warehouse.append("evaluations", pa.Table.from_pylist([run_row | about]))
        decided = {"run_id": [run], "benchmark": ["b"], "task": ["t"], "doc_id": [0], "pool": [pool]}
        warehouse.append("decisions", pa.table(decided | {"rounds": keyed if by_model else in_order}))


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
    store(warehouse, "r", {"a": 3, "b": 1, "d": 2}, by_model=True)
    rename_model(warehouse, "a", "z")
    assert stored(warehouse) == {"r": {"z": 3, "b": 1, "d": 2}}
