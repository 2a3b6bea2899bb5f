"""Models from a hub, here one of our own: commits, the hub's refusals, remote code, and secrets."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from huggingface_hub import constants
from support.basics import RLFOCAL, run_python
from support.cli import Cli
from support.hub_server import Hub, serve
from support.real_weights import find_gguf
from support.tiny_models import save_adapter

from rlfocal.base.errors import InputError
from rlfocal.lab import weights_dir
from rlfocal.new_model import adding
from rlfocal.pool import hub as pool_hub
from rlfocal.pool import load_pool
from rlfocal.pool.hub import HubError, local_weights, mixes_experts, pin_revision, read_config
from rlfocal.pool.specs import ModelSpec
from warehouse import open_warehouse

FIRST, SECOND = "1" * 40, "2" * 40
TOKEN = "hf_" + "PlantedSecret" * 3
RESOLVE = """
import sys
from rlfocal.base.errors import InputError
from rlfocal.pool.hub import pin_revision
from rlfocal.pool.specs import ModelSpec
for place in sys.argv[1:]:
    repo, revision = place.split("@")
    try:
        print(pin_revision(ModelSpec(model="m", hf_repo=repo, revision=revision, params_b=1)).revision)
    except InputError as error:
        print("refused:", error)
"""


@pytest.fixture
def hub() -> Iterator[Hub]:
    with serve() as running:
        running.push("org/small", Path(weights_dir("lab-gemma-small")), FIRST)
        yield running


@pytest.fixture
def environment(hub: Hub, tmp_path: Path) -> dict[str, str]:
    """For a process of its own: huggingface_hub reads these when it is imported."""
    dropped = {"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_TOKEN", "RLFOCAL_WAREHOUSE"}
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    return kept | {
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(tmp_path / "hf-home"),
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "OMP_NUM_THREADS": "1",
    }


def resolve(environment: dict[str, str], *places: str) -> list[str]:
    """The commit of each place, or why there is none."""
    return run_python("-c", RESOLVE, *(places or ["org/small@main"]), env=environment).splitlines()


def test_a_branch_is_the_commit_it_points_to_now(hub: Hub, environment: dict[str, str]) -> None:
    assert resolve(environment) == [FIRST]
    hub.push("org/small", Path(weights_dir("lab-phi")), SECOND)
    assert resolve(environment, "org/small@main", f"org/small@{FIRST}") == [SECOND, FIRST]


@pytest.mark.slow
def test_without_a_network_the_cache_answers(hub: Hub, environment: dict[str, str]) -> None:
    offline = environment | {"HF_HUB_OFFLINE": "1"}
    [told] = resolve(offline)
    assert "hf download org/small --revision main" in told
    assert resolve(environment) == resolve(offline) == [FIRST]
    for endpoint, reason in (("http://127.0.0.1:9", "cannot be reached"), ("hub.example", "https://")):
        begun = time.monotonic()
        cached, refused = resolve(environment | {"HF_ENDPOINT": endpoint}, "org/small@main", "org/other@main")
        assert time.monotonic() - begun < 40  # with the start of Python; the hub's client alone takes 46
        assert cached == FIRST or endpoint in cached
        assert endpoint in refused
        assert reason in refused
    with socket.create_server(("127.0.0.1", 0)) as server:

        def hang_up() -> None:
            with suppress(OSError):  # once the server is closed
                while True:
                    server.accept()[0].close()

        threading.Thread(target=hang_up, daemon=True).start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        [told] = resolve(environment | {"HF_ENDPOINT": url}, "org/other@main")
    assert f"{url} gives no answer" in told


def test_a_hub_that_never_answers_is_asked_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """For all models together, GGUF files too: 40 of them do not wait one after the other."""
    monkeypatch.setattr(pool_hub, "HUB_SECONDS", 0.2)
    monkeypatch.setattr(pool_hub, "_silent_until", {})
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setattr(constants, "ENDPOINT", url)
        template = f"{url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setenv("HF_ENDPOINT", url)
        for name, gguf_file in {"a": None, "b": "x.gguf", "c": None}.items():
            spec = ModelSpec(model=name, hf_repo=f"org/{name}", params_b=1, gguf_file=gguf_file)
            with pytest.raises(HubError, match=f"{url} cannot be reached"):
                pin_revision(spec)
        server.settimeout(0.2)
        server.accept()[0].close()
        with pytest.raises(TimeoutError):
            server.accept()


def test_every_refusal_names_the_fix(hub: Hub, environment: dict[str, str], tmp_path: Path) -> None:
    hub.push("org/gated", tmp_path, FIRST)
    hub.gated.add("org/gated")
    hub.push("org/bare", tmp_path, FIRST)
    cases = {
        "org/smal@main": "there is no org/smal",
        "org/gated@main": f"licence at {hub.url}/org/gated",
        "org/small@v9": f"{hub.url}/org/small/commits/main",
        "org/bare@main": "has no config.json at 'main'; so it is not a transformers model",
        "a/b/c@main": "./a/b/c",
    }
    for told, expected in zip(resolve(environment, *cases), cases.values(), strict=True):
        assert told.startswith("refused: model 'm': ")
        assert expected in told


def test_remote_code_runs_only_where_the_entry_allows_it(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(weights_dir("lab-gemma-small"), folder)
    spec = ModelSpec(model="m", hf_repo=str(folder), params_b=1)
    config = json.loads((folder / "config.json").read_text())
    config["auto_map"] = {"AutoModelForCausalLM": "modeling_own.OwnModel"}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "modeling_own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    assert pin_revision(spec) == spec  # transformers has this architecture, and takes its own code
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "own"}))
    with pytest.raises(InputError, match=r"of type 'own'.*`trust_remote_code: true`"):
        pin_revision(spec)
    pin_revision(spec.model_copy(update={"trust_remote_code": True}))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("dropped", "lacking"),
    [("tokenizer.json", "tokenizer"), ("config.json", "config.json"), ("model.safetensors", "weights")],
)
def test_a_directory_must_hold_a_whole_model(tmp_path: Path, dropped: str, lacking: str) -> None:
    folder = tmp_path / "model"
    shutil.copytree(weights_dir("lab-gemma-small"), folder)
    spec = ModelSpec(model="m", hf_repo=str(folder), params_b=1)
    assert local_weights(spec) == folder
    (folder / dropped).unlink()
    with pytest.raises(InputError, match=f"model 'm': the directory .* has no {lacking}.*save_pretrained"):
        pin_revision(spec)


def write_pool(folder: Path, repo: str = "org/small", more: str = "") -> Path:
    path = folder / "hub.yaml"
    path.write_text(
        "name: hub\n"
        "benchmarks:\n"
        "  - {name: one, kind: choices, tasks: {gpqa: lab_gpqa}, include_path: 'package:lab/tasks'}\n"
        f"models:\n  - {{model: small, hf_repo: {repo}, params_b: 0.001, dtype: float32{more}}}\n"
    )
    return path


def rlfocal(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *RLFOCAL, *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def everything(location: Path) -> str:
    """All that a warehouse holds, as text: every table, the catalogue and its messages."""
    with open_warehouse(location) as warehouse:
        tables = [name for (name,) in warehouse.rows("SHOW TABLES")]
        rows = [str(warehouse.rows(f"SELECT * FROM {name}")) for name in tables]
        snapshots = warehouse.rows("SELECT * FROM warehouse.snapshots()")
    files = [p.read_bytes().decode("latin-1") for p in location.rglob("*") if p.is_file()]
    return "\n".join([*rows, str(snapshots), *files])


@pytest.mark.slow
def test_models_of_the_hub_are_extracted_and_a_moved_branch_is_noticed(
    hub: Hub, environment: dict[str, str], tmp_path: Path
) -> None:
    """One with an adapter, and a GGUF file where there is one, among them."""
    hub.push("org/adapter", save_adapter(Path(weights_dir("lab-gemma-small")), tmp_path / "adapter"), SECOND)
    pool = write_pool(tmp_path)
    more = "  - {model: adapted, hf_repo: org/small, params_b: 0.001, dtype: float32, adapter: org/adapter}\n"
    if file := find_gguf():
        packed = tmp_path / "packed"
        packed.mkdir()
        (packed / file.name).symlink_to(file)
        (packed / "other.gguf").write_bytes(b"of another quantisation")
        hub.push("org/packed", packed, FIRST)
        more += f"  - {{model: packed, hf_repo: org/packed, params_b: 0.135, gguf_file: {file.name}}}\n"
    pool.write_text(pool.read_text() + more)
    location = tmp_path / "warehouse"
    words = ["extract", "--pool", str(pool), "--backend", "hf", "--limit", "5", "-w", str(location), "--json"]
    planted = environment | {"HF_TOKEN": TOKEN}

    def extract(*more: str, **changed: str) -> tuple[int, int]:
        done = rlfocal(planted | changed, *words, *more)
        assert done.returncode == 0, done.stdout + done.stderr
        assert TOKEN not in done.stdout + done.stderr
        made = json.loads(done.stdout)
        return len(made["extracted"]), made["skipped"]

    n = 3 if file else 2
    assert extract() == (n, 0)
    assert hub.tokens == {TOKEN}  # it went to the hub, and nowhere else
    assert extract(HF_HUB_OFFLINE="1") == (0, n)
    assert not any("other.gguf" in sent for sent in hub.files_sent)
    with open_warehouse(location) as warehouse:
        said = dict(
            warehouse.rows(
                "SELECT model, list(logprob ORDER BY doc_id, choice) FROM choice_logprobs GROUP BY 1"
            )
        )
        settings = dict(warehouse.rows("SELECT model, settings FROM extractions"))
    assert said["adapted"] != said["small"]
    assert json.loads(settings["adapted"])["adapter_revision"] == SECOND
    if file:
        about = json.loads(settings["packed"])
        assert (about["gguf_file"], about["revision"]) == (file.name, FIRST)

    sent = len(hub.files_sent)
    hub.push("org/small", Path(weights_dir("lab-phi")), SECOND)
    assert extract("--models", "small") == (1, 0)
    assert {name.rsplit("@")[1] for name in hub.files_sent[sent:]} == {SECOND}
    with open_warehouse(location) as warehouse:
        [(revision,)] = warehouse.rows("SELECT settings->>'revision' FROM extractions WHERE model = 'small'")
    assert revision == SECOND
    assert TOKEN not in everything(location)


@pytest.mark.slow
def test_a_token_appears_in_no_log_report_or_error(
    hub: Hub, environment: dict[str, str], tmp_path: Path
) -> None:
    """The whole flow, with everything logged that can be, and a model that cannot be had."""
    location, report = tmp_path / "warehouse", tmp_path / "report.html"
    pool = write_pool(tmp_path)
    lost = "  - {model: lost, hf_repo: org/nothing, revision: r, params_b: 1}\n"
    pool.write_text(pool.read_text() + lost)
    planted = environment | {
        "HF_TOKEN": TOKEN,
        "OPENAI_API_KEY": "planted-key-0123",
        "PREFECT_HOME": str(tmp_path / "prefect"),
        "PREFECT_LOGGING_LEVEL": "DEBUG",
    }
    words = ["regenerate", "--pool", str(pool), "--backend", "hf", "--limit", "20", "--seeds", "1"]
    done = rlfocal(planted, *words, "-w", str(location), "-o", str(report))
    assert done.returncode == 1
    assert "there is no org/nothing" in " ".join((done.stdout + done.stderr).split())
    logs = [p.read_bytes().decode("latin-1") for p in (tmp_path / "prefect").rglob("*") if p.is_file()]
    for place in (done.stdout, done.stderr, everything(location), report.read_text(), *logs):
        assert TOKEN not in place
        assert "planted-key-0123" not in place


@pytest.mark.parametrize(
    ("repo", "more", "place"),
    [
        (f"https://user:{TOKEN}@host/org/small", "", "hf_repo"),
        ("org/small", f", engine_args: {{vllm: {{hf_token: {TOKEN}}}}}", "engine_args.vllm.hf_token"),
        ("org/small", f", base_url: 'http://host/v1?key={TOKEN}'", "base_url"),
        ("org/small", ", base_url: 'http://me:PlantedSecret@host/v1'", "base_url"),
    ],
)
def test_an_entry_with_a_secret_is_refused_and_not_repeated(
    cli: Cli, tmp_path: Path, repo: str, more: str, place: str
) -> None:
    pool = write_pool(tmp_path, f"'{repo}'", more)
    done = cli("extract", "--pool", str(pool), "-w", str(tmp_path / "warehouse"))
    assert done.code == 2
    assert "holds a secret" in done.err
    assert place in done.err
    assert "PlantedSecret" not in done.out + done.err
    assert not (tmp_path / "warehouse").exists()


def test_mixtures_of_experts_are_known_by_their_configuration() -> None:
    """Their page says that repeats differ."""
    mixtures = {model.model for model in load_pool("lab").models if mixes_experts(read_config(model))}
    assert mixtures == {"lab-mixtral"}
    assert {model.model for model in load_pool("lab").models if adding._note_experts(model)} == mixtures
    assert mixes_experts({"text_config": {"num_experts": 8}})
    assert not mixes_experts({"num_experts": None})
