"""A regeneration asks services again first, where its pool says so, and tells if one has changed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from prefect import get_client
from support.chat_service import SERVED, chat_service
from support.closed_pool import write_closed_pool
from typer.testing import CliRunner

from rlfocal.cli.app import app
from warehouse import open_warehouse

QUESTIONS = {"sums": [f"{i} plus {i}" for i in range(60)]}


@pytest.mark.slow
def test_a_service_that_swapped_its_model_marks_the_run(prefect: None, tmp_path: Path) -> None:
    from flows.regenerate import regenerate

    said = {"letter": "A"}

    def answer(message: str) -> str:
        return said["letter"] if int(message.split()[0]) % 4 else "B"

    with chat_service(answer) as service:
        entries = [
            {"model": name, "served": SERVED, "base_url": service.url, "price_input": 1, "price_output": 1}
            for name in ("one", "two")
        ]
        pool = write_closed_pool(tmp_path, QUESTIONS, entries)
        pool.write_text(yaml.safe_dump(yaml.safe_load(pool.read_text()) | {"probe": True, "backend": "chat"}))
        asked: dict[str, Any] = {
            "pool": str(pool), "warehouse": str(tmp_path / "w"), "seeds": 1,
            "report": str(tmp_path / "report.html"),
        }  # fmt: skip
        first: Any = regenerate(**asked, return_state=True)
        assert first.name == "Completed", first.message
        assert first.result().changed == ()  # nothing was there to compare with
        again: Any = regenerate(**asked, return_state=True)
        assert again.name == "Completed", again.message
        said["letter"] = "C"
        requests = len(service.answered)
        swapped: Any = regenerate(**asked, return_state=True)
        assert len(service.answered) - requests == 2 * 16  # what tells, of both, and nothing more
    assert (swapped.name, swapped.is_completed()) == ("Drifted", True)
    assert "one on letters" in str(swapped.message)
    assert {(one.model, one.changed) for one in swapped.result().changed} == {
        ("one", "answers"), ("two", "answers"),
    }  # fmt: skip
    with get_client(sync_client=True) as client:
        shown = [a for a in client.read_artifacts() if a.key == "regenerate-probes"]
    assert any("changed: answers" in str(artifact.data) for artifact in shown)
    with open_warehouse(tmp_path / "w") as warehouse:
        assert warehouse.rows("SELECT count(*) FROM probes WHERE verdict = 'as before'") == [(2,)]
        stored = warehouse.rows("SELECT accuracy FROM benchmark_accuracy ORDER BY model")
    assert stored == [(0.75,), (0.75,)]  # the stored answers stay until they are asked anew
    commands = re.findall("`([^`]+)`", str(swapped.message))
    assert [shlex.split(command)[1:3] for command in commands] == [
        ["remove-model", "one"], ["remove-model", "two"], ["regenerate", "--pool"],
    ]  # fmt: skip
    for command in commands[:2]:
        assert CliRunner().invoke(app, shlex.split(command)[1:]).exit_code == 0
    with open_warehouse(tmp_path / "w") as warehouse:
        assert warehouse.committed_partitions() == {}
        assert warehouse.rows("SELECT count(DISTINCT run_id) > 0 FROM evaluations") == [(True,)]
