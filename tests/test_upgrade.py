"""Warehouses of older schemas: what their rows said, they say still, upgraded or only read."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from rlfocal.evaluation.storing import stored
from warehouse import open_warehouse, opening
from warehouse.connecting import attach, connect
from warehouse.locations import locate
from warehouse.opening import SCHEMA_VERSION

CALLED = [
    ("plurality", None, "plurality", None, {}),
    ("rl_focal", "paper", "rl_focal", None, {}),
    ("rl_focal", "sequential", "rl_focal_sequential", None, {}),
    ("rl_focal", "released", "rl_focal_released", None, {}),
    (
        "rl_focal",
        "paper[metrics=kappa+focal_diversity,size_penalty=0.6,branching=true,size=3]",
        "rl_focal",
        "unknown",
        {"metrics": "kappa+focal_diversity", "size_penalty": 0.6, "branching": True, "size": 3},
    ),
    ("rl_focal", "released[without x]", "rl_focal_released", "unknown", {"without x": True}),
    ("best_single", "[switch=s>t]", "best_single", "unknown", {"switch": "s>t"}),
]
"""(method, variant) before schema 6, and method, study and settings since."""


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A warehouse as schema 5 left it."""
    with open_warehouse(tmp_path / "w") as warehouse, warehouse.transaction("schema 5"):
        for statement in (
            "DROP VIEW current_evaluations",
            "ALTER TABLE evaluations DROP COLUMN study",
            "ALTER TABLE evaluations DROP COLUMN settings",
            "ALTER TABLE evaluations ADD COLUMN variant VARCHAR",
            "ALTER TABLE training_history ADD COLUMN variant VARCHAR",
            "UPDATE schema_version SET version = 5",
        ):
            warehouse.connection.execute(statement)
        rows = [
            {"run_id": f"r{at}", "benchmark": "b", "task": "*", "method": method, "variant": variant}
            | {"protocol": "frozen", "per": "benchmark", "split": "test", "n": 4, "accuracy": at / 10}
            | {"models": ["m"], "data": "d", "snapshot": 1}
            for at, (method, variant, *_) in enumerate(CALLED)
        ]
        warehouse.append("evaluations", pa.Table.from_pylist(rows))
        history = [
            {"run_id": f"r{at}", "method": "rl_focal", "variant": variant, "phase": "fusion", "reward": 0.5}
            for at, variant in ((1, "paper"), (2, "sequential"))
        ]
        warehouse.append("training_history", pa.Table.from_pylist(history))
    return tmp_path / "w"


@pytest.mark.parametrize("read_only", [True, False])
def test_variants_become_methods_and_studies_columns(old: Path, read_only: bool) -> None:
    with open_warehouse(old, read_only=read_only) as warehouse:
        said = warehouse.rows("SELECT method, study, settings FROM evaluations ORDER BY run_id")
        assert [(m, study, json.loads(settings)) for m, study, settings in said] == [
            tuple(after) for _, _, *after in CALLED
        ]
        assert [row.settings for row in stored(warehouse, ["r4"])] == [CALLED[4][4]]
        shown = warehouse.rows("SELECT run_id FROM current_evaluations ORDER BY 1")
        assert shown == [("r0",), ("r1",), ("r2",), ("r3",)]
        phases = warehouse.rows("SELECT method, phase FROM training_history ORDER BY run_id")
        assert phases == [("rl_focal", "fusion"), ("rl_focal_sequential", "stage")]
        [(version,)] = warehouse.rows("SELECT max(version) FROM schema_version")
        assert version == (5 if read_only else SCHEMA_VERSION)
    if not read_only:
        with open_warehouse(old) as again:
            assert again.rows("SELECT count(*) FROM evaluations") == [(len(CALLED),)]


def test_a_warehouse_that_another_process_makes_meanwhile_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = locate(tmp_path / "w")
    (tmp_path / "w").mkdir()
    with connect(postgres=False) as bare:
        attach(bare, place, read_only=False, create=True, snapshot=None)
    real = connect

    class Late:
        """A connection before whose second question another process makes the tables."""

        def __init__(self) -> None:
            self.connection = real(postgres=False)
            self.asked: list[str] = []

        def execute(self, query: str, *more: object) -> object:
            self.asked.append(query)
            if query == "SHOW TABLES":
                monkeypatch.setattr(opening, "connect", real)
                open_warehouse(place).close()
            return self.connection.execute(query, *more)

        def close(self) -> None:
            self.connection.close()

    late = Late()
    monkeypatch.setattr(opening, "connect", lambda postgres: late)
    open_warehouse(place, read_only=True)
    assert "SHOW TABLES" in late.asked
    late.close()
