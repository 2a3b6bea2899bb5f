"""What a person at a terminal sees: completion and help."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from rlfocal.cli import main
from warehouse import open_warehouse

Complete = Callable[..., list[str]]


@pytest.fixture
def complete(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Complete:
    """What bash would offer for the last of the words."""

    def offered(*words: str, cwd: Path) -> list[str]:
        shell = {"_RLFOCAL_COMPLETE": "complete_bash", "COMP_CWORD": str(len(words) - 1)}
        for name, value in (shell | {"COMP_WORDS": " ".join(words)}).items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("RLFOCAL_WAREHOUSE", raising=False)
        monkeypatch.chdir(cwd)
        monkeypatch.setattr(sys, "argv", ["rlfocal"])
        with pytest.raises(SystemExit) as stop:
            main()
        told = capsys.readouterr()
        assert (stop.value.code, told.err) == (0, "")
        return told.out.split()

    return offered


def files(folder: Path) -> list[Path]:
    """All but those that SQLite keeps beside a catalogue that is read."""
    return sorted(path for path in folder.rglob("*") if not path.name.startswith("catalog.sqlite-"))


@pytest.fixture(scope="module")
def here(empty_warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a warehouse in its usual place and a pool of its own."""
    folder = tmp_path_factory.mktemp("here")
    shutil.copytree(empty_warehouse, folder / ".rlfocal" / "warehouse")
    rows: dict[str, list[object]] = {
        "benchmark": ["toys", "tools"],
        "task": ["t", "t"],
        "model": ["ada", "bert"],
    }
    rows |= {"extraction_id": ["1", "2"], "n_docs": [0, 0]}
    with open_warehouse(folder / ".rlfocal" / "warehouse") as opened, opened.transaction("fill"):
        opened.append("extractions", pa.table(rows))
    (folder / "pools").mkdir()
    (folder / "pools" / "mine.yaml").write_text(
        "name: mine\nbenchmarks: [lab-mmlu, lab-musr]\n"
        "models: [{model: emil, hf_repo: a/b, params_b: 1}, {model: emma, hf_repo: a/c, params_b: 1}]\n"
    )
    return folder


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["extract", "--pool", "mi"], ["mine"]),
        (["add-model", "s"], ["small"]),
        (["regenerate", "--pool", "mine", "--models", "em"], ["emil", "emma"]),
        (["regenerate", "--pool", "mine", "--models", "emil,em"], ["emil,emma"]),
        (["plan", "--pool", "mine", "--benchmarks", "lab-mu"], ["lab-musr"]),
        (["train", "--benchmark", "to"], ["tools", "toys"]),
        (["evaluate", "-b", "toys", "--models", "a"], ["ada"]),
        (["remove-model", "mine", "em"], ["emil", "emma"]),
        (["datasets", "mirror", "x", "--benchmarks", "gsm"], ["gsm8k", "gsm8k@chat"]),
        (["extract", "--pool", "nowhere", "--models", "em"], []),
        (["train", "--warehouse", "nowhere", "--benchmark", "to"], []),
        (["train", "--warehouse", "pools", "--benchmark", "to"], []),
    ],
    ids=" ".join,
)
def test_names_are_completed(here: Path, complete: Complete, words: list[str], offered: list[str]) -> None:
    before = files(here)
    assert complete("rlfocal", *words, cwd=here) == offered
    assert files(here) == before


def test_a_broken_catalogue_completes_nothing(complete: Complete, tmp_path: Path) -> None:
    (tmp_path / ".rlfocal" / "warehouse").mkdir(parents=True)
    (tmp_path / ".rlfocal" / "warehouse" / "catalog.sqlite").write_bytes(b"no database" * 100)
    assert complete("rlfocal", "train", "--benchmark", "t", cwd=tmp_path) == []
    (tmp_path / "pools").mkdir()
    (tmp_path / "pools" / "bad.yaml").write_text("{")
    assert complete("rlfocal", "plan", "--pool", "bad", "--models", "e", cwd=tmp_path) == []
