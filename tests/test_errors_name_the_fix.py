"""What goes wrong outside of rlfocal is named with its place, and with what to do."""

from __future__ import annotations

import errno
import pickle
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from tiny_models import save_model

from rlfocal import sql
from rlfocal.errors import InputError
from rlfocal.extraction.engines import hf
from rlfocal.extraction.engines.tokens import load_tokenizer
from rlfocal.extraction.recording import count_ties
from rlfocal.failures import plain
from rlfocal.pool.hub import local_weights
from rlfocal.pool.specs import ModelSpec
from warehouse import Warehouse, open_warehouse
from warehouse.disk import writing_to


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


def test_a_broken_tokenizer_is_named(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "m", "llama")
    (folder / "tokenizer.json").write_text('{"version": ')
    with pytest.raises(InputError, match=f"tokenizer of {folder} cannot be read"):
        load_tokenizer(str(folder))


def test_pickled_weights_that_run_code(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "m", "llama")
    (folder / "model.safetensors").unlink()
    with (folder / "pytorch_model.bin").open("wb") as file:
        pickle.dump({"weight": print}, file)
    with pytest.raises(InputError, match="safetensors"):
        hf.load(spec(folder), folder, 1)


def test_gguf_files(tmp_path: Path) -> None:
    file = tmp_path / "model.Q4.gguf"
    file.write_bytes(b"GGUF")
    for given in (file, tmp_path):
        with pytest.raises(InputError, match=r"is a GGUF file.*save_pretrained"):
            local_weights(spec(given))


def test_an_empty_catalogue_beside_data(tmp_path: Path) -> None:
    place = tmp_path / "w"
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
    assert plain(error.value).endswith("`doctor --repair` drops them")


def test_a_result_of_too_many_rows(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql, "MOST_ROWS", 1000)
    location = warehouse.location.name
    with sql.sandbox(location) as select:
        with pytest.raises(InputError, match=r"more than 1,000 rows.*LIMIT"):
            select("FROM range(100000000000000)")
        assert len(select("FROM range(1000)")[1]) == 1000


def test_ties_are_counted() -> None:
    rows = {"doc_id": [0, 0, 0, 1, 1, 2, 2], "choice": [0, 1, 2, 0, 1, 0, 1]}
    logprobs = [-1.0, -2.0, -1.0, -3.0, -2.0, -0.5, -0.5]
    assert count_ties(pa.table(rows | {"logprob": logprobs})) == 2
    assert count_ties(pa.table({"doc_id": [0], "pass": [0]})) is None


def test_a_repository_that_leaves_its_place() -> None:
    with pytest.raises(ValueError, match=r"leaves its place by \.\."):
        ModelSpec(model="m", hf_repo="rlfocal-lab/../../x", params_b=1)
    assert ModelSpec(model="m", hf_repo="../weights", params_b=1).hf_repo == "../weights"
