"""`plan --check` and `prefetch` against a hub on this machine: all faults in one run, and what is loaded."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.hub_server import Hub, serve

from rlfocal.extraction.engine import Document
from rlfocal.extraction.estimate import KNOWN_GPUS
from rlfocal.extraction.plan.checking import check_pool
from rlfocal.extraction.tasks import load_tasks
from rlfocal.lab import weights_dir
from rlfocal.pool import load_pool
from rlfocal.pool.specs import ThinkingSpec

COMMIT = "1" * 40
RLFOCAL = str(Path(sys.executable).with_name("rlfocal"))


def altered(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def copied(folder: Path, name: str) -> Path:
    """A copy of an embedded model under another name."""
    shutil.copytree(weights_dir("lab-llama"), folder / name)
    return folder / name


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    with serve() as running:
        for name in ("good", "gated", "moved", "short", "lossy", "unknown"):
            running.push(f"org/{name}", copied(tmp_path, name), COMMIT)
        running.gated.add("org/gated")
        altered(tmp_path / "lossy" / "tokenizer_config.json", tokenizer_class="TokenizersBackend")
        altered(tmp_path / "lossy" / "tokenizer.json", decoder=None)
        altered(tmp_path / "unknown" / "config.json", architectures=["NoSuchForCausalLM"])
        yield running


@pytest.fixture
def environment(hub: Hub, tmp_path: Path) -> dict[str, str]:
    dropped = {"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_TOKEN", "RLFOCAL_WAREHOUSE"}
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    return kept | {
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(tmp_path / "hf"),
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "OMP_NUM_THREADS": "1",
    }


def pool_of(folder: Path, **models: dict[str, Any]) -> Path:
    entries = [
        {"model": name, "hf_repo": f"org/{name}", "revision": COMMIT, "params_b": 0.001, "tensor_parallel": 1}
        | fields
        for name, fields in models.items()
    ]
    path = folder / "checked.yaml"
    path.write_text(yaml.safe_dump({"name": "checked", "benchmarks": ["lab-gpqa"], "models": entries}))
    return path


def rlfocal(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([RLFOCAL, *words], env=environment, capture_output=True, text=True, check=False)


def test_every_fault_is_named_in_one_run(environment: dict[str, str], tmp_path: Path) -> None:
    pool = pool_of(
        tmp_path,
        good={},
        gated={},
        moved={"revision": "2" * 40},
        short={"context_length": 16},
        lossy={},
        unknown={},
    )
    ran = rlfocal(environment, "plan", "--pool", str(pool), "--check", "--backend", "hf", "--json")
    assert ran.returncode == 1, ran.stderr
    said = json.loads(ran.stdout)
    faults = {entry["model"]: entry["faults"] for entry in said["entries"]}
    expected = {
        "good": [],
        "gated": ["is gated"],
        "moved": ["has no revision"],
        "short": ["do not fit the context of 16 tokens"],
        "lossy": ["when it encodes and decodes"],
        "unknown": ["does not know NoSuchForCausalLM"],
    }
    assert {name: len(found) for name, found in faults.items()} == {n: len(e) for n, e in expected.items()}
    for name, parts in expected.items():
        for part, fault in zip(parts, faults[name], strict=True):
            assert part in fault
    good = said["entries"][0]
    weights = (weights_dir("lab-llama") / "model.safetensors").stat().st_size / 1e9
    assert good["download_gb"] == pytest.approx(weights)
    assert (good["commit"], good["here_gb"]) == (COMMIT, 0)
    assert 16 < good["longest"] <= good["context"]


def test_the_longest_prompts_in_tokens_are_checked_beside_their_traces() -> None:
    """Digits are tokens of their own, so a text of fewer bytes may be too long where longer ones fit."""
    [task] = load_tasks(load_pool("lab").choose(None, ["lab-gpqa"]).benchmarks, 25)
    words = [replace(d, context=" the name" * 40) for d in task.documents]
    digits = replace(words[-1], context="7" * 300)

    def faults(documents: list[Document], **given: Any) -> list[str]:
        model = load_pool("lab").models[4].model_copy(update=given)
        pool = load_pool("lab").model_copy(update={"models": (model,)})
        asked = replace(task, documents=tuple(documents))
        [check], _ = check_pool(pool, [asked], backend="hf", gpu=KNOWN_GPUS["H100"])
        return check.faults

    assert faults(words) == []
    assert "do not fit the context of 256 tokens" in faults([*words[:-1], digits])[0]
    assert "(beside a trace of 200 in 256)" in faults(words, thinking=ThinkingSpec(budget=200))[0]


def test_prefetch_downloads_once_what_engines_read(
    hub: Hub, environment: dict[str, str], tmp_path: Path
) -> None:
    folder = hub.commits["org/good"][COMMIT]
    (folder / "pytorch_model.bin").write_bytes(b"the same weights")
    pool = pool_of(tmp_path, good={}, gated={})
    ran = rlfocal(environment, "prefetch", "--pool", str(pool), "--json")
    assert ran.returncode == 1
    said = json.loads(ran.stdout)
    assert "is gated" in said["failures"]["gated"]
    sent = {name.partition("@")[0].removeprefix("org/good/") for name in hub.files_sent}
    assert {"model.safetensors", "tokenizer.json", "config.json"} <= sent
    assert "pytorch_model.bin" not in sent
    read = sum(f.stat().st_size for f in folder.iterdir() if f.name != "pytorch_model.bin") / 1e9
    assert said["gigabytes"] == {"good": pytest.approx(read)}
    hub.files_sent.clear()
    assert rlfocal(environment, "prefetch", "--pool", str(pool), "--models", "good").returncode == 0
    assert hub.files_sent == []
    offline = environment | {"HF_HUB_OFFLINE": "1"}
    words = ["extract", "--pool", str(pool), "--models", "good", "--backend", "hf", "--limit", "2"]
    extracted = rlfocal(offline, *words, "-w", str(tmp_path / "warehouse"))
    assert extracted.returncode == 0, extracted.stderr


def test_no_gpu_is_leased_before_the_weights_are_here(
    hub: Hub, environment: dict[str, str], tmp_path: Path
) -> None:
    pool = pool_of(tmp_path, good={}, short={})
    script = (
        "from rlfocal.extraction import gpus; from rlfocal.extraction.running import runner; import sys\n"
        "from rlfocal.pool import downloads\n"
        "fetch, take, done = downloads.download, gpus.Offer.take, []\n"
        "def fetched(model, *given): fetch(model); done.append(model.model)\n"
        "def taken(offer, devices): print('leased after', *done, flush=True); return take(offer, devices)\n"
        "downloads.download, gpus.Offer.take = fetched, taken\n"
        "if __name__ == '__main__':\n"
        "    report = runner.extract(sys.argv[1], sys.argv[2], backend='hf', limit=2)\n"
        "    print(len(report.committed), report.missing)\n"
    )
    (tmp_path / "run.py").write_text(script)
    own = environment | {"RLFOCAL_GPUS": "0", "RLFOCAL_LEASES": str(tmp_path / "leases")}
    words = [sys.executable, str(tmp_path / "run.py"), str(pool), str(tmp_path / "warehouse")]
    ran = subprocess.run(words, env=own, capture_output=True, text=True, check=False)
    first, second, last = ran.stdout.splitlines()
    assert first.startswith("leased after good"), ran.stderr
    assert second == "leased after good short"
    assert last == "2 []"
