"""Macros read the warehouse as of a snapshot or a time, beside the present in one statement."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support.rows import THREE, choice_rows, docs, extraction
from support.sql import KNOWN, MACROS, rounded
from typer.testing import CliRunner

from rlfocal.base.errors import InputError
from rlfocal.cli.app import app
from rlfocal.exchange.sql import run_sql
from warehouse import open_warehouse, opening
from warehouse.connecting import connect
from warehouse.scripts import quote

NAMES = KNOWN | {"models": "['a', 'b']"}
WORSE = [[-2.0, -1.0, -5.0]] * 3


def call(macro: str, **changed: str) -> str:
    return f"{macro}({MACROS[macro].format(**NAMES | changed)})"


def put(place: Path, model: str, scores: list[list[float]]) -> None:
    with open_warehouse(place) as warehouse:
        warehouse.put_partition(docs(3), choice_rows(scores, model), extraction(model, n_docs=3))


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, datetime, dict[str, Any]]:
    """A warehouse, a snapshot that it has changed since, its time, and what macros returned then."""
    place = tmp_path_factory.mktemp("lake") / "w"
    put(place, "a", THREE)
    put(place, "b", WORSE)
    with open_warehouse(place) as warehouse:
        then = {macro: rounded(warehouse.rows(f"FROM {call(macro)}")) for macro in MACROS}
        number = warehouse.snapshot()
        [(time,)] = warehouse.rows("SELECT max(snapshot_time) FROM warehouse.snapshots()")
    put(place, "c", THREE)
    put(place, "a", WORSE)
    with open_warehouse(place) as warehouse, warehouse.transaction("price"):
        warehouse.connection.execute("UPDATE models SET price = 3 WHERE model = 'a'")
    return place, number, time, then


@pytest.mark.parametrize("macro", MACROS)
def test_as_of_a_snapshot_without_use(lake: tuple[Path, int, datetime, dict[str, Any]], macro: str) -> None:
    place, number, time, then = lake
    with connect(postgres=False) as connection:
        address = quote(f"ducklake:sqlite:{place / 'catalog.sqlite'}")
        connection.execute(f"ATTACH {address} AS warehouse (READ_ONLY)")
        as_text = (f"'{number}'", f"'{time.isoformat()}'") if macro == "pool_diversity" else ()
        for snapshot in (*as_text, str(number), f"TIMESTAMPTZ '{time}'"):
            past = f"warehouse.{call(macro)[:-1]}, {parameter(macro)} := {snapshot})"
            assert rounded(connection.execute(f"FROM {past}").fetchall()) == then[macro]
        if macro not in ("pass_at_k", "flipped_by_models"):  # nothing is sampled, and nothing flips any more
            both = f"(FROM warehouse.{call(macro)}) EXCEPT ALL (FROM {past})"
            assert connection.execute(both).fetchall()


def parameter(macro: str) -> str:
    return "of_snapshot" if macro == "pool_documents" else "snapshot"


def test_prices_as_of_a_snapshot(lake: tuple[Path, int, datetime, dict[str, Any]]) -> None:
    place, number, *_ = lake
    sql = f"SELECT pool_cost(['a']) AS now, pool_cost(['a'], snapshot := {number}) AS past"
    assert run_sql(place, sql, "csv") == "now,past\n3.0,"


@pytest.mark.parametrize(
    ("snapshot", "words"),
    [
        ("NULL", "name a snapshot by its number or a time, not NULL"),
        ("-1", "snapshot -1 is neither a number from 0, nor a time"),
        ("'soon'", "snapshot soon is neither a number from 0, nor a time"),
        ("'1) JOIN (FROM models'", "is neither a number from 0, nor a time"),
        ("999", "No snapshot found at version 999"),
        ("'2020-01-01'", "No snapshot found at timestamp 2020-01-01"),
    ],
)
def test_what_is_no_snapshot(
    lake: tuple[Path, int, datetime, dict[str, Any]], snapshot: str, words: str
) -> None:
    with pytest.raises(InputError, match=words):
        run_sql(lake[0], f"FROM all_pools('b', 2, snapshot := {snapshot})")


def test_the_command_takes_a_time(lake: tuple[Path, int, datetime, dict[str, Any]]) -> None:
    place, number, time, _ = lake

    def ask(snapshot: str) -> tuple[int, str]:
        words = ["sql", "SELECT models FROM all_pools('b', 3)", "-w", str(place), "--snapshot", snapshot]
        done = CliRunner().invoke(app, words)
        return done.exit_code, done.stdout or str(done.exception)

    now, past = ask(datetime.now(UTC).isoformat()), ask(str(number))
    assert (now[0], past[0]) == (0, 0)
    assert now != past
    assert ask(time.astimezone().replace(tzinfo=None).isoformat()) == past
    assert ask((time - timedelta(days=999)).isoformat())[0] != 0
    with pytest.raises(InputError, match=r"has no snapshot as old as 2020-.* \(since 20"):
        open_warehouse(place, snapshot=datetime(2020, 1, 1, tzinfo=UTC))
    assert ask("soon")[0] != 0


@pytest.mark.slow
def test_macros_that_an_older_warehouse_lacks(
    lake: tuple[Path, int, datetime, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot from before an upgrade, and a warehouse that is only read, have today's macros."""
    put(tmp_path, "a", THREE)
    put(tmp_path, "b", WORSE)
    expected = lake[3]  # of the same answers
    with open_warehouse(tmp_path) as warehouse, warehouse.transaction("as an older schema left it"):
        for macro in MACROS:
            warehouse.connection.execute(f"DROP MACRO TABLE {macro}")
    monkeypatch.setattr(opening, "SCHEMA_VERSION", opening.SCHEMA_VERSION + 1)
    with open_warehouse(tmp_path, read_only=True) as warehouse:
        old = warehouse.snapshot()
    assert read(tmp_path) == expected
    put(tmp_path, "c", THREE)
    with open_warehouse(tmp_path, read_only=True) as warehouse:
        every, both = (f"FROM {call('model_scores', models=m)}" for m in ("'*'", NAMES["models"]))
        assert warehouse.rows(every) != warehouse.rows(both)
    assert read(tmp_path, old) == expected


def read(place: Path, snapshot: int | None = None) -> dict[str, list[list[object]]]:
    with open_warehouse(place, read_only=True, snapshot=snapshot) as warehouse:
        return {macro: rounded(warehouse.rows(f"FROM {call(macro)}")) for macro in MACROS}
