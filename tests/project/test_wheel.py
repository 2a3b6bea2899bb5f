"""The wheel, in an empty directory: the main job and its parts run without the checkout."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SMALL = "--pool lab --models lab-llama-small,lab-gemma-small --benchmarks lab-mmlu --limit 20"
COMMANDS = f"""
plan {SMALL}
regenerate {SMALL} --seeds 1
regenerate {SMALL} --seeds 1
train -b lab-mmlu --method rl_focal_sequential --seeds 1
evaluate -b lab-mmlu --methods knn,stacking,rl_focal --budgets 1,2 --seeds 1
report --force
doctor
export exported
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory in which all commands run, one after the other."""
    return tmp_path_factory.mktemp("elsewhere")


def run(command: str, wheel: dict[str, str], folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", "from rlfocal.cli import main; main()", *shlex.split(command)],
        env=wheel, cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.slow
def test_every_command_runs_from_the_wheel_in_an_empty_directory(wheel: dict[str, str], folder: Path) -> None:
    where = "import rlfocal, warehouse, flows; print(rlfocal.__file__, warehouse.__file__, flows.__file__)"
    found = subprocess.run(
        [sys.executable, "-c", where], env=wheel, cwd=folder, capture_output=True, text=True, check=True
    )
    assert str(ROOT) not in found.stdout
    printed = [run(command, wheel, folder) for command in COMMANDS.strip().splitlines()]
    assert "rl_focal_sequential" in printed[1]
    assert "nothing was extracted" in printed[2]
    assert (folder / ".rlfocal" / "report.html").stat().st_size > 10_000
    rows = run("sql --format json 'SELECT count(*) AS n FROM extractions'", wheel, folder)
    assert json.loads(rows) == [{"n": 12}]
