"""The main job through Prefect: in one process, and deployed to a real server with a real worker."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pyarrow as pa
import pytest
import yaml
from support.night import ROOT
from support.prefect_pool import asked_for, write_pool
from support.servers import free_port
from support.tiny_models import write_tasks

from flows import PREFECT_SETTINGS, RegenerationRequest
from flows.summaries import Summary, find_summary, keep_summary
from flows.support.server import SERVER_ENVIRONMENT, prefect_server
from rlfocal.base.errors import InputError, RunError
from rlfocal.report import write_report
from warehouse import open_warehouse


def evaluated(location: Path) -> list[tuple[Any, ...]]:
    with open_warehouse(location, read_only=True) as warehouse:
        return warehouse.rows(
            "SELECT method, seed, n, accuracy FROM evaluations WHERE task = '*' ORDER BY ALL"
        )


def regenerated(**asked: Any) -> tuple[Any, dict[str, set[str]]]:
    """A run's final state and its graph: each task with those it waits for."""
    from prefect import get_client

    from flows.regenerate import regenerate

    state: Any = regenerate(**asked, return_state=True)
    with get_client(sync_client=True) as client:
        run = state.state_details.flow_run_id
        graph = client.request("GET", "/flow_runs/{id}/graph-v2", path_params={"id": run}).json()
    nodes = dict(graph["nodes"])
    return state, {
        node["label"]: {nodes[parent["id"]]["label"] for parent in node["parents"]} for node in nodes.values()
    }


def run(on_progress: Any = None, *, warehouse: str, **asked: Any) -> Summary:
    """The flow, as the command line runs it."""
    from flows.regenerate import run as run_now

    return run_now(RegenerationRequest(location=warehouse, **asked), on_progress)


@pytest.mark.slow
def test_the_flow_fills_the_warehouse_once_and_reports(
    folder: Path, prefect: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And does nothing the second time, which is also known without Prefect."""
    told: list[tuple[str, float]] = []
    asked = asked_for(folder, "llama", "mistral", "gpt2", place=tmp_path, seeds=2)
    first = run(lambda title, share: told.append((title, share)), **asked)
    assert (first.extracted, first.present, first.gaps) == (6, 0, ())
    assert first.report == tmp_path / "report.html"
    assert "tiny" in first.report.read_text()
    rows = evaluated(tmp_path / "warehouse")
    assert {row[0] for row in rows} >= {"rl_focal", "best_single", "plurality", "soft_vote", "oracle"}
    assert sorted(row[1] for row in rows if row[0] == "rl_focal") == [0, 1]
    for title in ("extract llama", "extract mistral", "extract gpt2"):
        shares = [share for name, share in told if name == title]
        assert shares == sorted(shares)
        assert shares[-1] == 1.0

    second = run(**asked)
    assert (second.extracted, second.present, second.gaps) == (0, 6, ())
    assert [row.run_id for row in second.evaluations] == [row.run_id for row in first.evaluations]
    assert evaluated(tmp_path / "warehouse") == rows

    location = asked.pop("warehouse")
    request = RegenerationRequest(location=location, **asked)
    monkeypatch.setenv("PREFECT_API_URL", "http://localhost:4200/api")
    assert find_summary(request) is None, "a server records its runs"
    monkeypatch.delenv("PREFECT_API_URL")
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "prefect"))
    assert find_summary(request) is None, "no run's outcome was kept"
    keep_summary(request, second)
    found = find_summary(request)
    assert found is not None
    assert (found.extracted, found.present, found.gaps) == (0, 6, ())
    assert found.evaluations == second.evaluations
    assert found.verdicts is not None
    assert second.verdicts is not None
    assert found.verdicts.table.markdown() == second.verdicts.table.markdown()
    table = second.verdicts.table
    assert replace(found.verdicts, table=table) == second.verdicts
    assert find_summary(replace(request, seeds=3)) is None
    with open_warehouse(location) as warehouse, warehouse.transaction("import another benchmark"):
        warehouse.append("drift_looks", pa.Table.from_pylist([{"snapshot": 1}]))
    assert find_summary(request) is None, "the warehouse changed"
    with open_warehouse(location, read_only=True) as warehouse:
        write_report(warehouse, str(request.report))
    keep_summary(request, second)
    assert find_summary(request) is None, "what was committed after the evaluation may have to be evaluated"


@pytest.mark.slow
def test_a_failing_model_stops_no_other_and_is_named(folder: Path, prefect: None, tmp_path: Path) -> None:
    from flows.regenerate import regenerate

    asked = asked_for(folder, "llama", "torn", "gpt2", place=tmp_path)
    summary = run(**asked)
    assert summary.extracted == 4
    assert {(gap.step, gap.model, gap.benchmark, gap.task) for gap in summary.gaps} == {
        ("extract", "torn", "tiny", "plain"),
        ("extract", "torn", "tiny", "spaces"),
    }
    assert all(gap.reason and "\n" not in gap.reason for gap in summary.gaps)
    assert {model for row in summary.evaluations for model in row.models} == {"llama", "gpt2"}
    assert summary.report is not None
    state, arrows = regenerated(**asked)
    assert state.is_failed()
    assert str(state.message).startswith("2 steps failed, the first: extract torn on tiny/")
    assert {task for task in arrows if task.startswith("extract")} == {"extract torn"}
    with pytest.raises(RunError, match="2 steps failed"):
        regenerate(**asked)


@pytest.mark.slow
def test_a_benchmark_that_no_model_answered_is_a_gap_and_not_about_all_models(
    folder: Path, prefect: None, tmp_path: Path
) -> None:
    run(**asked_for(folder, "llama", "gpt2", place=tmp_path))
    summary = run(**asked_for(folder, "torn", place=tmp_path))
    assert summary.evaluations == ()
    assert [(gap.model, gap.reason) for gap in summary.gaps if gap.step == "evaluate"] == [
        ("*", "no model of the pool answered all of it")
    ]
    assert summary.report is not None


@pytest.mark.slow
def test_models_do_not_hang_on_one_another_and_what_is_extracted_is_no_task(
    folder: Path, prefect: None, tmp_path: Path
) -> None:
    asked = asked_for(folder, "llama", "mistral", "gpt2", place=tmp_path, jobs=1)
    models = {"extract llama", "extract mistral", "extract gpt2"}
    after = {"report": {"train and evaluate on tiny"}}
    state, arrows = regenerated(**asked)
    assert arrows == {
        **{model: set() for model in models},
        "train and evaluate on tiny": models,
        **after,
    }
    again, arrows = regenerated(**asked)
    assert arrows == {"train and evaluate on tiny": set(), **after}
    assert again.result().evaluations == state.result().evaluations


@pytest.mark.slow
def test_a_benchmark_that_does_not_load_stops_no_other(folder: Path, prefect: None, tmp_path: Path) -> None:
    asked = asked_for(folder, "llama", "gpt2", place=tmp_path, limit=10)
    content = yaml.safe_load(Path(asked["pool"]).read_text())
    (tiny,) = content["benchmarks"]
    misspelt = {**tiny, "name": "misspelt", "tasks": {"plain": "tiny_choice"}}
    unreadable = {**tiny, "name": "unreadable", "include_path": str(write_tasks(tmp_path / "tasks"))}
    (tmp_path / "tasks" / "choices.jsonl").unlink()
    broken = tmp_path / "broken.yaml"
    broken.write_text(yaml.safe_dump({**content, "benchmarks": [misspelt, tiny, unreadable]}))
    asked |= {"pool": str(broken)}
    summary = run(**asked)
    assert (summary.extracted, summary.present) == (4, 0)
    assert [(gap.step, gap.model, gap.benchmark, gap.task) for gap in summary.gaps] == [
        ("extract", "*", "misspelt", "*"),
        ("extract", "*", "unreadable", "*"),
    ]
    assert "did you mean 'tiny_choices'" in summary.gaps[0].reason
    assert {row.benchmark for row in summary.evaluations} == {"tiny"}
    assert summary.report == tmp_path / "report.html"
    grown = run(**{**asked, "limit": 20, "benchmarks": ["tiny"]})  # the others only take time
    assert grown.extracted == 4, "partitions that grow are extracted"

    with pytest.raises(InputError, match="did you mean 'tiny_choices'"):
        run(**{**asked, "benchmarks": ["misspelt"]})


def test_wrong_parameters_are_refused_before_anything_is_written(folder: Path, tmp_path: Path) -> None:
    pool = str(write_pool(folder, {"llama": folder / "llama", "gpt2": folder / "gpt2"}))
    location = tmp_path / "warehouse"
    for wrong, message in (
        ({"pool": str(folder / "absent.yaml")}, "absent.yaml"),
        ({"pool": pool, "models": ["lama"]}, "did you mean 'llama'"),
        ({"pool": pool, "benchmarks": ["tinny"]}, "did you mean 'tiny'"),
        ({"pool": pool, "backend": "hff"}, "did you mean 'hf'"),
    ):
        with pytest.raises(InputError, match=message):
            run(warehouse=str(location), **wrong)
    assert not location.exists()


def test_quiet_settings_leave_what_the_user_chose(monkeypatch: pytest.MonkeyPatch) -> None:
    from flows import PREFECT_SETTINGS, quieten

    for name in PREFECT_SETTINGS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PREFECT_LOGGING_LEVEL", "DEBUG")
    quieten()
    assert os.environ["PREFECT_LOGGING_LEVEL"] == "DEBUG"
    assert os.environ["PREFECT_SERVER_ANALYTICS_ENABLED"] == "false"
    for name in PREFECT_SETTINGS:
        monkeypatch.delenv(name)


def test_less_than_two_heartbeats_of_silence_are_refused() -> None:
    from flows.support.deploying import crash_silent_runs

    with pytest.raises(InputError, match="at least 60"):
        asyncio.run(crash_silent_runs(59))


def test_prefect_yaml_satisfies_prefects_schema_and_names_no_machine() -> None:
    from prefect.cli.deploy._models import PrefectYamlModel

    from flows.support.deploying import RUN_TAG

    text = (ROOT / "prefect.yaml").read_text()
    content = yaml.safe_load(text)
    jsonschema.validate(content, PrefectYamlModel.model_json_schema())
    deployments = {deployment["name"]: deployment for deployment in content["deployments"]}
    assert list(deployments) == [
        *("regenerate", "extract-model", "add-model", "train", "evaluate", "report", "maintain"),
    ]
    schedules = deployments["regenerate"]["schedules"]
    assert [(s["cron"], s["timezone"]) for s in schedules] == [("30 2 * * *", "UTC")]
    pools = {name: deployment["work_pool"]["name"] for name, deployment in deployments.items()}
    assert {name for name, pool in pools.items() if pool == "gpu"} == {"extract-model", "add-model"}
    assert content["pull"]
    assert not re.search(r"[\s\"']/\w", text)
    for deployment in deployments.values():
        file, function = deployment["entrypoint"].split(":")
        assert f"def {function}(" in (ROOT / file).read_text()
        assert deployment["tags"] == [RUN_TAG]
        assert deployment["work_pool"]["job_variables"]["env"]["PREFECT_RESULTS_DEFAULT_SERIALIZER"] == "json"


def test_a_server_that_cannot_be_reached_is_named_with_the_fix() -> None:
    from prefect import flow
    from prefect.settings import PREFECT_API_URL, temporary_settings

    address = f"http://127.0.0.1:{free_port()}/api"

    @flow
    def nothing() -> None:
        """A flow that Prefect records before it runs."""

    with (
        temporary_settings({PREFECT_API_URL: address}),
        pytest.raises(RunError, match=f"{address} cannot be reached; start it"),
        prefect_server(),
    ):
        nothing()


def test_an_error_of_a_flow_passes_its_server() -> None:
    from prefect.settings import PREFECT_API_URL, temporary_settings

    with (
        temporary_settings({PREFECT_API_URL: "http://127.0.0.1:4200/api"}),
        pytest.raises(RuntimeError, match="its own"),
        prefect_server(),
    ):
        raise RuntimeError("its own")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_temporary_server_whose_owner_died_says_nothing(tmp_path: Path) -> None:
    """A traceback of its own would look like one of the command that was killed."""
    home = {"PREFECT_HOME": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-m", "flows.support.server"],
        env={**os.environ, **PREFECT_SETTINGS, **SERVER_ENVIRONMENT, **home},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        assert server.stderr is not None
        server.stdout.close()
        files = Path(f"/proc/{server.pid}/fd")
        with suppress(FileNotFoundError):  # it has ended
            while (files / "1").readlink() != (files / "2").readlink():
                time.sleep(0.1)
        server.stdin.close()
        assert server.stderr.read() == b""
