"""What goes wrong outside of rlfocal is named with its place, and with what to do."""

from __future__ import annotations

import errno
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from safetensors import safe_open
from support.rows import choice_rows, docs, extraction
from support.tiny_models import save_model

from flows import PREFECT_SETTINGS, quieten
from rlfocal.base.errors import InputError, RunError, describe_error, explain_failure
from rlfocal.exchange import sql
from rlfocal.extraction.engines import hf
from rlfocal.extraction.engines.tokenizers import load_tokenizer
from rlfocal.extraction.recording import count_ties
from rlfocal.pool.specs import ModelSpec
from warehouse import Warehouse, open_warehouse
from warehouse.limits import writing_to


def spec(path: Path) -> ModelSpec:
    return ModelSpec(model="m", hf_repo=str(path), params_b=1e-4)


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EROFS, "Read-only file system"),
        PermissionError(errno.EACCES, "Permission denied"),
        duckdb.IOException("attempt to write a readonly database"),
    ],
)
def test_a_read_only_warehouse(tmp_path: Path, error: Exception) -> None:
    with pytest.raises(InputError, match="make it writable"), writing_to(tmp_path):
        raise error


POOL = """\
name: mine
models: [{model: m, hf_repo: org/m, params_b: 1}, {model: n, hf_repo: org/n, params_b: 1}]
benchmarks: [{name: b, kind: choices, tasks: {t: x}}]
"""
COMMANDS = """
import sys
from typer.testing import CliRunner
from rlfocal.cli.app import app
for command in ("sql", "SELECT n FROM accuracy"), ("remove-model", "pool.yaml", "n"), ("doctor", "--repair"):
    result = CliRunner().invoke(app, [*command, "-w", "w"])
    print(result.exit_code, result.output, result.exception)
"""


def test_a_warehouse_on_a_read_only_disk_is_read_and_left_alone(tmp_path: Path) -> None:
    """Its pool's file, too, and the doctor's only advice is to make it writable."""
    with open_warehouse(tmp_path / "w") as warehouse:
        warehouse.put_partition(docs(2), choice_rows([[-1.0, -2.0, -3.0]] * 2, "n"), extraction("n", "f", 2))
    (tmp_path / "pool.yaml").write_text(POOL)
    for path in (tmp_path / "w", *(tmp_path / "w").rglob("*")):
        path.chmod(path.stat().st_mode & ~0o222)
    as_others = ["setpriv", "--bounding-set=-dac_override"] if os.geteuid() == 0 else []  # root may write
    if as_others and not shutil.which("setpriv"):
        pytest.skip("needs setpriv to run as root")
    command = [*as_others, sys.executable, "-c", COMMANDS]
    run = subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True, check=True)
    read, removed, mended = re.split(r"^(?=[01] )", run.stdout, flags=re.MULTILINE)[1:]
    assert read.split() == ["0", "n", "-", "2", "None"]
    assert (tmp_path / "pool.yaml").read_text() == POOL
    assert all("make it writable" in said for said in (removed, mended))
    assert "→" not in mended.partition("✗")[2]


def test_a_broken_tokenizer_is_named(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "m", "llama")
    (folder / "tokenizer.json").write_text('{"version": ')
    with pytest.raises(InputError, match=f"tokenizer of {folder} cannot be read"):
        load_tokenizer(str(folder))


def pickled(weights: Path) -> None:
    weights.unlink()
    with weights.with_name("pytorch_model.bin").open("wb") as file:
        pickle.dump({"weight": print}, file)


def cut_short(weights: Path) -> None:
    weights.write_bytes(weights.read_bytes()[:1000])


def not_fetched(weights: Path) -> None:
    weights.write_text("version https://git-lfs.github.com/spec/v1\n")


def without_a_shard(weights: Path) -> None:
    there = weights.rename(weights.with_name("model-1.safetensors"))
    with safe_open(there, "pt") as file:
        files = {name: f"model-{1 + i % 2}.safetensors" for i, name in enumerate(file.keys())}
    index = {"metadata": {}, "weight_map": files}
    weights.with_name("model.safetensors.index.json").write_text(json.dumps(index))


def of_other_config(**changes: object) -> Callable[[Path], None]:
    def change(weights: Path) -> None:
        config = weights.with_name("config.json")
        config.write_text(json.dumps(json.loads(config.read_text()) | changes))

    return change


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (pickled, r"are pickles.*safetensors"),
        (cut_short, r"model\.safetensors cannot be read.*download it again"),
        (not_fetched, "git lfs pull"),
        (without_a_shard, r"model-2\.safetensors; .*download it again"),
        (of_other_config(num_hidden_layers=3), r"9 of its tensors are missing, such as model\.layers\.2\."),
    ],
)
def test_weights_that_are_not_the_model_s(tmp_path: Path, damage: Callable[[Path], None], words: str) -> None:
    folder = save_model(tmp_path / "m", "llama")
    damage(folder / "model.safetensors")
    with pytest.raises(InputError, match=words):
        hf.load(spec(folder), folder, 1)


def test_an_empty_catalogue_beside_data(fresh: Callable[[Path], Path], tmp_path: Path) -> None:
    place = fresh(tmp_path / "w")
    with open_warehouse(place) as warehouse, warehouse.transaction("models"):
        warehouse.append("models", pa.table({"model": [f"m{i}" for i in range(100)]}))
    (place / "catalog.sqlite").write_bytes(b"")
    for read_only in (True, False):
        with pytest.raises(InputError, match="is empty"):
            open_warehouse(place, read_only=read_only)


def test_a_damaged_parquet_file_leads_to_doctor(tmp_path: Path) -> None:
    with open_warehouse(tmp_path / "w") as warehouse, warehouse.transaction("models"):
        warehouse.append("models", pa.table({"model": [f"m{i}" for i in range(100)]}))
    for file in (tmp_path / "w" / "data").rglob("*.parquet"):
        file.write_bytes(file.read_bytes()[:20])
    with open_warehouse(tmp_path / "w") as warehouse, pytest.raises(duckdb.Error) as error:
        warehouse.rows("SELECT * FROM models")
    assert describe_error(error.value).endswith("`doctor --repair` drops them")
    assert str(explain_failure(error.value)).endswith("`doctor --repair` drops them")
    with pytest.raises(RunError, match=r"\.parquet.*`doctor --repair` drops them"):
        sql.run_sql(tmp_path / "w", "FROM models")


def test_a_result_of_too_many_rows(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql, "MAX_ROWS", 1000)
    location = warehouse.location.name
    with sql.sandbox(location) as select:
        with pytest.raises(InputError, match=r"more than 1,000 rows.*LIMIT"):
            select("FROM range(100000000000000)")
        assert len(select("FROM range(1000)")[1]) == 1000


def test_a_home_that_does_not_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PREFECT_SETTINGS:
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("HOME", str(tmp_path / "nowhere"))
    monkeypatch.setenv("PREFECT_HOME", "~/.prefect")
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    with pytest.raises(InputError, match=r"nowhere/\.prefect, .*PREFECT_HOME"):
        quieten()
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:4200/api")
    quieten()


def test_ties_are_counted() -> None:
    rows = {"doc_id": [0, 0, 0, 1, 1, 2, 2], "choice": [0, 1, 2, 0, 1, 0, 1]}
    logprobs = [-1.0, -2.0, -1.0, -3.0, -2.0, -0.5, -0.5]
    reasons = pa.array([None] * 5 + ["broken: so"] * 2, pa.string())
    assert count_ties(pa.table(rows | {"logprob": logprobs, "unanswered": pa.nulls(7, pa.string())})) == 2
    assert count_ties(pa.table(rows | {"logprob": logprobs, "unanswered": reasons})) == 1
    assert count_ties(pa.table({"doc_id": [0], "pass": [0]})) is None


def test_a_repository_that_leaves_its_place() -> None:
    with pytest.raises(ValueError, match=r"leaves its folder by \.\."):
        ModelSpec(model="m", hf_repo="rlfocal-lab/../../x", params_b=1)
    assert ModelSpec(model="m", hf_repo="../weights", params_b=1).hf_repo == "../weights"
