"""The parts of the main job as flows of their own, their retries and limits, and what they never store."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from prefect import flow, get_client
from prefect.client.schemas.actions import GlobalConcurrencyLimitUpdate, WorkPoolCreate
from prefect.client.schemas.objects import State, StateType
from prefect.events import emit_event
from prefect.events.filters import EventFilter, EventNameFilter, EventOccurredFilter, EventResourceFilter
from prefect.exceptions import PrefectHTTPStatusError
from prefect.settings import (
    PREFECT_LOCAL_STORAGE_PATH,
    PREFECT_RESULTS_PERSIST_BY_DEFAULT,
    temporary_settings,
)
from prefect.states import Pending, Running, Scheduled
from support.night import ROOT
from support.prefect_pool import write_pool

from flows import extracting, learning, new_model, upkeep, workers
from flows.support import pages
from flows.support.capacity import HANDED_OVER_TAG, SLOTS_LABEL, WORKER_LABEL
from flows.support.deploying import HEARTBEAT_EVENT, RUN_TAG, crash_silent_runs, end_silent_runs
from flows.support.parameters import WAREHOUSE_VARIABLE, check_no_password, hide_password
from rlfocal.base.errors import InputError
from rlfocal.evaluation.conclusion import conclude
from rlfocal.evaluation.leaderboard import leaderboard
from rlfocal.evaluation.verdicts import verdict_table
from rlfocal.extraction.running.events import ExtractedPartition, Failure
from rlfocal.extraction.running.runner import ModelOutcome
from warehouse import open_warehouse

pytestmark = pytest.mark.slow
SECRET = "postgresql://me:PlantedPassword@host/db"


@pytest.fixture(scope="module", autouse=True)
def server(prefect: None) -> None:
    """Every test of this file runs on one temporary server."""


def made_by(flow: Any, *given: Any, **asked: Any) -> Any:
    """What a flow returns."""
    return flow(*given, **asked)


def artifacts(key: str) -> list[Any]:
    """What was published under a key, as the server has it."""
    with get_client(sync_client=True) as client:
        asked = {"artifacts": {"key": {"any_": [key]}}}
        return [made["data"] for made in client.request("POST", "/artifacts/filter", json=asked).json()]


def test_each_part_does_on_its_own_what_the_main_job_does(folder: Path, tmp_path: Path) -> None:
    pool = write_pool(folder, {"llama": folder / "llama", "gpt2": folder / "gpt2"})
    location = str(tmp_path / "warehouse")
    stored = {PREFECT_RESULTS_PERSIST_BY_DEFAULT: True, PREFECT_LOCAL_STORAGE_PATH: tmp_path / "results"}
    with temporary_settings(stored):
        for model in ("llama", "gpt2"):
            asked = {"pool": str(pool), "warehouse": location, "limit": 20}
            assert len(made_by(extracting.extract_model, model, **asked).committed) == 2
            assert artifacts(f"extract-{model}") == [100.0]
        methods = ["best_single", "plurality"]
        rows = made_by(learning.evaluate, "tiny", methods=methods, seeds=1, warehouse=location)
        assert {row.method for row in rows} >= set(methods)
        [page] = artifacts("evaluate-accuracy")
        with open_warehouse(location, read_only=True) as opened:
            boards = leaderboard(opened)
        assert "\n".join(verdict_table(boards, earlier_accuracies={}).markdown()) in page
        assert f"\n**tiny**: {conclude(boards[0]).sentence[:20]}" in page
        assert "| plurality |" in page
        written = made_by(learning.report, str(tmp_path / "report.html"), warehouse=location)
        assert written.stat().st_size > 10_000
        done = made_by(upkeep.maintain, keep=1, warehouse=location)
        assert done["files_after"] <= done["files_before"]
        assert done["snapshots"]
        entry = {
            "model": "mistral",
            "hf_repo": str(folder / "mistral"),
            "params_b": 1e-4,
            "truncation": "keep",
        }
        asked = {"warehouse": location, "limit": 20, "force": True}
        made = made_by(new_model.add_model, entry, str(pool), **asked)
        assert made.model == "mistral"
        assert [(of.benchmark, of.score.n) for of in made.records] == [("tiny", 40)]
        assert yaml.safe_load(pool.read_text())["models"][-1]["model"] == "mistral"
        [page] = artifacts("add-model")
        assert "mistral" in page.splitlines()[0]
        assert "tiny" in page
    assert not [path for path in (tmp_path / "results").rglob("*") if path.is_file()], "nothing is pickled"


def test_the_page_shows_how_far_a_run_is_while_it_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "SECONDS_BETWEEN_UPDATES", 0.1)

    @flow
    def walk() -> None:
        with pages.show_progress("extract Org/b-1.5") as on_progress:
            on_progress("extract Org/b-1.5", 0.25)
            end = time.monotonic() + 60
            while artifacts("extract-org-b-1-5") != [25.0]:
                assert time.monotonic() < end
                time.sleep(0.05)
            on_progress("extract Org/b-1.5", 0.75)

    walk()
    assert artifacts("extract-org-b-1-5") == [75.0]


@pytest.mark.parametrize(("times", "shown"), [(2, [100.0]), (1000, [])])
def test_a_busy_server_is_offered_the_last_share_again_and_stops_no_run(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, times: int, shown: list[float]
) -> None:
    monkeypatch.setattr(pages, "SECONDS_BETWEEN_UPDATES", 0.1)
    for call in ("create_progress_artifact", "update_progress_artifact"):
        monkeypatch.setattr(pages, call, refusing(getattr(pages, call), times))

    @flow
    def walk() -> str:
        with pages.show_progress(f"extract busy {times}") as on_progress:
            on_progress(f"extract busy {times}", 1.0)
        return "done"

    assert walk() == "done"
    assert artifacts(f"extract-busy-{times}") == shown
    assert ("may stand still" in caplog.text) == (not shown)


def refusing(call: Callable[..., Any], times: int) -> Callable[..., Any]:
    """The call, which fails so often before it works."""
    left = iter(range(times))

    def refuse(*given: Any, **named: Any) -> Any:
        if next(left, None) is not None:
            raise TimeoutError
        return call(*given, **named)

    return refuse


def test_maintain_fails_with_what_doctor_finds(folder: Path, tmp_path: Path) -> None:
    pool = write_pool(folder, {"llama": folder / "llama"})
    location = tmp_path / "warehouse"
    extracting.extract_model("llama", pool=str(pool), warehouse=str(location), limit=5)
    shutil.rmtree(next(path for path in location.rglob("choice_logprobs") if path.is_dir()))
    state: Any = upkeep.maintain(warehouse=str(location), return_state=True)
    assert state.is_failed()
    assert "see the artifact maintain-doctor" in str(state.message)


def tries(state: Any) -> list[int]:
    """How often each task of a flow's run was run."""
    with get_client(sync_client=True) as client:
        asked = {"flow_runs": {"id": {"any_": [str(state.state_details.flow_run_id)]}}}
        return [made["run_count"] for made in client.request("POST", "/task_runs/filter", json=asked).json()]


@pytest.mark.parametrize(("fails", "ends"), [(1, "COMPLETED"), (9, "FAILED")])
def test_a_failure_that_may_pass_is_tried_again(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: int, ends: str
) -> None:
    made = iter(range(100))

    def sometimes(*_: Any, **__: Any) -> ModelOutcome:
        if next(made) < fails:
            gaps = (Failure("extract", "llama", "tiny", "a", "gone", True),)
            return ModelOutcome("llama", (), (), (*gaps, Failure("extract", "llama", "tiny", "b", "busy")))
        return ModelOutcome("llama", (ExtractedPartition("llama", "tiny", "plain", 5, 0.1),), (), ())

    monkeypatch.setattr(extracting, "extract_now", sometimes)
    monkeypatch.setattr(extracting.extract, "retry_delay_seconds", [0, 0])
    pool = write_pool(folder, {"llama": folder / "llama"})
    state: Any = extracting.extract_model(
        "llama", pool=str(pool), warehouse=str(tmp_path / "warehouse"), return_state=True
    )
    assert state.type.value == ends
    assert tries(state) == [min(fails, extracting.N_RETRIES) + 1]


def test_the_limit_is_counted_anew_and_forgotten_slots_are_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from prefect import flow

    with get_client(sync_client=True) as client:
        client.create_work_pool(WorkPoolCreate(name="counted", type="process"))
        for name in ("one", "two"):
            client.send_worker_heartbeat("counted", name, heartbeat_interval_seconds=30)
        found = workers.Workers("counted", 2, widest=4)
        assert workers.update_limit(found) == 8, "what has said nothing counts as the widest model"
        known = client.create_flow(extracting.extract_model)
        made = client.create_deployment(known, name="counted", work_pool_name="counted")
        run = client.create_flow_run_from_deployment(
            made, tags=[HANDED_OVER_TAG], state=Running(), job_variables={"gpus": 2}
        )
        client.update_flow_run_labels(run.id, {WORKER_LABEL: "one", SLOTS_LABEL: 1})
        assert workers.update_limit(found) == 5
        monkeypatch.setattr(workers, "SECONDS_BETWEEN_RECOUNTS", 3.0)

    waited: list[bool] = []

    @flow
    def takes_slots() -> int:
        with (
            workers._hold_slots(3, found, lambda: waited.append(True)),
            get_client(sync_client=True) as client,
        ):
            return client.read_global_concurrency_limit_by_name(workers.LIMIT_NAME).active_slots

    with get_client(sync_client=True) as client:
        client.update_global_concurrency_limit(
            workers.LIMIT_NAME, GlobalConcurrencyLimitUpdate(active_slots=5)
        )
        assert takes_slots() == 5, "two are the run's that is there"
        assert waited == [True], "meanwhile, something else could be done"
        client.delete_flow_run(run.id)


def test_a_kubernetes_pool_gets_the_template_and_the_number_of_gpus(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    template = json.loads((ROOT / "packaging" / "kubernetes" / "base-job-template.json").read_text())
    assert workers.find_workers() is None, "what is no deployment's run keeps its models"
    monkeypatch.setenv("PREFECT__RUNTIME__DEPLOYMENT__ID", "any")
    assert workers.find_workers() is None
    with get_client(sync_client=True) as client:
        client.create_work_pool(WorkPoolCreate(name="kube", type="kubernetes", base_job_template=template))
        flow = client.create_flow(extracting.extract_model)
        made = client.create_deployment(flow, name="extract-model", work_pool_name="kube")
        assert workers.find_workers() is None
        client.send_worker_heartbeat("kube", "one", heartbeat_interval_seconds=30)
        asked = frozenset({"gpus", "cpu_request", "memory_request"})
        assert workers.find_workers() == workers.Workers("kube", 1, asked)

        def run(gpus: int) -> Any:
            variables = {name: workers.POD_RESOURCES[name](gpus) for name in asked}
            return client.create_flow_run_from_deployment(
                made, parameters={"model": "llama"}, job_variables=variables
            )

        assert run(4).job_variables == {"gpus": 4, "cpu_request": "6", "memory_request": "160Gi"}
        with pytest.raises(PrefectHTTPStatusError, match="gpus"):
            run(-1)


def test_a_password_never_becomes_a_parameter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WAREHOUSE_VARIABLE, "before")
    with hide_password({"warehouse": SECRET, "pool": "lab"}) as safe:
        assert safe == {"warehouse": None, "pool": "lab"}
        assert os.environ[WAREHOUSE_VARIABLE] == SECRET
    assert os.environ[WAREHOUSE_VARIABLE] == "before"
    with hide_password({"warehouse": "postgresql://me@host/db"}) as safe:
        assert safe == {"warehouse": "postgresql://me@host/db"}
    with pytest.raises(InputError, match="set RLFOCAL_WAREHOUSE where the worker runs") as refused:
        check_no_password(SECRET)
    assert "PlantedPassword" not in str(refused.value)
    check_no_password("/a/directory")


def test_a_run_that_died_unseen_is_ended_and_one_that_lives_is_not() -> None:
    with get_client(sync_client=True) as client:
        known = client.create_flow(extracting.extract_model)
        deployed = client.create_deployment(known, name="silent")
        begun: dict[str, tuple[str, State[Any]]] = {
            "dead": (RUN_TAG, Running()),
            "pending": (RUN_TAG, Pending()),
            "pod": (RUN_TAG, Pending()),
            "dead pod": (RUN_TAG, Pending()),
            "alive": (RUN_TAG, Running()),
            "planned": (RUN_TAG, Scheduled()),
            "of others": ("other", Running()),
        }
        client.create_work_pool(WorkPoolCreate(name="cluster", type="kubernetes"))
        on_cluster = client.create_deployment(known, name="pending", work_pool_name="cluster")
        runs = {
            name: client.create_flow_run_from_deployment(
                on_cluster if "pod" in name else deployed, tags=[tag], state=state
            )
            for name, (tag, state) in begun.items()
        }
        runs["by hand"] = client.create_flow_run(extracting.extract_model, tags=[RUN_TAG], state=Running())
        later = datetime.now(UTC) + timedelta(minutes=20)
        of_pod = {"prefect.resource.id": f"prefect.flow-run.{runs['dead pod'].id}"}
        emit_event(HEARTBEAT_EVENT, of_pod, occurred=later - timedelta(minutes=15))
        resource = {"prefect.resource.id": f"prefect.flow-run.{runs['alive'].id}"}
        emit_event(HEARTBEAT_EVENT, resource, occurred=later - timedelta(minutes=1))
        alive = EventFilter(
            event=EventNameFilter(name=[HEARTBEAT_EVENT]),
            resource=EventResourceFilter(id=list(resource.values())),
            occurred=EventOccurredFilter.model_validate({"since": datetime.now(UTC), "until": later}),
        )
        end = time.monotonic() + 60
        while not client.read_events(alive, limit=1).events:
            assert time.monotonic() < end
            time.sleep(0.5)
        assert end_silent_runs() == []
        huge = {"limit": 10**30}  # the server stores it, and can then list no run beside it
        unlistable = client.create_flow_run_from_deployment(
            deployed, parameters=huge, tags=[RUN_TAG], state=Running()
        )
        asyncio.run(crash_silent_runs(1800))  # `seconds` in prefect.yaml
        assert end_silent_runs(later) == []
        asyncio.run(crash_silent_runs(240))
        ended = {runs[name].name for name in ("dead", "pending", "dead pod")}
        assert set(end_silent_runs(later)) >= ended
        client.delete_flow_run(unlistable.id)
        states = {name: client.read_flow_run(run.id).state_type for name, run in runs.items()}
        assert states == {
            "dead": StateType.CRASHED,
            "pending": StateType.CRASHED,
            "pod": StateType.PENDING,
            "dead pod": StateType.CRASHED,
            "alive": StateType.RUNNING,
            "planned": StateType.SCHEDULED,
            "of others": StateType.RUNNING,
            "by hand": StateType.RUNNING,
        }
