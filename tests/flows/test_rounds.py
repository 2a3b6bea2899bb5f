"""Three workers, each as on a host of its own, share regenerations through Postgres; then all is killed.

RLFOCAL_ROUNDS: how often workers, server and database are killed at random moments (1).
RLFOCAL_ROUND: the first round's number, which says what happens in it (0).
RLFOCAL_WHOLE_POOL: with all twelve models of the embedded pool, instead of three.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support import postgres_server
from support.night import FINAL, MODELS, TASKS, Night, Tables, tables, write_small_pool
from support.postgres_server import PostgresServer

ROUNDS = int(os.environ.get("RLFOCAL_ROUNDS", "1"))
FIRST = int(os.environ.get("RLFOCAL_ROUND", "0"))
SILENCE = 60
"""Seconds without a heartbeat until a run counts as crashed, instead of prefect.yaml's 240."""
PATIENCE = 900
GPU_WORKERS = ("gpu-0", "gpu-1", "gpu-2")
WHOLE = f"len(models) = {len(MODELS)}"
"""Of evaluations, those of the whole pool: a run that lost a model evaluates the others."""
LIMIT = 8
"""Documents of each."""
COUNTING = """
from rlfocal.extraction.running import runner

runner.ENGINE_MODULES = {"hf": (*runner.ENGINE_MODULES["hf"], "support.counted_engine")}
"""

pytestmark = pytest.mark.slow


class Kill(NamedTuple):
    """What ends, after how many seconds, and how long it is away."""

    second: float
    names: tuple[str, ...]
    away: float


@dataclass
class Site:
    """A server whose database is Postgres, as is every warehouse's catalogue, and four workers."""

    night: Night
    postgres: PostgresServer
    counted: Path
    starts: dict[str, Callable[[], None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("worker", *GPU_WORKERS):
            self.starts[name] = self._worker(name)
        self.starts |= {"server": self.night.start_server, "postgres": self.postgres.start}

    def _worker(self, name: str) -> Callable[[], None]:
        """A worker whose checkout and whose folder of unfinished answers are its own."""
        folder = self.night.folder / f"host-{name}"
        shutil.copytree(self.night.home, folder / "checkout")
        own = {"RLFOCAL_HOME": str(folder / "checkout"), "XDG_DATA_HOME": str(folder / "data")}
        pool = "gpu" if name in GPU_WORKERS else "cpu"
        return lambda: self.night.start_worker(name, pool=pool, own=own)

    def kill(self, name: str) -> None:
        if name == "postgres":
            self.postgres.kill()
        else:
            self.night.kill(name)

    def new_warehouse(self) -> str:
        """Where a warehouse may be made: a URI without its password."""
        address = self.postgres.database().replace(f":{self.postgres.password}@", "@")
        return f"{address}?data={self.night.folder / self.postgres.made[-1]}"

    def open(self, place: str) -> str:
        """The URI with its password."""
        return place.replace("lake@", f"lake:{self.postgres.password}@")

    def ask(self, path: str, body: Any = None) -> Any:
        """What the server answers, as soon as it does; what has ended is started again, as supervised."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            for name, start in self.starts.items():
                if name != "postgres" and self.night.has_ended(name):
                    start()
            with suppress(OSError):
                return self.night.api("GET" if body is None else "POST", path, body)
            time.sleep(1)
        raise AssertionError(self.night.log("server"))

    def end_of(self, run: str) -> str:
        """Waits for the type of a run's final state."""
        end = time.monotonic() + PATIENCE
        while (state := self.ask(f"flow_runs/{run}")["state_type"]) not in FINAL:
            assert time.monotonic() < end, f"{state}\n{self.night.run_log(run)}"
            time.sleep(1)
        return str(state)

    def asked(self) -> Counter[str]:
        """How often each document was asked of each model since the last look."""
        lines = self.counted.read_text().splitlines() if self.counted.exists() else []
        self.counted.unlink(missing_ok=True)
        return Counter(lines)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    found = postgres_server.programs()
    if found is None:
        pytest.skip("needs Postgres (on Debian: apt-get install postgresql)")
    folder = tmp_path_factory.mktemp("rounds")
    pool = folder / "pool.yaml"
    write_small_pool(pool)

    def small(deployment: dict[str, Any]) -> None:
        deployment["parameters"] |= {"pool": str(pool), "limit": LIMIT, "seeds": 1}

    with postgres_server.running(found) as postgres, Night(folder) as night:
        database = postgres.database().replace("postgresql:", "postgresql+asyncpg:")
        night.environment |= {
            "PREFECT_API_DATABASE_CONNECTION_URL": database,
            "PGPASSWORD": postgres.password,
            "COUNTED": str(folder / "counted"),
            "PYTHONPATH": os.pathsep.join([night.environment["PYTHONPATH"], str(Path(__file__).parents[1])]),
        }
        night.check_out(small, silence=SILENCE)
        with (night.home / "flows" / "extracting.py").open("a") as file:
            file.write(COUNTING)
        night.start_server()
        night.deploy()
        site = Site(night, postgres, folder / "counted")
        for name in ("worker", *GPU_WORKERS):
            site.starts[name]()
        yield site


@pytest.fixture(scope="module")
def undisturbed(site: Site) -> tuple[Tables, float]:
    """The tables that a regeneration makes which nothing disturbs, and the seconds that it takes."""
    while len(site.ask("work_pools/gpu/workers/filter", {})) < len(GPU_WORKERS):
        time.sleep(0.5)
    place = site.new_warehouse()
    began = time.monotonic()
    run = site.night.trigger(warehouse=place)
    assert site.end_of(run) == "COMPLETED", site.night.run_log(run)
    return tables(site.open(place), WHOLE), time.monotonic() - began


def test_three_workers_ask_each_model_each_document_once(
    site: Site, undisturbed: tuple[Tables, float]
) -> None:
    asked = site.asked()
    assert set(asked.values()) == {1}
    assert Counter(line.split("\t")[0] for line in asked) == dict.fromkeys(MODELS, len(TASKS) * LIMIT)
    children = {"flow_runs": {"name": {"any_": [f"extract {model}" for model in MODELS]}}}
    runs = site.ask("flow_runs/filter", children)
    assert sorted(run["name"] for run in runs) == sorted(f"extract {model}" for model in MODELS)
    assert all(run["state_type"] == "COMPLETED" for run in runs)
    extractions = undisturbed[0][0]
    assert len(extractions) == len({row[:3] for row in extractions}) == len(MODELS) * len(TASKS)


@pytest.mark.timeout(PATIENCE * (2 * ROUNDS + 1))
def test_whatever_is_killed_the_next_run_completes_and_no_run_is_left(
    site: Site, undisturbed: tuple[Tables, float]
) -> None:
    expected, longest = undisturbed
    told: Counter[str] = Counter()
    for n in range(FIRST, FIRST + ROUNDS):
        began = time.monotonic()
        place = site.new_warehouse()
        run = site.night.trigger(warehouse=place)
        for kill in kills(n, longest):
            time.sleep(max(0.0, began + kill.second - time.monotonic()))
            for name in kill.names:
                site.kill(name)
                told[name] += 1
            time.sleep(kill.away)
            for name in kill.names:
                site.starts[name]()
        first = site.end_of(run)
        told[f"{first} at first"] += 1
        if first != "COMPLETED":
            again = site.ask(f"flow_runs/{run}")
            deployment = again["deployment_id"]
            body = {"parameters": {**again["parameters"], "warehouse": place}}
            after = site.ask(f"deployments/{deployment}/create_flow_run", body)["id"]
            assert site.end_of(after) == "COMPLETED", site.night.run_log(after)
        assert tables(site.open(place), WHOLE) == expected
        print(f"round {n}: {first}, {time.monotonic() - began:.0f} s, {dict(told)}", flush=True)
    unfinished = {"flow_runs": {"state": {"type": {"any_": ["PENDING", "RUNNING", "CANCELLING"]}}}}
    end = time.monotonic() + 4 * SILENCE
    while left := site.ask("flow_runs/filter", unfinished):
        assert time.monotonic() < end, [(run["name"], run["state"]) for run in left]
        time.sleep(2)


def kills(n: int, longest: float) -> list[Kill]:
    """What a round kills: a worker, the server and the database one after another, or all at once."""
    rng = random.Random(n)
    workers = (*GPU_WORKERS, "worker") if n % 2 else GPU_WORKERS
    names = [rng.choice(workers), "server", "postgres"]
    if n % 4 == 3:
        return [Kill(rng.uniform(0, longest), ("postgres", "server", *GPU_WORKERS, "worker"), 3.0)]
    rng.shuffle(names)
    seconds = sorted(rng.uniform(0, longest) for _ in names)
    return [Kill(s, (name,), rng.uniform(0, 8)) for s, name in zip(seconds, names, strict=True)]
