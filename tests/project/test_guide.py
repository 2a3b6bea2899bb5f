"""The SQL guide: every example prints what it says, and nothing of the warehouse is left out."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from guide import COLUMNS, GUIDE, Example, columns, examples, prepare, printed, with_tables

from rlfocal.data.dataset import load_dataset
from rlfocal.evaluation import evaluate
from rlfocal.methods import make_method, methods_for
from rlfocal.methods.registry import with_references
from warehouse import Warehouse, open_warehouse

EXAMPLES = examples(GUIDE.read_text("utf-8"))
README = Path(__file__).resolve().parents[2] / "README.md"
ROW = re.compile(r"^\| `(\w+)(?:\((.*)\))?` \| (.+) \|$", re.MULTILINE)


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
        evaluate(opened, "lab-mmlu", methods=[name for name in names if not make_method(name).seeded])
    return path


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=[re.sub(r"\W+", "-", e.title) for e in EXAMPLES])
def test_each_example_prints_the_guides_output(example: Example, folder: Path) -> None:
    assert printed(example, folder) == example.output, "`python tests/guide.py` renews the guide"


def test_the_readmes_query_has_the_guides_answer() -> None:
    [shown] = [e for e in examples(README.read_text("utf-8")) if "rlfocal sql" in e.code and e.output]
    [same] = [e for e in EXAMPLES if e.code == shown.code.replace(".venv/bin/", "")]
    assert shown.output == same.output


def test_there_are_twenty_questions() -> None:
    asked = [e.title for e in EXAMPLES if e.language == "sql"]
    assert [int(title.split(".")[0]) for title in asked] == list(range(1, 21))
    assert all(e.output for e in EXAMPLES)


def test_its_tables_are_what_is_documented(warehouse: Warehouse) -> None:
    text = GUIDE.read_text("utf-8")
    assert (with_tables(text), columns()) == (text, COLUMNS.read_text("utf-8")), (
        "`python tests/guide.py tables` renews them"
    )


def test_the_tables_list_every_table_view_and_macro(warehouse: Warehouse) -> None:
    listed = {name: parameters for name, parameters, _ in ROW.findall(GUIDE.read_text("utf-8"))}
    macros = dict(
        warehouse.rows(
            "SELECT function_name, array_to_string(parameters, ', ') FROM duckdb_functions() "
            "WHERE database_name = 'warehouse' AND NOT internal"
        )
    )
    tables = warehouse.rows(
        "SELECT table_name FROM duckdb_tables() WHERE database_name = 'warehouse' "
        "UNION ALL SELECT view_name FROM duckdb_views() WHERE database_name = 'warehouse' AND NOT internal"
    )
    assert listed == {**dict.fromkeys((name for (name,) in tables), ""), **macros}
