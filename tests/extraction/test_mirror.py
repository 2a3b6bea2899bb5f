"""A mirror of data sets: made once, of one revision, from a folder or the hub."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from support.fake_hub import fake_hub
from support.mirror import gpqa_rows, some, write_gpqa, write_musr

from rlfocal.base.errors import InputError
from rlfocal.extraction.mirror import mirror_datasets, write_config
from rlfocal.extraction.tasks import load_tasks
from rlfocal.pool import load_benchmarks


@pytest.fixture
def small(tmp_path: Path) -> Path:
    folder = tmp_path / "small"
    write_musr(folder)
    write_gpqa(folder, gpqa_rows(4))
    return folder


def test_a_mirror_is_made_once_and_goes_on_where_it_stopped(small: Path, tmp_path: Path) -> None:
    benchmarks = [some("musr"), some("gpqa"), load_benchmarks()["gpqa"].model_copy(update={"name": "gpqa@x"})]
    told: list[float] = []
    made = mirror_datasets(tmp_path / "copy", benchmarks[:2], small, lambda _, share: told.append(share))
    assert [(c.repo, c.config, c.rows) for c in made] == [
        ("TAUR-Lab/MuSR", "default", 756),
        ("Idavidrein/gpqa", "gpqa_main", 4),
    ]
    assert told == [0.5, 1.0]
    assert load_tasks(benchmarks, datasets=tmp_path / "copy") == load_tasks(benchmarks, datasets=small)
    again = mirror_datasets(tmp_path / "copy", benchmarks, small)
    assert [c.rows for c in again] == [None, None]
    (tmp_path / "copy/Idavidrein/gpqa/README.md").unlink()  # as if stopped before it was listed
    resumed = mirror_datasets(tmp_path / "copy", benchmarks, small)
    assert [c.rows for c in resumed] == [None, 4]


def test_a_mirror_never_mixes_revisions(small: Path, tmp_path: Path) -> None:
    mirror_datasets(tmp_path / "copy", [some("gpqa")], small)
    write_config(small, "Idavidrein/gpqa", "gpqa_main", {"train": pa.table({"Question": ["?"]})}, "newer")
    with pytest.raises(InputError, match="'newer'"):
        mirror_datasets(tmp_path / "copy", [some("gpqa")], small)
    with pytest.raises(InputError, match="'cais/mmlu'"):
        mirror_datasets(tmp_path / "copy", [some("mmlu", "virology")], small)


FROM_HUB = """
from rlfocal.extraction.tasks import load_each
from rlfocal.pool import load_benchmarks
known = load_benchmarks()
edited = known["gpqa"].model_copy(update={"dataset_revision": "0" * 40})
for benchmark, tasks in load_each([known["gpqa"], edited, known["musr"], known["mmlu"]]):
    print(repr(tasks) if isinstance(tasks, Exception) else tasks[0].digest)
"""
MIRROR = "from rlfocal.cli import main; main()"


@pytest.mark.slow
def test_the_hub_serves_the_pinned_revision_and_its_refusals_are_plain(small: Path, tmp_path: Path) -> None:
    gpqa = some("gpqa")
    assert gpqa.dataset_revision is not None
    with fake_hub(small, gpqa.dataset_revision, gated="TAUR-Lab/MuSR") as address:
        token = "hf_" + "planted" * 5
        caches = {"HF_HOME": str(tmp_path / "home"), "HF_ENDPOINT": address, "HF_TOKEN": token}
        copy = ("datasets", "mirror", str(tmp_path / "m"), "--benchmarks", "gpqa")
        ran, copied = (
            subprocess.run(
                [sys.executable, "-c", *words],
                env=os.environ | caches,
                capture_output=True,
                text=True,
                check=True,
            )
            for words in ((FROM_HUB,), (MIRROR, *copy))
        )
    loaded, edited, gated, missing = ran.stdout.splitlines()
    [local] = load_tasks([gpqa], datasets=small)
    assert loaded == local.digest
    assert "has no revision '0000" in edited
    assert "is gated: accept its terms" in gated
    assert "is not on the hub" in missing
    assert f"4 rows, revision {gpqa.dataset_revision}" in copied.stdout
    [mirrored] = load_tasks([gpqa], datasets=tmp_path / "m")
    assert (mirrored.documents, mirrored.digest) == (local.documents, local.digest)
    for said in (ran.stdout, ran.stderr, copied.stdout, copied.stderr):
        assert token not in said
