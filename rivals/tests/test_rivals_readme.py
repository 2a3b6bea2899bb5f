"""Tests of rivals/README.md: its example method runs, and it lists every module and method."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest
from support.rival_data import fitted
from support.rows import put_choices
from support.topics import accuracy, by_topic

from rlfocal.base.names import RIVALS
from rlfocal.data.policy import decide
from rlfocal.methods import entries, registry
from rlfocal.methods.registry import PLUS_TASK
from warehouse import open_warehouse

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "rivals" / "README.md").read_text("utf-8")
METHOD, ROUTER = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_a_method_in_thirty_lines_gets_its_row(tmp_path: Path) -> None:
    written = [
        line for line in METHOD.splitlines() if line.strip() and not line.startswith(("import", "from"))
    ]
    assert len(written) <= 30
    (tmp_path / "mine.py").write_text(METHOD.replace('"lab-mmlu"', '"b"'))
    right = {"k": [True, True, False, True], "m": [True, False, True, True], "n": [False, True, True, False]}
    with open_warehouse(tmp_path / ".rlfocal" / "warehouse") as warehouse:
        put_choices(warehouse, {model: each * 10 for model, each in right.items()})
    done = subprocess.run(
        [sys.executable, "mine.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    # Of every four the second and the last are test; m is best on train, and n is right where k and m differ.
    assert rows == {"tie_break": "1.0 2.5", "best_single": "0.5 1.0"}


def test_a_router_of_scikit_learns_interface_finds_who_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    data, module = by_topic(0), ModuleType("forest")
    monkeypatch.setattr(registry, "_ENTRIES", dict(entries()))
    monkeypatch.setitem(sys.modules, "forest", module)
    exec(ROUTER, module.__dict__)
    policy = fitted("forest", data.train, trees=20)
    assert accuracy(policy, data.test) > 0.95
    assert (decide(policy, data.test).pools.sum(axis=1) == 1).all()


def test_what_rlfocal_calls_rivals_is_what_this_package_registers() -> None:
    """Where rivals are not installed, rlfocal knows their names, to say how to install them."""
    ours = {
        name.removesuffix(PLUS_TASK) for name, one in entries().items() if one.package == "rlfocal-rivals"
    }
    assert ours == set(RIVALS)
    named = set(re.findall(r"`(\w+)(?::\w+)?`", PAGE))
    assert ours - named <= {"discounted_linucb", "discounted_thompson"}
    modules = {path.name for path in (ROOT / "rivals" / "rlfocal_rivals").glob("[a-z]*.py")}
    assert modules - named - set(re.findall(r"`(\w+\.py)`", PAGE)) == {"convert.py"}


@pytest.mark.slow
def test_its_wheel_holds_the_package_alone(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "rivals", tmp_path / "rivals", ignore=shutil.ignore_patterns("__pycache__"))
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "wheel", "--no-deps"]
    subprocess.run([*pip, "--wheel-dir", tmp_path, tmp_path / "rivals"], check=True)
    [wheel] = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {"rlfocal_rivals/convert.py", "rlfocal_rivals/py.typed"} <= set(names)
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"rlfocal_rivals"}


WITHOUT = """
import importlib.metadata as about
found = about.entry_points
about.entry_points = lambda **given: [] if given == {"group": "rlfocal.methods"} else found(**given)
import json, sys
from rlfocal.base.errors import InputError
from rlfocal.methods import entries, entry_of, methods_for
try:
    entry_of("best_plurality:3")
except InputError as error:
    print(json.dumps([str(error), sorted(entries()), methods_for(12), "rlfocal_rivals" in sys.modules]))
"""


def test_without_this_package_its_methods_are_refused_and_the_others_run() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True, cwd=ROOT
    )
    error, names, usual, is_loaded = json.loads(done.stdout)
    assert "best_plurality" in error
    assert "pip install ./rivals" in error
    assert not {name.removesuffix(PLUS_TASK) for name in names} & set(RIVALS)
    assert not is_loaded
    assert {"rl_focal", "best_log_linear", "stacking", "oracle"} <= set(usual) <= set(names)
