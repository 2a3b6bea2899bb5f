"""What is under packaging/: the Kubernetes job, the image and the Slurm script, rendered and run."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from support.night import ROOT

TEMPLATE = ROOT / "packaging" / "kubernetes" / "base-job-template.json"
DOCKERFILE = ROOT / "packaging" / "vllm" / "Dockerfile"
SCRIPT = ROOT / "packaging" / "slurm" / "extract.sbatch"
NEWEST, OLDEST = "1.37", "1.28"
"""Versions of Kubernetes that the job is checked against."""


def prefects_own() -> dict[str, Any]:
    """Prefect's own template for Kubernetes."""
    from prefect.server.api import collections_data

    views = Path(str(collections_data.__path__[0])) / "views" / "aggregate-worker-metadata.json"
    found = json.loads(views.read_text())["prefect-kubernetes"]["kubernetes"]
    return dict(found["default_base_job_configuration"])


def rendered(**given: Any) -> dict[str, Any]:
    """The manifest of one run, as a worker makes it of the template, defaults and job variables."""
    from prefect.utilities.templating import apply_values

    template = json.loads(TEMPLATE.read_text())
    variables = template["variables"]["properties"]
    values = {name: one["default"] for name, one in variables.items() if "default" in one} | given
    jsonschema.validate(values, template["variables"])
    values["env"] = [{"name": name, "value": value} for name, value in values["env"].items()]
    values["command"] = values["command"].split()
    job = apply_values(template["job_configuration"], values, remove_notset=True)
    return dict(job["job_manifest"])


def test_the_job_is_valid_and_takes_the_gpus_of_the_model() -> None:
    import kubernetes_validate

    asked = {
        "image": "registry.example/rlfocal:0.1.0",
        "name": "extract-llama",
        "namespace": "default",
        "command": "prefect flow-run execute",
        "labels": {"app": "rlfocal"},
        "env": {"PREFECT_API_URL": "http://prefect:4200/api"},
        "cpu_request": "6",
        "memory_request": "160Gi",
        "gpus": 4,
    }
    job = rendered(**asked)
    for version in (OLDEST, NEWEST):
        kubernetes_validate.validate(job, version, strict=True)
    pod = job["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 4}
    assert container["resources"]["requests"] == {"cpu": "6", "memory": "160Gi"}
    assert job["spec"]["backoffLimit"] == 0
    assert pod["restartPolicy"] == "Never"
    assert {"name": "shm", "mountPath": "/dev/shm"} in container["volumeMounts"]
    assert {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "16Gi"}} in pod["volumes"]
    assert container["envFrom"] == [{"secretRef": {"name": "rlfocal"}}]
    job["spec"]["backofflimit"] = job["spec"].pop("backoffLimit")
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(job, NEWEST, strict=True)


def test_the_template_keeps_what_prefect_fills_in_and_describes_what_it_adds() -> None:
    ours, theirs = json.loads(TEMPLATE.read_text()), prefects_own()
    assert ours.keys() == theirs.keys()
    assert ours["job_configuration"].keys() == theirs["job_configuration"].keys()
    ours_named, theirs_named = (t["variables"]["properties"] for t in (ours, theirs))
    assert theirs_named.keys() <= ours_named.keys()
    added = ours_named.keys() - theirs_named.keys()
    assert {"gpus", "shared_memory", "secret_name", "data_claim"} <= added
    assert all(len(ours_named[name]["description"]) > 20 for name in added)
    used = set(re.findall(r"\{\{ (\w+) \}\}", json.dumps(ours["job_configuration"])))
    assert used == ours_named.keys(), "each variable has a place, and each place a variable"


def test_the_image_copies_what_is_there_and_holds_no_secret() -> None:
    text = DOCKERFILE.read_text()
    pinned = re.search(r'"vllm==([\d.]+)"', (ROOT / "pyproject.toml").read_text())
    assert pinned is not None
    assert f"FROM vllm/vllm-openai:v{pinned[1]}\n" in text
    copied = {line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().split("\n")}
    for line in re.findall(r"^COPY (.+)$", text, re.MULTILINE):
        for source in line.split()[:-1]:
            assert (ROOT / source).exists()
            assert source in copied
    assert not re.search(r"TOKEN|PASSWORD|SECRET|KEY", text)
    mounted = {
        one["mountPath"]
        for one in rendered(name="x", command="x", labels={})["spec"]["template"]["spec"]["containers"][0][
            "volumeMounts"
        ]
    }
    for kept in ("HF_HOME", "VLLM_CACHE_ROOT"):  # downloaded and compiled once, not by each pod
        folder = re.search(rf"{kept}=(/\w+)/", text)
        assert folder is not None
        assert folder[1] in mounted
    user = re.search(r"^USER (\d+)$", text, re.MULTILINE)
    pod = rendered(name="x", command="x", labels={})["spec"]["template"]["spec"]
    assert user is not None
    assert pod["securityContext"]["runAsUser"] == int(user[1])


def test_the_slurm_script_runs_the_models_that_take_as_many_gpus(tmp_path: Path) -> None:
    subprocess.run(["bash", "-n", SCRIPT], check=True)
    if shutil.which("shellcheck"):
        subprocess.run(["shellcheck", SCRIPT], check=True)
    bin = tmp_path / ".venv" / "bin"
    bin.mkdir(parents=True)
    (bin / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (bin / "rlfocal").write_text('#!/bin/sh\necho "$@"\n')
    for program in bin.iterdir():
        program.chmod(0o755)
    entry = "  - {{model: {0}, hf_repo: org/{0}, params_b: 1, tensor_parallel: {1}}}\n"
    pool = tmp_path / "pool.yaml"
    models = "".join(entry.format(*one) for one in (("a", 1), ("b", 4), ("c", 1)))
    pool.write_text(f"name: p\nbenchmarks: [lab-mmlu]\nmodels:\n{models}")
    environment = dict(os.environ) | {"RLFOCAL_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}

    (bin / "sbatch").write_text('#!/bin/sh\necho "$@"\n')
    (bin / "sbatch").chmod(0o755)
    environment["PATH"] = f"{bin}{os.pathsep}{environment['PATH']}"
    words = ["bash", str(SCRIPT), str(pool), "--limit", "5"]

    def ran(**given: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, env=environment | given, capture_output=True, text=True)

    def task(index: int, gpus: int) -> subprocess.CompletedProcess[str]:
        return ran(SLURM_ARRAY_TASK_ID=str(index), SLURM_GPUS_PER_TASK=str(gpus))

    asked = f"extract --pool {pool} --models {{}} --limit 5\n"
    assert (task(1, 1).stdout, task(0, 4).stdout) == (asked.format("c"), asked.format("b"))
    assert "nothing to do for task 2" in task(2, 1).stdout
    none = task(0, 8)
    assert (none.returncode, none.stderr) == (2, f"no model of pool {pool} takes 8 GPUs\n")
    submitted = ran(RLFOCAL_GPUS_AT_ONCE="4").stdout
    script = f"{tmp_path}/packaging/slurm/extract.sbatch {pool} --limit 5"
    assert submitted.splitlines() == [
        f"--gpus-per-task=4 --cpus-per-task=6 --mem=160G --array=0-0%1 {script}",
        f"--gpus-per-task=1 --cpus-per-task=3 --mem=64G --array=0-1%4 {script}",
    ]
