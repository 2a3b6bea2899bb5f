"""Commands import only what they use."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.cli import DOCS, SCORES, write
from support.rows import put_choices

from rlfocal.base.names import RL_FOCAL
from rlfocal.evaluation import evaluate, train
from rlfocal.exchange.imports.predictions import import_predictions
from rlfocal.methods import make_method
from rlfocal.report import write_report
from warehouse import Warehouse, open_warehouse
from warehouse.errors import ReadOnlyError

SLOW_TO_IMPORT = (
    "torch",
    "sklearn",
    "altair",
    "vl_convert",
    "transformers",
    "prefect.flows",
    "prefect.server",
)


@pytest.mark.slow
def test_commands_with_nothing_to_do_import_nothing_slow(tmp_path: Path) -> None:
    place, page = tmp_path / "warehouse", tmp_path / "report.html"
    docs, scores = write(tmp_path / "docs.parquet", DOCS), write(tmp_path / "scores.parquet", SCORES)
    with open_warehouse(place) as warehouse:
        import_predictions(warehouse, docs, scores)
        evaluate(warehouse, "toy", seeds=1)
        train(warehouse, "toy", seeds=1)
        write_report(warehouse, page)
        before = warehouse.snapshot()
    written = page.stat().st_mtime_ns
    for command in (
        ["evaluate", "-b", "toy", "--seeds", "1"],
        ["train", "-b", "toy", "--seeds", "1"],
        ["report", "-o", str(page)],
        *([] if _has_gpu() else [["doctor"]]),
    ):
        loaded = _modules_after([*command, "--warehouse", str(place)], tmp_path)
        assert not loaded & set(SLOW_TO_IMPORT), command
    assert page.stat().st_mtime_ns == written
    with open_warehouse(place, read_only=True) as warehouse:
        assert warehouse.snapshot() == before


def test_help_imports_no_library_of_ours(tmp_path: Path) -> None:
    loaded = _modules_after(["--help"], tmp_path)
    assert not loaded & {*SLOW_TO_IMPORT, "numpy", "duckdb", "pyarrow", "pydantic", "ruamel.yaml", "prefect"}


def test_a_recipe_needs_no_torch(tmp_path: Path) -> None:
    code = (
        "import sys; from rlfocal.methods import make_method\n"
        "for method in sys.argv[1:]: print(make_method(method).recipe(100))\n"
        "print({'torch', 'sklearn', 'transformers'} & set(sys.modules))"
    )
    recipes = [make_method(method).recipe(100) for method in RL_FOCAL]
    assert _python(code, tmp_path, *RL_FOCAL).splitlines() == [*recipes, "set()"]


def test_a_warehouse_open_read_only_is_refused_before_anything_is_fitted(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_choices(warehouse, {"m": [True] * 4})
    monkeypatch.setattr("rlfocal.evaluation.candidates.fit_groups", lambda *_: pytest.fail("fitted"))
    with (
        open_warehouse(warehouse.location, read_only=True) as opened,
        pytest.raises(ReadOnlyError, match="open read-only"),
    ):
        evaluate(opened, "b", methods=["plurality"])


def _modules_after(command: list[str], folder: Path) -> set[str]:
    """What a command has imported at its end."""
    code = (
        "import sys; sys.argv = ['rlfocal', *sys.argv[1:]]\n"
        "from rlfocal.cli import main\n"
        "try: main()\n"
        "except SystemExit as stop: assert not stop.code, stop.code\n"
        "print('\\n' + '\\n'.join(sys.modules))"
    )
    return set(_python(code, folder, *command).splitlines())


def _python(code: str, folder: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()
