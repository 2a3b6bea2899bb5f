"""`make docs`: the pages build without a warning, and the API reference has what is exported."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import rlfocal

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_the_reference_documents_every_export(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    page = (tmp_path / "reference" / "index.html").read_text("utf-8")
    headings = set(re.findall(r'<h2 id="[\w.]*?(\w+)"', page))
    assert headings >= set(rlfocal.__all__)
    assert "Raises InputError" in page
