"""All deployments on a real server that asks for a password, with a worker for each work pool.

A pool with a broken model, a worker that dies, a webhook that is told, and secrets planted everywhere.
RLFOCAL_WHOLE_POOL: with all twelve models of the embedded pool, instead of three.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError

import pytest
from support import postgres_server
from support.night import MODELS, TASKS, Night, write_small_pool
from support.servers import Handler, serving

from flows.support.capacity import HANDED_OVER_TAG
from flows.support.deploying import RUN_TAG
from flows.workers import LIMIT_NAME
from warehouse import open_warehouse

PATIENCE = 900
TOKEN = "hf_PlantedHubToken0123456789"
KEY = "sk-PlantedServerKey0123456789"
PASSWORD = "PlantedServerPassword1"
AUTH = f"night:{PASSWORD}"
BROKEN = "lab-llama"
GOOD = [model for model in MODELS if model != BROKEN]
SAVE_WEBHOOK = """
import sys
from prefect.blocks.notifications import CustomWebhookNotificationBlock as Webhook
Webhook(name="told", url=sys.argv[1], json_data={"text": "{{subject}}: {{body}}"}).save("told")
"""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def told() -> Iterator[tuple[str, list[str]]]:
    """A webhook's URL, and what was sent to it."""
    texts: list[str] = []

    class Webhook(Handler):
        def answer(self) -> None:
            texts.append(self.body().decode())
            self.send({})

    with serving(Webhook) as address:
        yield f"{address}/", texts


@pytest.fixture(scope="module")
def secrets() -> list[str]:
    return [TOKEN, KEY, PASSWORD]


@pytest.fixture(scope="module")
def night(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    told: tuple[str, list[str]],
    secrets: list[str],
) -> Iterator[Night]:
    """The server with all deployments, and a pool with a model whose directory is empty."""
    folder = tmp_path_factory.mktemp("deployments")
    with Night(folder, auth=AUTH) as night:
        night.environment |= {"HF_TOKEN": TOKEN, "OPENAI_API_KEY": KEY, "PREFECT_LOGGING_LEVEL": "DEBUG"}
        if postgres_server.programs() is not None:
            server = request.getfixturevalue("postgres")
            secrets.append(server.password)
            night.environment["RLFOCAL_WAREHOUSE"] = f"{server.database()}?data={folder / 'data'}"
            night.environment["XDG_DATA_HOME"] = str(folder / "home")
        file = folder / "night.yaml"
        write_small_pool(file, torn=BROKEN)

        def small(deployment: dict[str, Any]) -> None:
            asked = {"pool": str(file), "limit": 8, "seeds": 1}
            deployment["parameters"] |= asked | {"report": str(folder / "report.html")}

        night.check_out(small, notify="custom-webhook/told")
        night.start_server()
        subprocess.run(
            [sys.executable, "-c", SAVE_WEBHOOK, told[0]], env=night.environment, check=True, cwd=folder
        )
        night.deploy()
        yield night


def handed_over(night: Night) -> list[dict[str, Any]]:
    """The runs of extract-model that regenerations asked for, in that order."""
    asked = {"flow_runs": {"tags": {"all_": [HANDED_OVER_TAG]}}, "sort": "EXPECTED_START_TIME_ASC"}
    return list(night.api("POST", "flow_runs/filter", asked))


def until(what: Any, *, seconds: float = 300) -> Any:
    """The first true value of `what()`."""
    end = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < end
        time.sleep(0.5)
    return found


def test_every_parameter_of_every_deployment_is_described(night: Night) -> None:
    deployed = night.api("POST", "deployments/filter", {})
    names = {"regenerate", "extract-model", "add-model", "train", "evaluate", "report", "maintain"}
    assert {one["name"] for one in deployed} == names
    for one in deployed:
        form = one["parameter_openapi_schema"]["properties"]
        assert all(len(field["description"]) > 20 for field in form.values()), one["name"]
        assert one["tags"] == [RUN_TAG]
        assert one["description"]
    with pytest.raises(HTTPError) as refused:
        night.trigger("extract-model/extract-model", pool="lab")
    assert refused.value.code == 409
    assert "model" in refused.value.read().decode()


REFUSED = [
    ("regenerate", {"seeds": 1e30}, "maximum"),
    ("regenerate", {"seeds": 0}, "seeds"),
    ("regenerate", {"backend": "hff"}, "backend"),
    ("regenerate", {"models": []}, "models"),
    ("extract-model", {"model": "m", "minutes": 10**19}, "maximum"),
    ("maintain", {"keep": 10**19}, "maximum"),
]
ENTRY = {"model": "m", "hf_repo": "x", "params_b": 1}
REFUSED += [
    ("add-model", {"entry": ENTRY | more}, "maximum")
    for more in (
        {"params_b": 2e6},
        {"price": 1e30},
        {"context_length": 10**30},
        {"engine_args": {"hf": {"sizes": [{"most": 10**30}]}}},
        {"template_args": {"most": 10**30}},
        {"thinking": {"budget": 10**30}},
    )
]


@pytest.mark.parametrize(("name", "asked", "why"), REFUSED, ids=str)
def test_a_form_refuses_numbers_that_no_list_of_runs_can_show(
    name: str, asked: dict[str, Any], why: str, night: Night
) -> None:
    with pytest.raises(HTTPError) as refused:
        night.trigger(f"{name}/{name}", **({"pool": "lab"} if name != "maintain" else {}), **asked)
    assert refused.value.code == 409
    assert why in refused.value.read().decode()


def test_a_broken_model_and_a_dead_worker_cost_no_other_model(
    night: Night, told: tuple[str, list[str]]
) -> None:
    night.start_worker("gpu", pool="gpu")
    until(lambda: night.api("POST", "work_pools/gpu/workers/filter", {}))
    night.kill("gpu")  # for the server, it is online for a while
    night.start_worker()
    run = night.trigger()
    until(lambda: handed_over(night), seconds=PATIENCE)  # one, as the worker has said nothing yet
    died = handed_over(night)[0]
    crashed = {"state": {"type": "CRASHED", "message": "No heartbeat"}, "force": True}
    night.api("POST", f"flow_runs/{died['id']}/set_state", crashed)  # as the automation does
    night.start_worker("gpu", pool="gpu")

    assert night.wait(run, seconds=PATIENCE) == "FAILED"
    message = night.api("GET", f"flow_runs/{run}")["state"]["message"]
    assert message.startswith(f"{len(TASKS)} steps failed, the first: extract {BROKEN} on lab-mmlu/")
    assert f"missing: model {BROKEN!r}: the direct" in message  # long paths lose their middle
    children = handed_over(night)
    assert Counter((one["name"], one["state_type"]) for one in children) == {
        (died["name"], "CRASHED"): 1,
        **{(f"extract {model}", "COMPLETED"): 1 for model in GOOD},
        (f"extract {BROKEN}", "FAILED"): 1,
    }
    [torn] = [one["id"] for one in children if one["state_type"] == "FAILED"]
    tries = night.api("POST", "task_runs/filter", {"flow_runs": {"id": {"any_": [torn]}}})
    assert [one["run_count"] for one in tries] == [1], "another try cannot help"
    limit = night.api("GET", f"v2/concurrency_limits/{LIMIT_NAME}")
    assert (limit["limit"], limit["active_slots"]) == (2, 0)
    with open_warehouse(night.environment["RLFOCAL_WAREHOUSE"], read_only=True) as warehouse:
        counts = "SELECT model, count(*), count(DISTINCT task) FROM extractions GROUP BY model ORDER BY model"
        assert warehouse.rows(counts) == [(model, len(TASKS), len(TASKS)) for model in sorted(GOOD)]
        used = warehouse.rows("SELECT count(DISTINCT benchmark) FROM evaluations WHERE method = 'rl_focal'")
        assert used == [(1,)]
    missing = night.api("POST", "artifacts/filter", {"artifacts": {"key": {"any_": ["regenerate-missing"]}}})
    assert {gap["model"] for gap in json.loads(missing[0]["data"])} == {BROKEN}
    until(lambda: any("night.yaml is Failed" in text for text in told[1]))

    again = night.trigger()
    assert night.wait(again, seconds=PATIENCE) == "FAILED"
    assert [one["name"] for one in handed_over(night)[len(children) :]] == [f"extract {BROKEN}"]


def test_secrets_are_nowhere(night: Night, secrets: list[str], told: tuple[str, list[str]]) -> None:
    for name in ("worker", "gpu", "server"):
        night.kill(name)  # what they hold back is written
    report = night.folder / "report.html"
    assert report.exists()
    with open_warehouse(night.environment["RLFOCAL_WAREHOUSE"], read_only=True) as warehouse:
        tables = [name for (name,) in warehouse.rows("SHOW TABLES")]
        rows = "\n".join(str(warehouse.rows(f"SELECT * FROM {name}")) for name in tables)
        snapshots = str(warehouse.rows("SELECT * FROM warehouse.snapshots()"))
    files = {path: path.read_bytes() for path in night.folder.rglob("*") if path.is_file()}
    assert any(path.name.startswith("prefect.db") and b"night.yaml" in files[path] for path in files)
    for secret in secrets:
        assert secret not in rows + snapshots + "".join(told[1])
        assert [path for path, content in files.items() if secret.encode() in content] == []
