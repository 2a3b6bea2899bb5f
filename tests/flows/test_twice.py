"""Two regenerations that are started in the same second, from two directories: one set of work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import postgres_server
from support.prefect_pool import write_pool
from support.tiny_models import save_model, write_tasks

from warehouse import open_warehouse


@pytest.mark.slow
def test_two_regenerations_at_once_do_the_work_once(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On Postgres; on SQLite where that is missing (and in tests/flows/test_night.py, through a server)."""
    place = str(tmp_path / "warehouse")
    if postgres_server.programs() is not None:
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
        place = f"{request.getfixturevalue('postgres').database()}?data={tmp_path / 'data'}"
    write_tasks(tmp_path / "tasks")
    pool = write_pool(tmp_path, {name: save_model(tmp_path / name, name) for name in ("llama", "gpt2")})
    words = ["regenerate", "--pool", str(pool), "--limit", "12", "--seeds", "1", "--json", "-w", place]
    clean = {name: value for name, value in os.environ.items() if name != "PREFECT_API_URL"}
    running = []
    for name in ("one", "two"):
        home = tmp_path / name
        home.mkdir()
        running.append(
            subprocess.Popen(
                [sys.executable, "-c", "from rlfocal.cli import main; main()", *words],
                cwd=home,
                env=clean | {"PREFECT_HOME": str(home / "prefect")},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    said = [process.communicate(timeout=1200) for process in running]
    assert [process.returncode for process in running] == [0, 0], said
    told: list[dict[str, Any]] = [json.loads(out) for out, _ in said]
    assert sorted((one["extracted"], one["present"]) for one in told) == [(0, 4), (4, 0)]
    assert sum("waiting for it to finish" in err for _, err in said) == 1
    assert "postgresql://lake:" not in str(said)
    with open_warehouse(place, read_only=True) as opened:
        assert opened.rows("SELECT count(*), count(DISTINCT (model, task)) FROM extractions") == [(4, 4)]
        runs = "SELECT count(*), count(DISTINCT (run_id, task, split)) FROM evaluations"
        [(rows, distinct)] = opened.rows(runs)
        assert rows == distinct > 0
    assert [Path(one["report"]).exists() for one in told] == [True, True]
    assert not [*tmp_path.glob("*/.rlfocal/*.html")]  # where the default warehouse's report is
