"""Models handed over to simulated workers: server, limit, order and leases are real, the work is sleep."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from prefect import flow, get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterTags
from prefect.client.schemas.objects import State
from prefect.client.schemas.responses import OrchestrationResult, SetStateStatus
from prefect.exceptions import Abort
from prefect.states import Cancelled, Completed, Pending, Running

from flows import RegenerationRequest, extracting, workers
from flows.support import capacity
from rlfocal.extraction.estimate import find_gpu
from rlfocal.extraction.gpus import Device
from rlfocal.extraction.plan import plan_pool
from rlfocal.pool import load_pool
from rlfocal.pool.specs import ModelSpec
from warehouse import open_warehouse

pytestmark = pytest.mark.slow
SECONDS = 12.0
"""Of the best packing."""


class Worker(threading.Thread):
    """A host with GPUs: takes whatever is scheduled, as Prefect's does, and gives back what does not fit."""

    def __init__(self, pool: str, name: str, gpus: int, folder: Path, seconds: dict[str, float]) -> None:
        super().__init__(daemon=True, name=name)
        self.pool = pool
        self.folder = folder / name
        self.folder.mkdir()
        self.devices = [Device(str(i), f"{name}-{i}") for i in range(gpus)]
        self.seconds = seconds
        self.ran: list[str] = []
        self.done: list[str] = []
        self.fetched: list[str] = []
        """Models that were only downloaded."""
        self.used = self.most = 0
        self.is_over = threading.Event()

    def run(self) -> None:
        with get_client(sync_client=True) as client:
            while not self.is_over.wait(2.0):
                client.send_worker_heartbeat(self.pool, self.name, heartbeat_interval_seconds=30)
                for one in client.get_scheduled_flow_runs_for_work_pool(self.pool):
                    proposed: OrchestrationResult[Any] = client.set_flow_run_state(one.flow_run.id, Pending())
                    if proposed.status == SetStateStatus.ACCEPT:  # else another worker has it
                        threading.Thread(target=self.work, args=(one.flow_run.id,), daemon=True).start()

    def work(self, run_id: Any) -> None:
        with get_client(sync_client=True) as client:
            client.update_flow_run_labels(run_id, {capacity.WORKER_LABEL: self.name})
            run = client.read_flow_run(run_id)
            if capacity.HANDED_OVER_TAG not in run.tags:
                assert run.parameters["download_only"]
                self.fetched.append(str(run.parameters["model"]))
                client.set_flow_run_state(run_id, Running())
                client.set_flow_run_state(run_id, Completed())
                return
            try:
                lease = capacity.take_or_give_back(client, run, self.devices, self.folder)
            except Abort:
                return
            client.set_flow_run_state(run_id, Running())
            model = str(run.parameters["model"])
            self.ran.append(model)
            self.used += len(lease.devices)
            self.most = max(self.most, self.used)
            until = time.monotonic() + self.seconds[model]
            final: State[Any] = Completed()
            while time.monotonic() < until:
                time.sleep(min(2.0, max(0.0, until - time.monotonic())))
                state = client.read_flow_run(run_id).state
                if state is not None and state.is_cancelling():
                    final = Cancelled()
                    break
            else:
                self.done.append(model)
            self.used -= len(lease.devices)
            lease.close()
            client.set_flow_run_state(run_id, final)


@pytest.fixture
def deployed(prefect: None, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """A deployment of extract-model whose work pool has no worker yet, and a head without a GPU."""
    pool = str(request.node.name)  # of its own: workers of another test seem to be online for a while
    monkeypatch.setenv("PREFECT__RUNTIME__DEPLOYMENT__ID", "any")
    monkeypatch.setenv("RLFOCAL_GPUS", "")
    monkeypatch.setattr(workers, "SECONDS_BETWEEN_LOOKS", 1.0)
    monkeypatch.setattr(workers, "SECONDS_BETWEEN_RECOUNTS", 2.0)
    monkeypatch.setattr(capacity, "SECONDS_UNTIL_OFFERED_AGAIN", 1)
    with get_client(sync_client=True) as client:
        client.create_work_pool(WorkPoolCreate(name=pool, type="process"))
        known = client.create_flow(extracting.extract_model)
        client.create_deployment(known, name="extract-model", work_pool_name=pool)
    return pool


@contextmanager
def working(*hosts: Worker) -> Iterator[None]:
    for host in hosts:
        host.start()
    try:
        yield
    finally:
        for host in hosts:
            host.is_over.set()
            host.join()


def hand_over_all(models: list[ModelSpec], location: Path, gpu_hours: float | None = None) -> list[Any]:
    """The final states, once workers have run all models, or have used up the hours."""
    open_warehouse(location).close()
    while (found := workers.find_workers()) is None:
        time.sleep(0.2)

    @flow
    def head() -> None:
        request = RegenerationRequest("paper", str(location), gpu_hours=gpu_hours)
        states, _ = extracting._extract_on_workers(models, [], request, "vllm", found)
        ended.extend(states)

    ended: list[Any] = []
    head()
    return ended


def list_handed_over() -> list[str]:
    """The models in the order in which they got their slots.

    A server on SQLite is busy for seconds now and then. Models here take seconds too, not hours: when a host
    begins one says less about the order.
    """
    tag = FlowRunFilter(tags=FlowRunFilterTags(all_=[capacity.HANDED_OVER_TAG]))
    with get_client(sync_client=True) as client:
        runs = client.read_flow_runs(flow_run_filter=tag)
    return [str(run.parameters["model"]) for run in sorted(runs, key=lambda run: str(run.created))]


def packed(order: list[ModelSpec], seconds: dict[str, float], gpus: int) -> float:
    """When the last of some models ends that begin in this order, each once its GPUs are free."""
    free_at = [0.0] * gpus
    for model in order:
        free_at.sort()
        begins = free_at[model.tensor_parallel - 1]
        free_at[: model.tensor_parallel] = [begins + seconds[model.model]] * model.tensor_parallel
    return max(free_at)


def test_eight_gpus_of_one_worker_are_packed_though_the_head_has_none(deployed: str, tmp_path: Path) -> None:
    pool = load_pool("paper")
    plan = plan_pool(pool, tmp_path / "none", gpu=find_gpu("H100"), gpus=8)
    hours = {model.model: model.hours / model.gpus for model in plan.models}
    best = max(max(hours.values()), sum(model.hours for model in plan.models) / 8)
    seconds = {name: SECONDS * each / best for name, each in hours.items()}
    models = sorted(pool.models, key=lambda m: (-m.tensor_parallel, -seconds[m.model]))
    by_name = {model.model: model for model in models}
    host = Worker(deployed, "eight", 8, tmp_path, seconds)
    with working(host):
        states = hand_over_all(models, tmp_path / "warehouse")
    assert all(state.is_completed() for state in states)
    assert sorted(host.ran) == sorted(seconds)
    order = list_handed_over()
    assert sorted(order) == sorted(seconds)
    assert packed([by_name[name] for name in order], seconds, 8) <= 1.25 * SECONDS
    assert host.most == 8
    assert len(set(host.fetched)) == len(host.fetched) >= 3, "those that waited for GPUs, once each"


def test_workers_that_join_late_are_used(deployed: str, tmp_path: Path) -> None:
    entries = [ModelSpec(model=f"m{n}", hf_repo="org/m", params_b=1, tensor_parallel=2) for n in range(7)]
    seconds = dict.fromkeys((entry.model for entry in entries), 10.0)
    first, *late = (Worker(deployed, name, 2, tmp_path, seconds) for name in ("first", "second", "third"))
    with working(first):
        for host in late:
            threading.Timer(10.0, host.start).start()
        states = hand_over_all(entries, tmp_path / "warehouse")
        assert all(state.is_completed() for state in states)
        for host in late:
            host.is_over.set()
    ran = [len(host.ran) for host in (first, *late)]
    names = [name for host in (first, *late) for name in host.ran]
    assert sorted(names) == sorted(seconds)
    assert min(ran) >= 1
    assert all(host.most == 2 for host in (first, *late))


def test_workers_stop_before_the_hours_are_used_up(deployed: str, tmp_path: Path) -> None:
    """Two models fit into the hours; the third is cancelled, and the fourth does not begin."""
    entries = [ModelSpec(model=f"m{n}", hf_repo="org/m", params_b=1, tensor_parallel=2) for n in range(4)]
    seconds = dict.fromkeys((entry.model for entry in entries), 10.0) | {"m2": 600.0}
    host = Worker(deployed, "only", 2, tmp_path, seconds)
    with working(host):
        states = hand_over_all(entries, tmp_path / "warehouse", gpu_hours=160 / 3600)
        while host.used:
            time.sleep(0.1)
    assert [state.is_completed() for state in states] == [True, True, False, False]
    assert host.done == ["m0", "m1"]
    assert host.ran == ["m0", "m1", "m2"]
    assert all("GPU-hours" in str(state.message) for state in states[2:])
