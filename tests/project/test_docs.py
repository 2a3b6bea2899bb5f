"""docs/: it builds without a warning, each page says what the code has, the notebook and the script run."""

from __future__ import annotations

import re
from pathlib import Path

import keys
import nbformat
import pytest
from nbclient import NotebookClient
from support.basics import run_python

import rlfocal
from rlfocal.pool import load_pool

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "docs" / "own_logits.ipynb"


def test_the_tables_of_keys_are_those_of_the_models() -> None:
    """docs/tables/keys.md"""
    text = keys.TABLES.read_text("utf-8")
    assert keys.with_tables(text) == text, "`python tests/keys.py` renews them"


def test_every_key_says_what_it_is() -> None:
    for model in keys.MODELS:
        for name, field in model.model_fields.items():
            assert field.description, f"{model.__name__}.{name}"


def test_the_file_on_the_page_of_pools_is_one(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(keys.example_file(keys.PAGE.read_text("utf-8")))
    pool = load_pool(str(file))
    assert [one.name for one in pool.benchmarks] == ["lab-gpqa", "mmlu@chat", "my-exam", "my-sums"]
    assert pool.models[0].hf_repo == str(tmp_path / "weights" / "my-llama")


@pytest.mark.slow
def test_the_reference_documents_every_export(tmp_path: Path) -> None:
    run_python("-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path, cwd=ROOT)
    page = (tmp_path / "reference" / "index.html").read_text("utf-8")
    headings = set(re.findall(r'<h2 id="[\w.]*?(\w+)"', page))
    assert headings >= set(rlfocal.__all__)
    assert "Raises InputError" in page


@pytest.mark.slow
def test_the_notebook_goes_from_logits_to_the_report(tmp_path: Path) -> None:
    """docs/own_logits.ipynb runs from its first cell to its last, in an empty folder."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    printed = "".join(str(cell.get("outputs")) for cell in notebook.cells)
    assert "rl_focal_sequential" in printed
    assert "focal_diversity" in printed
    assert "right with probability" in printed
    assert (tmp_path / "own-logits" / "report.html").stat().st_size > 10_000
    saved = nbformat.read(NOTEBOOK, as_version=4)
    assert not any(cell.get("outputs") for cell in saved.cells), "save the notebook without its outputs"


def test_names_show_before_anything_is_loaded() -> None:
    program = (
        "import sys, rlfocal\n"
        "heavy = {'duckdb', 'torch', 'numpy', 'pyarrow', 'warehouse'} & set(sys.modules)\n"
        "print(sorted(heavy), set(rlfocal.__all__) <= set(dir(rlfocal)))"
    )
    assert run_python("-c", program) == "[] True\n"


@pytest.mark.slow
def test_the_documented_script_runs(tmp_path: Path) -> None:
    _, script = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs" / "python.md").read_text("utf-8"), re.DOTALL
    )
    (tmp_path / "script.py").write_text(script)
    printed = run_python("script.py", cwd=tmp_path)
    assert (tmp_path / "report.html").is_file()
    assert "rl_focal_sequential: 0." in printed
    assert "focal_diversity" in printed
