"""The main job through Prefect: in one process, and deployed to a real server with a real worker."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml
from tiny_models import save_model, write_tasks

from rlfocal.errors import InputError
from warehouse import open_warehouse

ROOT = Path(__file__).resolve().parents[1]
PREFECT = str(Path(sys.executable).with_name("prefect"))


def write_pool(folder: Path, models: dict[str, Path]) -> Path:
    """A pool file of tiny models and one benchmark of two tasks."""
    benchmark = {
        "name": "tiny",
        "kind": "choices",
        "tasks": {"plain": "tiny_choices", "spaces": "tiny_spaces"},
        "include_path": str(folder / "tasks"),
    }
    entries = [
        {"model": name, "hf_repo": str(path), "params_b": 1e-4, "price": 1.0, "truncation": "keep"}
        for name, path in models.items()
    ]
    path = folder / f"{'-'.join(models)}.yaml"
    path.write_text(yaml.safe_dump({"name": "tiny", "benchmarks": [benchmark], "models": entries}))
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("flow")
    write_tasks(made / "tasks")
    for name in ("llama", "mistral", "gpt2"):
        save_model(made / name, name)
    (made / "torn").mkdir()
    return made


@pytest.fixture(scope="module")
def prefect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A temporary server with a database of its own."""
    from prefect.testing.utilities import prefect_test_harness

    with prefect_test_harness(server_startup_timeout=120):
        yield


def evaluated(location: Path) -> list[tuple[Any, ...]]:
    with open_warehouse(location, read_only=True) as warehouse:
        return warehouse.rows(
            "SELECT method, seed, n, accuracy FROM evaluations WHERE task = '*' ORDER BY ALL"
        )


@pytest.mark.slow
def test_the_flow_fills_the_warehouse_once_and_reports(folder: Path, prefect: None, tmp_path: Path) -> None:
    from flows.regenerate import run

    pool = write_pool(folder, {name: folder / name for name in ("llama", "mistral", "gpt2")})
    told: list[tuple[str, float]] = []
    asked: dict[str, Any] = {
        "pool": str(pool),
        "warehouse": str(tmp_path / "warehouse"),
        "report": str(tmp_path / "report.html"),
        "seeds": 2,
    }
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


@pytest.mark.slow
def test_a_failing_model_stops_no_other_and_is_named(folder: Path, prefect: None, tmp_path: Path) -> None:
    from flows.regenerate import regenerate, run

    pool = write_pool(folder, {name: folder / name for name in ("llama", "torn", "gpt2")})
    asked: dict[str, Any] = {
        "pool": str(pool),
        "warehouse": str(tmp_path / "warehouse"),
        "report": str(tmp_path / "report.html"),
        "seeds": 1,
    }
    summary = run(**asked)
    assert summary.extracted == 4
    assert {(gap.step, gap.model, gap.benchmark, gap.task) for gap in summary.gaps} == {
        ("extract", "torn", "tiny", "plain"),
        ("extract", "torn", "tiny", "spaces"),
    }
    assert all(gap.reason and "\n" not in gap.reason for gap in summary.gaps)
    assert {model for row in summary.evaluations for model in row.models} == {"llama", "gpt2"}
    assert summary.report is not None
    assert summary.report.exists()
    state = regenerate(**asked, return_state=True)
    assert state.is_failed()
    assert "torn" in str(state.message) or "missing" in str(state.message)


@pytest.mark.slow
def test_a_benchmark_that_does_not_load_stops_no_other(folder: Path, prefect: None, tmp_path: Path) -> None:
    from flows.regenerate import run

    pool = write_pool(folder, {"llama": folder / "llama", "gpt2": folder / "gpt2"})
    content = yaml.safe_load(pool.read_text())
    (tiny,) = content["benchmarks"]
    misspelt = {**tiny, "name": "misspelt", "tasks": {"plain": "tiny_choice"}}
    unreadable = {**tiny, "name": "unreadable", "include_path": str(write_tasks(tmp_path / "tasks"))}
    (tmp_path / "tasks" / "choices.jsonl").unlink()
    broken = tmp_path / "broken.yaml"
    broken.write_text(yaml.safe_dump({**content, "benchmarks": [misspelt, tiny, unreadable]}))
    asked: dict[str, Any] = {
        "pool": str(broken),
        "warehouse": str(tmp_path / "warehouse"),
        "report": str(tmp_path / "report.html"),
        "seeds": 1,
        "limit": 10,
    }
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
    from flows.regenerate import run

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
    from flows import SETTINGS, quieten

    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PREFECT_LOGGING_LEVEL", "DEBUG")
    quieten()
    assert os.environ["PREFECT_LOGGING_LEVEL"] == "DEBUG"
    assert os.environ["PREFECT_SERVER_ANALYTICS_ENABLED"] == "false"
    for name in SETTINGS:
        monkeypatch.delenv(name)


def test_prefect_yaml_satisfies_prefects_schema_and_names_no_machine() -> None:
    from prefect.cli.deploy._models import PrefectYamlModel

    text = (ROOT / "prefect.yaml").read_text()
    content = yaml.safe_load(text)
    jsonschema.validate(content, PrefectYamlModel.model_json_schema())
    [deployment] = content["deployments"]
    assert deployment["name"] == "regenerate-nightly"
    assert [(s["cron"], s["timezone"]) for s in deployment["schedules"]] == [("30 2 * * *", "UTC")]
    assert deployment["work_pool"]["name"] == "rlfocal"
    assert content["pull"]
    assert not re.search(r"[\s\"']/\w", text)
    file, function = deployment["entrypoint"].split(":")
    assert f"def {function}(" in (ROOT / file).read_text()


@pytest.mark.slow
def test_the_deployment_runs_on_a_real_server_and_worker(tmp_path: Path) -> None:
    port = free_port()
    environment = {
        **os.environ,
        "PREFECT_HOME": str(tmp_path / "prefect"),
        "PREFECT_API_URL": f"http://127.0.0.1:{port}/api",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "RLFOCAL_WAREHOUSE": str(tmp_path / "warehouse"),
        "COLUMNS": "200",  # or Prefect's tables break names apart
    }
    environment.pop("RLFOCAL_HOME", None)
    parameters = {"models": ["lab-llama", "lab-gemma"], "benchmarks": ["lab-mmlu"], "limit": 8, "seeds": 1}
    parameters |= {"report": str(tmp_path / "report.html")}

    def command(*words: str) -> str:
        done = subprocess.run([PREFECT, *words], env=environment, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    with ExitStack() as running:
        server = ["server", "start", "--host", "127.0.0.1", "--port", str(port), "--no-ui"]
        running.enter_context(background([PREFECT, *server], environment, tmp_path / "server.log"))
        wait_until_healthy(environment["PREFECT_API_URL"])
        command("work-pool", "create", "rlfocal", "--type", "process")
        command("deploy", "--all", "--no-prompt")
        deployed = json.loads(
            command("deployment", "inspect", "regenerate/regenerate-nightly", "--output", "json")
        )
        assert str(ROOT) not in json.dumps(deployed)
        assert [s["schedule"]["cron"] for s in deployed["schedules"]] == ["30 2 * * *"]
        worker = [PREFECT, "worker", "start", "--pool", "rlfocal", "--name", "test"]
        at_home = {**environment, "RLFOCAL_HOME": str(ROOT)}
        running.enter_context(background(worker, at_home, tmp_path / "worker.log"))
        words = [f"--param={name}={json.dumps(value)}" for name, value in parameters.items()]
        log = (tmp_path / "worker.log").read_text
        try:
            command(
                "deployment",
                "run",
                "regenerate/regenerate-nightly",
                "--watch",
                "--watch-timeout",
                "400",
                *words,
            )
        except AssertionError as error:
            raise AssertionError(f"{error}\n{log()}") from None
        artifacts = command("artifact", "ls")
    assert "regenerate-accuracy" in artifacts
    assert "regenerate-missing" not in artifacts
    assert (tmp_path / "report.html").stat().st_size > 10_000
    with open_warehouse(tmp_path / "warehouse", read_only=True) as warehouse:
        [(models, tasks)] = warehouse.rows(
            "SELECT count(DISTINCT model), count(DISTINCT task) FROM extractions"
        )
        [(most,)] = warehouse.rows("SELECT max(doc_id) FROM choice_logprobs")
        assert (models, most) == (2, 7)
        assert tasks > 1
    assert evaluated(tmp_path / "warehouse")


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


@contextmanager
def background(command: list[str], environment: dict[str, str], log: Path) -> Iterator[None]:
    """Runs a process, and ends it and its children."""
    with log.open("w") as output:
        process = subprocess.Popen(
            command, env=environment, cwd=ROOT, stdout=output, stderr=output, start_new_session=True
        )
        try:
            yield
        finally:
            os.killpg(process.pid, 15)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                process.wait()


def wait_until_healthy(url: str, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while True:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5):
                return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.5)
