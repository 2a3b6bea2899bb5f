"""A real Prefect server and worker for the tests, and a checkout whose deployment the test may change."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil
import yaml

from rlfocal.pool import load_pool
from support.servers import free_port
from warehouse import open_warehouse

ROOT = Path(__file__).resolve().parents[2]
PREFECT = str(Path(sys.executable).with_name("prefect"))
DEPLOYMENT = "regenerate/regenerate"
FINAL = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")
Tables = list[list[tuple[Any, ...]]]
EVERY = 1 if os.environ.get("RLFOCAL_WHOLE_POOL") else 4
MODELS = [model.model for model in load_pool("lab").models][::EVERY]
TASKS = ("astronomy", "botany")
"""Of lab-mmlu."""


def write_small_pool(file: Path, *, torn: str | None = None) -> None:
    """A pool of `MODELS` and `TASKS`, named like its file; `torn`: a model whose directory is empty."""
    pool = yaml.safe_load((ROOT / "pools" / "lab.yaml").read_text())
    models = [model for model in pool["models"] if model["model"] in MODELS]
    for model in models:
        if model["model"] == torn:
            model["hf_repo"] = str(file.with_name("torn"))
            file.with_name("torn").mkdir()
    [benchmark] = load_pool("lab").choose(None, ["lab-mmlu"]).benchmarks
    tasks = {name: benchmark.tasks[name] for name in TASKS}
    benchmarks = [benchmark.model_dump(exclude_unset=True) | {"tasks": tasks}]
    file.write_text(yaml.safe_dump({"name": file.stem, "benchmarks": benchmarks, "models": models}))


def tables(location: Path | str, evaluated: str = "true") -> Tables:
    """What two warehouses have in common that were filled alike; `evaluated`: of which evaluations."""
    queries = (
        "SELECT model, benchmark, task, n_docs FROM extractions ORDER BY ALL",
        "SELECT * FROM docs ORDER BY benchmark, task, doc_id",
        "SELECT benchmark, task, doc_id, model, choice, logprob FROM choice_logprobs ORDER BY ALL",
        "SELECT benchmark, task, method, study, settings, seed, n, accuracy, mean_pool_size, cost "
        f"FROM evaluations WHERE {evaluated} ORDER BY ALL",
        "SELECT count(*), count(DISTINCT run_id) FROM decisions "
        f"WHERE run_id IN (SELECT run_id FROM evaluations WHERE {evaluated})",
    )
    with open_warehouse(location, read_only=True) as warehouse:
        return [warehouse.rows(query) for query in queries]


class Night:
    """A folder with a server's database, a worker's checkout and a warehouse; ends what it started."""

    def __init__(self, folder: Path, *, auth: str | None = None) -> None:
        """`auth`: the user and password, as `user:password`, that the server asks for."""
        self.folder = folder
        self.home = folder / "checkout"
        self.warehouse = folder / "warehouse"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/api"
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")},
            "PREFECT_HOME": str(folder / "prefect"),
            "PREFECT_API_URL": self.url,
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "PREFECT_SERVER_SERVICES_SCHEDULER_LOOP_SECONDS": "5",
            "PREFECT_WORKER_QUERY_SECONDS": "2",
            "RLFOCAL_WAREHOUSE": str(self.warehouse),
            "PYTHONPATH": str(ROOT),
            "COLUMNS": "200",  # or Prefect's tables break names apart
        }
        self.environment.pop("RLFOCAL_HOME", None)
        self.auth = auth
        if auth is not None:
            self.environment |= {"PREFECT_SERVER_API_AUTH_STRING": auth, "PREFECT_API_AUTH_STRING": auth}
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Night:
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self._running):
            self.kill(name)

    def check_out(
        self,
        change: Callable[[dict[str, Any]], None] | None = None,
        *,
        notify: str | None = None,
        silence: int | None = None,
    ) -> None:
        """Copies what is deployed; `change` gets the first deployment of prefect.yaml to alter.

        `silence`: after how many seconds without a heartbeat a run counts as crashed.
        """
        for name in ("flows", "pools"):
            shutil.copytree(ROOT / name, self.home / name, ignore=shutil.ignore_patterns("__pycache__"))
        content = yaml.safe_load((ROOT / "prefect.yaml").read_text())
        if change is not None:
            change(content["deployments"][0])
        content["build"][1]["flows.support.deploying.notify"]["block"] = notify
        (self.home / "prefect.yaml").write_text(yaml.safe_dump(content))
        if silence is not None:
            self.allow_silence(silence)

    def allow_silence(self, seconds: int) -> None:
        """Changes after how long without a heartbeat a run counts as crashed, from the next deployment on."""
        path = self.home / "prefect.yaml"
        content = yaml.safe_load(path.read_text())
        content["build"][0]["flows.support.deploying.crash_silent_runs"]["seconds"] = seconds
        path.write_text(yaml.safe_dump(content))

    def start_server(self) -> None:
        """Starts the server, or starts it again, and waits for it."""
        words = ["server", "start", "--host", "127.0.0.1", "--port", str(self.port), "--no-ui"]
        self._start("server", words, self.environment)
        end = time.monotonic() + 600
        while True:
            try:
                asked = urllib.request.Request(f"{self.url}/health", headers=self.headers)
                with urllib.request.urlopen(asked, timeout=5):
                    return
            except OSError:
                assert time.monotonic() < end, self.log("server")
                time.sleep(0.5)

    def start_worker(
        self,
        name: str = "worker",
        *,
        pool: str = "cpu",
        home: bool = True,
        own: Mapping[str, str] | None = None,
    ) -> None:
        """Starts a worker, in place of the last of this name; `home`: it is told where its checkout is.

        `own`: of its environment, what others do not share.
        """
        self.kill(name)
        checkout = {"RLFOCAL_HOME": str(self.home)} if home else {}
        environment = {**self.environment, **checkout, **(own or {})}
        self._start(name, ["worker", "start", "--pool", pool, "--name", name], environment)

    def deploy(self) -> None:
        """The README's commands."""
        for pool in ("cpu", "gpu"):
            self.prefect("work-pool", "create", "--type", "process", pool)
        self.prefect("deploy", "--all", "--no-prompt", cwd=self.home)

    def prefect(self, *words: str, cwd: Path | None = None) -> str:
        """What a command of Prefect prints."""
        done = subprocess.run(
            [PREFECT, *words], env=self.environment, cwd=cwd or self.folder, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def trigger(self, name: str = DEPLOYMENT, /, **parameters: Any) -> str:
        """Asks for a run of a deployment; returns its id."""
        deployment = self.api("GET", f"deployments/name/{name}")
        made = self.api("POST", f"deployments/{deployment['id']}/create_flow_run", {"parameters": parameters})
        return str(made["id"])

    def state(self, run: str) -> str:
        """The type of a run's state, as `RUNNING`."""
        return str(self.api("GET", f"flow_runs/{run}")["state_type"])

    def wait(self, run: str, *states: str, seconds: float) -> str:
        """Waits until the run is in one of `states` (without any: in a final one), and returns it."""
        end = time.monotonic() + seconds
        while (state := self.state(run)) not in (states or FINAL):
            told = f"{state}\n{self.run_log(run)}\n{self.log('worker')}"
            assert time.monotonic() < end, told
            assert not states or state not in FINAL, told
            time.sleep(0.5)
        return state

    def run_log(self, run: str, *, own: bool = False) -> str:
        """What the run's page shows as its log; `own`: without the worker's lines about the run's process."""
        asked = {"logs": {"flow_run_id": {"any_": [run]}}, "sort": "TIMESTAMP_ASC", "limit": 200}
        lines = self.api("POST", "logs/filter", asked)
        return "\n".join(line["message"] for line in lines if not own or line["name"] == "prefect.flow_runs")

    @property
    def headers(self) -> dict[str, str]:
        """Of a call of the server's API."""
        if self.auth is None:
            return {"Content-Type": "application/json"}
        basic = base64.b64encode(self.auth.encode()).decode()
        return {"Content-Type": "application/json", "Authorization": f"Basic {basic}"}

    def api(self, method: str, path: str, body: Any = None) -> Any:
        """A call of the server's API."""
        request = urllib.request.Request(
            f"{self.url}/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers=self.headers,
        )
        only_reads = method == "GET" or path.endswith("filter")
        for patience in (1, 5, 25, 0):
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    content = answer.read()
                    break
            except OSError as error:
                is_busy = getattr(error, "code", None) == 503 or (
                    only_reads and isinstance(error, TimeoutError)
                )
                if not is_busy or not patience:
                    raise
                time.sleep(patience)
        return json.loads(content) if content else None

    def kill(self, name: str, sent: signal.Signals = signal.SIGKILL) -> None:
        """Ends the server or the worker and all that it started, as a host's crash does."""
        process = self._running.pop(name, None)
        if process is None:
            return
        with contextlib.suppress(psutil.NoSuchProcess):
            whole = psutil.Process(process.pid)
            for child in [whole, *whole.children(recursive=True)]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.send_signal(sent)
        process.wait(60)

    def has_ended(self, name: str) -> bool:
        """Whether the server or the worker is not running, killed or of itself."""
        process = self._running.get(name)
        return process is None or process.poll() is not None

    def log(self, name: str) -> str:
        """What the server or the worker printed."""
        path = self.folder / f"{name}.log"
        return path.read_text() if path.exists() else ""

    def _start(self, name: str, words: list[str], environment: Mapping[str, str]) -> None:
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        with (self.folder / f"{name}.log").open("a") as output:
            self._running[name] = subprocess.Popen(
                [PREFECT, *words],
                env=environment,
                cwd=folder,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
