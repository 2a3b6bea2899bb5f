"""`import rlfocal` as a library: its names show, load late, and do what the documented script says."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import rlfocal

PAGE = Path(__file__).resolve().parents[2] / "docs" / "python.md"


def test_names_show_before_anything_is_loaded() -> None:
    program = (
        "import sys, rlfocal\n"
        "heavy = {'duckdb', 'torch', 'numpy', 'pyarrow', 'warehouse'} & set(sys.modules)\n"
        "print(sorted(heavy), set(rlfocal.__all__) <= set(dir(rlfocal)))"
    )
    printed = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    ).stdout
    assert printed == "[] True\n"


@pytest.mark.parametrize("name", sorted(rlfocal.__all__))
def test_names_have_docstrings_and_types(name: str) -> None:
    found = getattr(rlfocal, name)
    assert found.__doc__
    if inspect.isfunction(found):
        signature = inspect.signature(found)
        assert all(p.annotation is not p.empty for p in signature.parameters.values())
        assert signature.return_annotation is not signature.empty


def test_an_unknown_name_is_none() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'evaluat'"):
        rlfocal.evaluat  # noqa: B018


@pytest.mark.slow
def test_the_documented_script_runs(tmp_path: Path) -> None:
    [script] = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    (tmp_path / "script.py").write_text(script)
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert (tmp_path / "report.html").is_file()
    assert "rl_focal_sequential: 0." in done.stdout
    assert "focal_diversity" in done.stdout
