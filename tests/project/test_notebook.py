"""docs/own_logits.ipynb runs from its first cell to its last, in an empty folder."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).resolve().parents[2] / "docs" / "own_logits.ipynb"


@pytest.mark.slow
def test_the_notebook_goes_from_logits_to_the_report(tmp_path: Path) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    printed = "".join(str(cell.get("outputs")) for cell in notebook.cells)
    assert "rl_focal_sequential" in printed
    assert "focal_diversity" in printed
    assert "right with probability" in printed
    assert (tmp_path / "own-logits" / "report.html").stat().st_size > 10_000
    saved = nbformat.read(NOTEBOOK, as_version=4)
    assert not any(cell.get("outputs") for cell in saved.cells), "save the notebook without its outputs"
