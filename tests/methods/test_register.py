"""The register of methods: what is derived from it, and methods that other packages add."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.agents_data import skilled
from support.cli import Cli
from support.rows import put, put_choices

from rlfocal.base.errors import InputError, RunError
from rlfocal.base.names import TRAINED_METHODS
from rlfocal.data.dataset import Dataset
from rlfocal.data.loading import load_dataset
from rlfocal.evaluation import evaluate
from rlfocal.evaluation.fitting import fit_groups
from rlfocal.evaluation.planning import group_rows
from rlfocal.methods import (
    Entry,
    check_methods,
    entries,
    every_method,
    make_method,
    methods_for,
    register,
    registry,
)
from rlfocal.methods.learning.agents import METHODS_BY_NAME
from rlfocal.methods.registry import MethodBase, load_trained_methods
from rlfocal.report.tables import markdown_methods
from warehouse import Warehouse, open_warehouse

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = """
from dataclasses import dataclass

import numpy as np

from rlfocal.methods import Answers, Entry, register


@register(Entry("last_model", "the last model", "what it answers"))
@dataclass(frozen=True)
class LastModel:
    seeded = False

    def recipe(self, n_train):
        return "1"

    def fit(self, train, seeds):
        return [self]

    def decide(self, calls):
        last = np.arange(len(calls.models)) == len(calls.models) - 1
        return Answers(calls.call(last).predictions[:, -1])
"""


def test_the_docs_table_is_the_register() -> None:
    page = (ROOT / "docs" / "tables" / "methods.md").read_text("utf-8")
    assert "\n".join(markdown_methods(entries().values())) in page, (
        "put in what `rlfocal methods --markdown` prints"
    )


def test_the_command_line_knows_all_trained_methods() -> None:
    load_trained_methods()
    assert set(METHODS_BY_NAME) == set(TRAINED_METHODS)


def test_a_taken_name_is_refused() -> None:
    with pytest.raises(ValueError, match="'plurality' is registered already"):
        register(Entry("plurality", "all", "twice"))(lambda: make_method("plurality"))


@pytest.mark.parametrize(("was", "now"), [("within", "hold_to_budget"), ("settable", "list_settings")])
def test_a_hook_of_an_earlier_name_is_refused(was: str, now: str) -> None:
    class OutdatedMethod(MethodBase):
        def fit(self, train: Dataset, seeds: Sequence[int]) -> list[Any]:
            return [self]

    setattr(OutdatedMethod, was, lambda self: None)
    with pytest.raises(
        InputError, match=f"OutdatedMethod defines `{was}`, which is called `{now}` now; rename it"
    ):
        register(Entry("outdated", "all", "nothing"))(OutdatedMethod)
    assert "outdated" not in entries()
    data = skilled([0.5, 0.5], n_docs=10)
    with pytest.raises(InputError, match=f"`{now}`"):  # a policy's class is not registered
        fit_groups(OutdatedMethod(), data, group_rows(data, "benchmark"), [0])
    setattr(OutdatedMethod, now, getattr(OutdatedMethod, was))
    assert fit_groups(OutdatedMethod(), data, group_rows(data, "benchmark"), [0])  # it serves both versions


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder that holds another package with one method, as pip would leave it."""
    (tmp_path / "their_methods.py").write_text(PLUGIN)
    about = tmp_path / "theirs-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[rlfocal.methods]\ntheirs = their_methods\n")
    return tmp_path


def called(installed: Path, *commands: list[str]) -> subprocess.CompletedProcess[str]:
    """One process that runs the commands until one fails."""
    code = f"import sys; sys.path.insert(0, {str(installed)!r}); from rlfocal.cli import main\n"
    code += f"for words in {commands!r}:\n    sys.argv[1:] = words\n    try:\n        main()\n"
    code += "    except SystemExit as ended:\n        if ended.code:\n            raise\n"
    words = [sys.executable, "-c", code]
    return subprocess.run(words, capture_output=True, text=True, cwd=ROOT, check=False)


@pytest.mark.slow
def test_another_packages_method_is_evaluated_like_ours(installed: Path) -> None:
    with open_warehouse(installed / "w") as warehouse:
        put_choices(warehouse, {"k": [True] * 4, "m": [False] * 4})
    assert "last_model" not in methods_for(2)
    page, place = installed / "report.html", ["-w", str(installed / "w")]
    named = ["--methods", "last_model,oracle", "--seeds", "1", "--json"]
    done = called(installed, ["evaluate", "-b", "b", *place, *named], ["report", *place, "-o", str(page)])
    assert done.returncode == 0, done.stderr
    found, _ = json.JSONDecoder().raw_decode(done.stdout)
    rows = {row["method"]: row for row in found if row["task"] == "*"}
    assert rows["last_model"]["accuracy"] == 0.0
    assert rows["oracle"]["accuracy"] == 1.0
    assert re.search(r'<th scope="row"[^>]*>(<[^>]*>)*last_model<', page.read_text("utf-8"))


def test_some_methods_are_described_in_full(cli: Cli) -> None:
    shown = cli("methods", "knn", "single:any").out
    assert "knn\n  asks: the model" in shown
    assert "\n  --tune: k\n\nsingle:<model>\n" in shown
    assert "did you mean 'knn'" in cli("methods", "nkn").err


def test_another_packages_method_that_cannot_be_loaded_is_named(installed: Path) -> None:
    (installed / "their_methods.py").write_text("import no_such_module")
    done = called(installed, ["methods"])
    assert done.returncode == 2
    assert "methods of package 'theirs'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture
def theirs(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Enters a method as another package's."""

    def enter(**changed: Any) -> None:
        entry = replace(
            entries()["plurality"], name="theirs", role="rival", package="their-package", **changed
        )
        monkeypatch.setitem(registry._ENTRIES, "theirs", entry)

    return enter


def test_a_regeneration_asks_another_packages_method_only_if_the_pool_names_it(
    warehouse: Warehouse, theirs: Callable[..., None]
) -> None:
    theirs()
    put_choices(warehouse, {"k": [True] * 4})
    for beside, expected in ((None, {"theirs"}), ((), set()), (("knn", "theirs"), {"theirs"})):
        report = evaluate(warehouse, "b", beside=beside)
        assert {row.method for row in report.rows} & {"theirs", "knn"} == expected
        assert "plurality" in {row.method for row in report.rows}
        assert ("best_plurality" in {row.method for row in report.rows}) == (beside is None)
    assert ("knn", "needs the texts of the questions") in report.skipped
    assert ("knn", "needs the texts of the questions") in evaluate(warehouse, "b", methods=["all"]).skipped
    assert not evaluate(warehouse, "b", methods=["plurality"], beside=["knn"]).skipped
    with pytest.raises(InputError, match="unknown method 'their'; did you mean 'theirs'"):
        evaluate(warehouse, "b", beside=["their"])


def test_an_error_of_another_packages_method_names_the_package(
    warehouse: Warehouse, theirs: Callable[..., None]
) -> None:
    class BrokenMethod(MethodBase):
        def fit(self, train: Dataset, seeds: Sequence[int]) -> Any:
            raise KeyError("weights")

    theirs(make=lambda making: BrokenMethod())
    put_choices(warehouse, {"k": [True] * 4})
    with pytest.raises(RunError, match="theirs of package 'their-package' failed: KeyError: 'weights'"):
        evaluate(warehouse, "b", methods=["theirs"])


def test_default_methods() -> None:
    """A rival that slipped in would slow down every regeneration."""
    usual = "rl_focal rl_focal_sequential best_single constant_choice plurality soft_vote best_log_linear "
    usual += "best_plurality best_soft_vote gated_log_linear log_linear random_select "
    usual += "stacking weighted_vote oracle"
    assert methods_for(12) == usual.split()


OF_LOG_PROBS = ["log_linear", "log_linear+task", "stacking", "likelihood_pool", "best_log_linear"]


def test_methods_of_log_probs_say_so_where_letters_were_sampled(tmp_path: Path) -> None:
    with open_warehouse(tmp_path / "w") as warehouse:
        scores = [[-1.0, -2.0, -3.0], [-3.0, -1.0, -2.0]] * 5
        for model, evidence in (("k", "logprobs"), ("m", "samples"), ("n", "top_logprobs")):
            put(warehouse, scores, model, evidence=evidence)
        data = load_dataset(warehouse, "b")
        named, left_out = every_method(data)
        assert all("that m have" in left_out[name] for name in OF_LOG_PROBS[:3])
        assert not set(OF_LOG_PROBS) & set(named)
        assert {"soft_vote", "plurality", "best_soft_vote"} <= set(named)
        assert "log_linear" in every_method(load_dataset(warehouse, "b", ["k", "n"]))[0]
        with pytest.raises(InputError, match="needs log-probs"):
            check_methods(["log_linear"], data)
