"""`import lm-eval` of leaderboards: every form of a data set, torn files, and the hub's refusals."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from support.hub_server import fake_hub
from support.lm_eval_files import DATE, Row, choice_row

from rlfocal.base.errors import InputError
from rlfocal.exchange.imports.lm_eval import import_lm_eval
from warehouse import Warehouse

NAVIGATE = "leaderboard_bbh_navigate"


def leaderboard_rows(n: int = 5) -> list[Row]:
    """As the leaderboard has them: targets are texts, only acc_norm, no filter."""
    rows = [
        choice_row(i, choices=["Yes", "No"], logprobs=[-1.0, -float(i)], target="No", acc_norm=0.0)
        for i in range(n)
    ]
    for row in rows:
        del row["filter"]
    return rows


def test_leaderboard_files(warehouse: Warehouse, tmp_path: Path) -> None:
    """One data set in each of its forms is one import."""
    rows = leaderboard_rows()
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    folder = tmp_path / "org__m-details" / "org__m"
    folder.mkdir(parents=True)
    for suffix, content in (("jsonl", lines), ("json", lines), ("json", json.dumps(rows, indent=1))):
        path = folder / f"samples_{NAVIGATE}_{DATE}.{suffix}"
        path.write_text(content)
        report = import_lm_eval(warehouse, [folder.parent])
        assert (report.models, report.benchmarks, report.n_docs) == (("org/m",), ("bbh",), 5)
        assert report.n_written == (suffix == "jsonl")
        path.unlink()
    table = pa.Table.from_pylist(rows)
    for name in (f"{NAVIGATE}/2024_06_16", f"{NAVIGATE}/latest", "leaderboard_bbh/latest"):
        place = tmp_path / "parquet" / f"org__m__{name}"
        place.mkdir(parents=True)
        pyarrow.parquet.write_table(table, place / "0000.parquet")
    report = import_lm_eval(warehouse, [tmp_path / "parquet"])
    assert (report.n_written, report.n_unchanged, report.n_docs) == (0, 1, 5)
    assert [left.split(" (")[1] for left in report.left] == [
        f"an earlier run of {NAVIGATE} by org/m)",
        "a group; its tasks have their own files)",
    ]
    assert warehouse.rows("SELECT task, label, choices, n FROM docs JOIN accuracy USING (task) LIMIT 1") == [
        ("navigate", 1, ["Yes", "No"], 5)
    ]
    assert warehouse.rows("SELECT accuracy FROM accuracy") == [(1 / 5,)]


def test_torn_leaderboard_files(warehouse: Warehouse, tmp_path: Path) -> None:
    path = tmp_path / f"org__m__{NAVIGATE}.parquet"
    pyarrow.parquet.write_table(pa.Table.from_pylist(leaderboard_rows()), path)
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], b""):
        path.write_bytes(content)
        with pytest.raises(InputError, match=f"{path}.*is not a readable Parquet"):
            import_lm_eval(warehouse, [path])
    pyarrow.parquet.write_table(pa.table({"colour": ["red"]}), path)
    with pytest.raises(InputError, match=f"{path}.*row 1: not a sample of lm-eval"):
        import_lm_eval(warehouse, [path])
    path = tmp_path / f"samples_{NAVIGATE}_{DATE}.json"
    path.write_text(json.dumps(leaderboard_rows())[:-5])
    with pytest.raises(InputError, match=f"{path}: not valid JSON"):
        import_lm_eval(warehouse, [path], model="m")
    assert warehouse.rows("FROM docs") == []


@pytest.mark.slow
def test_leaderboard_of_the_hub(tmp_path: Path) -> None:
    folder = tmp_path / "hub" / "open-llm-leaderboard" / "org__m-details" / "org__m"
    folder.mkdir(parents=True)
    lines = "".join(json.dumps(row) + "\n" for row in leaderboard_rows())
    (folder / f"samples_{NAVIGATE}_{DATE}.jsonl").write_text(lines)
    (folder / f"results_{DATE}.json").write_text(json.dumps({"results": {}, "model_name": "org/m"}))
    (tmp_path / "hub" / "open-llm-leaderboard" / "org__gated-details").mkdir()

    def bring(source: str, address: str, **more: str) -> subprocess.CompletedProcess[str]:
        environment = {"HF_HOME": str(tmp_path / "home"), "HF_ENDPOINT": address, **more}
        command = "from rlfocal.cli import main; main()"
        arguments = ["import", "lm-eval", source, "--warehouse", str(tmp_path / "w")]
        return subprocess.run(
            [sys.executable, "-c", command, *arguments],
            env=os.environ | environment,
            capture_output=True,
            text=True,
            check=False,
        )

    gated = "open-llm-leaderboard/org__gated-details"
    with fake_hub(tmp_path / "hub", "1" * 40, gated=gated) as address:
        assert "(bbh): 1 partition written" in bring("org/m", address).stdout
        again = bring("open-llm-leaderboard/org__m-details", address)
        assert "nothing new, nothing written" in again.stdout
        refused = {name: bring(f"org/{name}", address) for name in ("gated", "absent")}
    offline = bring("org/other", address, HF_HUB_OFFLINE="1")
    assert (again.returncode, offline.returncode) == (0, 2)
    assert all(ran.returncode == 2 for ran in refused.values())
    assert "accept its terms" in " ".join(refused["gated"].stderr.split())
    assert "no data set open-llm-leaderboard/org__absent-details" in " ".join(
        refused["absent"].stderr.split()
    )
    assert "the hub cannot be asked" in " ".join(offline.stderr.split())
