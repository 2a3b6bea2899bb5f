"""From a pool of variants of a trained model to a report, with a kill on the way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from support.killing import KEYS, kill_tree, tables
from support.mirror import write_mmlu
from support.real_weights import save_variants

from warehouse import open_warehouse
from warehouse.locations import locate

SUBJECTS = ("astronomy", "virology")
DOCUMENTS = 10


def write_pool(folder: Path, models: dict[str, Path]) -> Path:
    path = folder / "pool.yaml"
    entries = [
        {
            "model": name,
            "hf_repo": str(place),
            "params_b": 0.135,
            "price": 1,
            "engine_args": {"hf": {"shard": 2}},
        }
        for name, place in models.items()
    ]
    asked = {"extends": "mmlu", "name": "mmlu@0-shot", "num_fewshot": 0}
    asked["tasks"] = {subject: f"mmlu_{subject}" for subject in SUBJECTS}
    path.write_text(yaml.safe_dump({"name": "variants", "benchmarks": [asked], "models": entries}))
    return path


def start(home: Path, *words: str) -> subprocess.Popen[str]:
    clean = {name: value for name, value in os.environ.items() if name != "PREFECT_API_URL"}
    return subprocess.Popen(
        [sys.executable, "-c", "from rlfocal.cli import main; main()", *words],
        cwd=home,
        env=clean | {"PREFECT_HOME": str(home / "prefect")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_variants_are_killed_resumed_and_reported(smollm: Path, shared: Path, tmp_path: Path) -> None:
    models = {"whole": smollm} | save_variants(smollm, tmp_path)
    mirror = tmp_path / "mirror"
    write_mmlu(mirror, shared / "data" / "questions", SUBJECTS)
    words = [
        "--pool",
        str(write_pool(tmp_path, models)),
        "--limit",
        str(DOCUMENTS),
        "--datasets",
        str(mirror),
    ]
    killed, undisturbed = tmp_path / "killed", tmp_path / "undisturbed"

    extraction = start(tmp_path, "extract", *words, "-w", str(killed), "--jobs", "1")
    end = time.monotonic() + 600
    while not list(locate(killed).shards.glob("*/*.arrow")):
        assert extraction.poll() is None, extraction.communicate()
        assert time.monotonic() < end
        time.sleep(0.05)
    kill_tree(extraction)

    regeneration = start(tmp_path, "regenerate", *words, "-w", str(killed), "--seeds", "1", "--json")
    said, error = regeneration.communicate(timeout=1200)
    assert regeneration.returncode == 0, error
    told = json.loads(said)
    assert told["extracted"] + told["present"] == len(models) * len(SUBJECTS)

    whole = start(tmp_path, "extract", *words, "-w", str(undisturbed), "--jobs", "1")
    assert whole.wait(1200) == 0
    expected = tables(undisturbed)
    for name, found in tables(killed).items():
        assert found == expected[name], KEYS[name]
    with open_warehouse(killed, read_only=True) as opened:
        scored = dict(
            opened.rows(
                "SELECT model, avg(ln(prob)) FROM choice_probs JOIN docs USING (benchmark, task, doc_id) "
                "WHERE choice = label GROUP BY model"
            )
        )
        assert len(set(scored.values())) == len(models)  # each variant believes something else
        assert opened.rows("SELECT count(*) FROM evaluations WHERE study IS NULL")[0][0] > 0
    report = Path(told["report"]).read_text()
    assert all(name in report for name in models)
