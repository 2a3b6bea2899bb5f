"""A query that is too large says so, and does not spill into the working directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlfocal.base.errors import InputError
from rlfocal.exchange.sql import run_sql
from warehouse import open_warehouse
from warehouse.errors import RunError

LARGE = "SELECT count(*) FROM (SELECT hash(range) AS h, list(range) FROM range(400000) GROUP BY ALL)"
TOO_LARGE = "SELECT len(list(r.range)) FROM range(20000000) AS r"


def test_a_large_query_spills_into_the_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the statement may reach nothing but the warehouse."""
    open_warehouse(tmp_path / "w").close()
    monkeypatch.setenv("RLFOCAL_MEMORY_LIMIT", "40MB")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert "400000" in run_sql(tmp_path / "w", LARGE)
    assert list((tmp_path / "here").iterdir()) == []


def test_a_query_that_is_too_large_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_warehouse(tmp_path / "w").close()
    monkeypatch.setenv("RLFOCAL_MEMORY_LIMIT", "40MB")
    with pytest.raises(InputError, match="memory"):
        run_sql(tmp_path / "w", TOO_LARGE)
    with (
        open_warehouse(tmp_path / "w", read_only=True) as warehouse,
        pytest.raises(RunError, match="RLFOCAL_MEMORY_LIMIT"),
    ):
        warehouse.rows(TOO_LARGE)


@pytest.mark.parametrize("limit", ["4", "80%", "-1GB", "0GB", "much"])
def test_a_limit_that_is_no_amount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    monkeypatch.setenv("RLFOCAL_MEMORY_LIMIT", limit)
    with pytest.raises(InputError, match=f"RLFOCAL_MEMORY_LIMIT is '{limit}'"):
        open_warehouse(tmp_path / "w")
