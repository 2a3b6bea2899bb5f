"""The nightly deployment on a real server with a real worker: its schedule, its page, and what kills do.

RLFOCAL_NIGHTS: how often worker, engine and server are killed (1). RLFOCAL_OUTAGES: for how many seconds the
server is away in the middle of a run, `75,150` (20).
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support.night import DEPLOYMENT, FINAL, ROOT, Night, tables

from rlfocal.upkeep.doctor import NEW_DEPLOYMENT_AGE, check_schedules
from warehouse import open_warehouse

NIGHTS = int(os.environ.get("RLFOCAL_NIGHTS", "1"))
OUTAGES = [int(seconds) for seconds in os.environ.get("RLFOCAL_OUTAGES", "20").split(",")]
FINAL_WITHIN = 180
PATIENCE = 900
"""Seconds for a run that takes one minute alone: CI does other things at once."""
SMALL: dict[str, Any] = {
    "models": ["lab-llama", "lab-gemma"],
    "benchmarks": ["lab-mmlu"],
    "limit": 8,
    "seeds": 1,
}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Night]:
    """A server with the deployment of prefect.yaml, on a small part of the pool."""
    folder = tmp_path_factory.mktemp("night")

    def small(deployment: dict[str, Any]) -> None:
        deployment["parameters"] |= SMALL | {"report": str(folder / "report.html")}

    with Night(folder) as night:
        night.check_out(small)
        night.start_server()
        night.deploy()
        yield night


@pytest.fixture(scope="module")
def completed(night: Night) -> str:
    """The id of a run that its schedule started and a worker completed."""
    deployed = night.api("GET", f"deployments/name/{DEPLOYMENT}")
    planned = scheduled(night, "T02:30")
    soon = datetime.now(UTC) + timedelta(seconds=30)
    daily = {"interval": 86_400, "anchor_date": soon.isoformat()}
    night.api("POST", f"deployments/{deployed['id']}/schedules", [{"schedule": daily, "active": True}])
    run = scheduled(night, f"{soon:%Y-%m-%dT%H:%M}")  # not tomorrow's
    assert run != planned
    night.start_worker()
    assert night.wait(run, seconds=PATIENCE) == "COMPLETED"
    return run


@pytest.mark.real
def test_a_scheduled_run_completes_on_a_worker(night: Night, completed: str) -> None:
    deployed = night.api("GET", f"deployments/name/{DEPLOYMENT}")
    assert str(ROOT) not in json.dumps(deployed)
    assert night.state(completed) == "COMPLETED"
    soon = datetime.now(UTC) + NEW_DEPLOYMENT_AGE  # which a fast run has not waited
    assert [found.level for found in check_schedules(night.url, soon)] == ["ok"]
    artifacts = latest_artifacts(night)
    bars = {f"extract-{model}": 100 for model in SMALL["models"]}
    shown = {key: made for key, made in artifacts.items() if key != "regenerate-accuracy"}
    assert shown == bars, night.log("worker")
    assert "| rl_focal_sequential |" in artifacts["regenerate-accuracy"]
    assert f"`{night.folder / 'report.html'}`" in artifacts["regenerate-accuracy"]
    assert (night.folder / "report.html").stat().st_size > 10_000
    with open_warehouse(night.warehouse, read_only=True) as warehouse:
        assert warehouse.rows("SELECT count(DISTINCT model) FROM extractions") == [(2,)]
        assert warehouse.rows("SELECT DISTINCT n_docs FROM extractions") == [(8,)]


def latest_artifacts(night: Night) -> dict[str, Any]:
    """What the server shows under each key: where it answered too late, a run has made the same one again."""
    return {made["key"]: made["data"] for made in night.api("POST", "artifacts/latest/filter", {})}


def scheduled(night: Night, at: str) -> str:
    """The id of the first run that the server has planned, within 100 s, for this time."""
    wanted = {"flow_runs": {"state": {"type": {"any_": ["SCHEDULED"]}}}, "sort": "EXPECTED_START_TIME_ASC"}
    end = time.monotonic() + 100
    while time.monotonic() < end:
        for run in night.api("POST", "flow_runs/filter", wanted):
            if run["auto_scheduled"] and at in run["expected_start_time"]:
                return str(run["id"])
        time.sleep(1)
    raise AssertionError(f"no run was planned for {at}\n{night.log('server')}")


def test_doctor_finds_runs_that_do_not_come_and_runs_that_died(night: Night) -> None:
    night.kill("worker")
    overdue, silent = night.trigger(), night.trigger()
    night.api("POST", f"flow_runs/{silent}/set_state", {"state": {"type": "RUNNING"}, "force": True})
    planned = {"flow_runs": {"state": {"type": {"any_": ["SCHEDULED"]}}}}
    for _ in range(10):  # the server may plan anew in between
        for run in night.api("POST", "flow_runs/filter", planned):
            if run["auto_scheduled"]:
                night.api("DELETE", f"flow_runs/{run['id']}")
        found = list(check_schedules(night.url, now=datetime.now(UTC) + timedelta(minutes=10)))
        if found[0].level == "fault":
            break
    for run in (overdue, silent):
        night.api("POST", f"flow_runs/{run}/set_state", {"state": {"type": "CANCELLED"}, "force": True})
    assert [one.level for one in found] == ["fault"] * 3
    unplanned, late, dead = found
    assert unplanned.message == f"deployment {DEPLOYMENT} has a schedule, but its server has planned no run"
    assert "was due at" in late.message
    assert "has sent no heartbeat for 5 minutes" in dead.message
    assert silent in str(dead.fix)


def test_the_log_of_a_failed_run_ends_in_one_sentence(night: Night) -> None:
    night.start_worker()
    run = night.trigger(pool="labb")
    assert night.wait(run, seconds=PATIENCE) == "FAILED"
    said = "unknown pool 'labb'; did you mean 'lab'?"
    assert night.api("GET", f"flow_runs/{run}")["state"]["message"].startswith(said)
    time.sleep(3)  # logs come in batches
    assert said in night.run_log(run, own=True).splitlines()[-1]
    assert "Traceback" not in night.run_log(run)


def test_a_worker_without_rlfocal_home_fails_with_the_fix(night: Night) -> None:
    night.start_worker(home=False)
    run = night.trigger()
    assert night.wait(run, seconds=PATIENCE) == "FAILED"
    message = night.api("GET", f"flow_runs/{run}")["state"]["message"]
    assert message.startswith("on this worker RLFOCAL_HOME is not set; start it with RLFOCAL_HOME=DIR")


def test_a_run_waits_for_another_that_does_the_same_and_for_no_other(night: Night) -> None:
    night.start_worker()
    same = {"warehouse": str(night.folder / "twice"), "seeds": 2}
    runs = [night.trigger(**same), night.trigger(**same), night.trigger(**{**same, "seeds": 1})]
    assert [night.wait(run, seconds=PATIENCE) for run in runs] == ["COMPLETED"] * 3
    time.sleep(3)
    waited = ["waiting for it to finish" in night.run_log(run) for run in runs]
    assert sorted(waited[:2]) == [False, True]
    assert not waited[2]


@pytest.mark.parametrize("seconds", OUTAGES)
def test_a_server_that_is_away_in_mid_run_costs_nothing(night: Night, seconds: int) -> None:
    night.start_worker()
    run = night.trigger(warehouse=str(night.folder / f"outage-{seconds}"), seeds=3)
    night.wait(run, "RUNNING", seconds=PATIENCE)
    time.sleep(5)
    night.kill("server")
    time.sleep(seconds)
    night.start_server()
    assert night.wait(run, seconds=PATIENCE) == "COMPLETED"
    later = night.trigger(warehouse=str(night.folder / f"outage-{seconds}"), seeds=3)
    assert night.wait(later, seconds=PATIENCE) == "COMPLETED"


def test_runs_of_a_dead_host_become_final_and_the_next_run_completes(night: Night) -> None:
    # Only here: with SQLite, Prefect 3.7's server may write nothing for a minute, and heartbeats are lost.
    night.allow_silence(75)
    night.prefect("deploy", "--all", "--no-prompt", cwd=night.home)
    rng = random.Random(2026)
    night.start_worker()
    whole = time.monotonic()
    undisturbed = night.folder / "undisturbed"
    assert night.wait(night.trigger(warehouse=str(undisturbed)), seconds=PATIENCE) == "COMPLETED"
    longest = time.monotonic() - whole
    expected = tables(undisturbed)

    killed: dict[str, datetime] = {}
    for n in range(NIGHTS):
        location = night.folder / f"killed-{n}"
        run = night.trigger(warehouse=str(location))
        time.sleep(rng.uniform(0, longest))
        night.kill("worker")
        killed[run] = datetime.now(UTC)
        time.sleep(rng.uniform(0, 3))
        night.kill("server")
        time.sleep(rng.uniform(0, 10))
        night.start_server()
        night.start_worker()
        after = night.trigger(warehouse=str(location))
        assert night.wait(after, seconds=PATIENCE) == "COMPLETED"
        assert tables(location) == expected
        print(f"{n + 1} of {NIGHTS}: {night.state(run)} when the next was done", flush=True)
    seconds = [ended_after(night, run, at) for run, at in killed.items()]
    print("ended after", ", ".join(f"{s:.0f}" for s in sorted(seconds)), "s")
    assert max(seconds) < FINAL_WITHIN


def ended_after(night: Night, run: str, killed: datetime) -> float:
    """Seconds from a kill to the run's final state; one that was final, or not begun, took none."""
    left = killed + timedelta(seconds=FINAL_WITHIN) - datetime.now(UTC)
    night.wait(run, *FINAL, seconds=max(left.total_seconds(), 1))
    state = night.api("GET", f"flow_runs/{run}")["state"]
    return max(0.0, (datetime.fromisoformat(state["timestamp"]) - killed).total_seconds())
