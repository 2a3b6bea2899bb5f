"""In which round each model was asked, through renames: those of today, and those before rounds had a key."""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from warehouse import Warehouse, open_warehouse
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


def to_schema_9(warehouse: Warehouse) -> None:
    for statement in (
        "ALTER TABLE decisions DROP COLUMN rounds",
        "ALTER TABLE decisions ADD COLUMN rounds INT[]",
        "ALTER TABLE decisions DROP COLUMN answer",
        "ALTER TABLE decisions DROP COLUMN prediction",
        "ALTER TABLE decisions ADD COLUMN prediction VARCHAR",
        "UPDATE schema_version SET version = 9",
    ):
        warehouse.connection.execute(statement)


@pytest.mark.parametrize("seed", range(4))
def test_the_upgrade_repairs_what_earlier_renames_broke(tmp_path: Path, seed: int) -> None:
    """Runs and renames in any order, names that come back included; a run asked for again seems newer."""
    draw = random.Random(seed)
    with open_warehouse(tmp_path / "w") as warehouse:
        add_models(warehouse)
        to_schema_9(warehouse)
        names, expected = dict(zip(MODELS, MODELS, strict=True)), {}
        asked: dict[str, dict[str, int]] = {}
        for step in range(8):
            if step % 2 == 0:
                some = draw.sample(MODELS, 3)
                asked[f"r{step}"] = {model: draw.randint(1, 3) for model in some}
                store(
                    warehouse,
                    f"r{step}",
                    {names[m]: n for m, n in asked[f"r{step}"].items()},
                    by_model=False,
                )
            else:
                model = draw.choice(MODELS)
                new = draw.choice(sorted({"a", "b", "e", "f", "z"} - set(names.values())))
                with warehouse.transaction(f"rename {names[model]} to {new}"):
                    for statement in FORMER_RENAME:
                        parameters = {"old": names[model], "new": new}
                        warehouse.connection.execute(statement, parameters)
                names[model] = new
                time.sleep(0.002)
        warehouse.connection.execute("UPDATE evaluations SET created_at = now() WHERE run_id = 'r0'")
        expected = {run: {names[m]: n for m, n in of.items()} for run, of in asked.items()}
    with open_warehouse(tmp_path / "w", read_only=True) as warehouse:
        shown = stored(warehouse)
        assert all(rounds in (None, expected[run]) for run, rounds in shown.items())
    with open_warehouse(tmp_path / "w") as warehouse:
        assert stored(warehouse) == expected


def test_rounds_that_cannot_be_known_become_null(tmp_path: Path) -> None:
    with open_warehouse(tmp_path / "w") as warehouse:
        add_models(warehouse)
        to_schema_9(warehouse)
        for run, rounds in (("gone", {"a": 2, "b": 1}), ("other", {"b": 2, "c": 1})):
            store(warehouse, run, rounds, by_model=False)
        with warehouse.transaction("rename a to z"):
            for statement in FORMER_RENAME:
                warehouse.connection.execute(statement, {"old": "a", "new": "z"})
        warehouse.connection.execute("DELETE FROM evaluations WHERE run_id = 'gone'")
    with open_warehouse(tmp_path / "w") as warehouse:
        assert stored(warehouse) == {"gone": None, "other": {"b": 2, "c": 1}}
