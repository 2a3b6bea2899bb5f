"""The SQL guide: every example prints what it says, and nothing of the warehouse is left out."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from guide import COLUMNS, GUIDE, PAGES, Example, columns, examples, prepare, printed, queries

from rlfocal.data.loading import load_dataset
from rlfocal.evaluation import evaluate
from rlfocal.exchange.sql import run_sql
from rlfocal.methods import entry_of, make_method, methods_for
from rlfocal.methods.registry import with_references
from warehouse import Warehouse, open_warehouse

EXAMPLES = [e for e in examples(GUIDE.read_text("utf-8")) if e.output is not None]
QUERIES = [e for e in EXAMPLES if e.language != "bash"]
"""Its commands are run by tests/project/test_commands.py, as every page's."""
README = Path(__file__).resolve().parents[2] / "README.md"


@pytest.fixture(scope="module")
def folder(lab_warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as `make demo` leaves it, without what is trained."""
    path = tmp_path_factory.mktemp("guide")
    shutil.copytree(lab_warehouse, path / ".rlfocal" / "warehouse")
    prepare(path)
    with open_warehouse(path / ".rlfocal" / "warehouse") as opened:
        # What newer runs replace, and runs of another pool, must not come into an answer.
        reprice = "UPDATE models SET price = price {} 2"
        with opened.transaction("dearer"):
            opened.connection.execute(reprice.format("*"))
        evaluate(opened, "lab-mmlu", methods=["best_single", "plurality"])
        with opened.transaction("as before"):
            opened.connection.execute(reprice.format("/"))
        evaluate(opened, "lab-mmlu", methods=["plurality"], models=["lab-llama", "lab-phi"])
        names = with_references(methods_for(12), load_dataset(opened, "lab-mmlu"))
        ours = [name for name in names if not entry_of(name).package and not make_method(name).seeded]
        evaluate(opened, "lab-mmlu", methods=ours)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("example", QUERIES, ids=[re.sub(r"\W+", "-", e.title) for e in QUERIES])
def test_each_example_prints_the_guides_output(example: Example, folder: Path) -> None:
    assert printed(example, folder) == example.output, "`python tests/guide.py` renews the guide"


@pytest.mark.slow
def test_every_query_of_the_pages_runs(folder: Path) -> None:
    location = folder / ".rlfocal" / "warehouse"
    with open_warehouse(location, read_only=True) as warehouse:
        [*_, (number, time), _] = warehouse.rows(
            "SELECT snapshot_id, snapshot_time FROM warehouse.snapshots() ORDER BY ALL"
        )
    # What they speak of, as it is called here.
    here = {
        "'mmlu'": "'lab-mmlu'",
        "snapshot := 40": f"snapshot := {number}",
        "VERSION => 40": f"VERSION => {number}",
        "2026-11-20 12:00": f"{time:%Y-%m-%d %H:%M:%S.%f%z}",
    }
    for query in (query for page in PAGES for query in queries(page.read_text("utf-8"))):
        for there, name in here.items():
            query = query.replace(there, name)
        assert run_sql(location, query.strip().rstrip(";"), "csv"), query


def test_the_readmes_query_has_the_guides_answer() -> None:
    [shown] = [e for e in examples(README.read_text("utf-8")) if "rlfocal sql" in e.code and e.output]
    [same] = [e for e in EXAMPLES if e.code == shown.code.replace(".venv/bin/", "")]
    assert shown.output == same.output


def test_its_tables_are_what_is_documented(warehouse: Warehouse) -> None:
    assert columns() == COLUMNS.read_text("utf-8"), "`python tests/guide.py tables` renews them"
