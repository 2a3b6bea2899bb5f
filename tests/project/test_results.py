"""The results that README and docs show: they are what docs/results says, of the code as it is."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from shutil import copytree
from time import monotonic
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.results.evaluations import EvaluationTable, step_of
from benchmarks.results.gains import FIGURE, GAINS, list_gains
from benchmarks.results.labels import METHODS as GAINING
from benchmarks.results.labels import SINGLE, LabelTable, SmallPoolTable, outcomes_of
from benchmarks.results.making import Step, dump, import_data, is_current, make, mark, remake
from benchmarks.results.pages import PAGES, RESULTS, fill, fill_page
from benchmarks.results.plan import RESULTS_OF
from benchmarks.results.revisions import find_current_revision, revision
from benchmarks.results.streams import N_TRAIN, best_constant, make_turning_stream
from benchmarks.results.studies import StudyTable
from rlfocal.base.errors import InputError
from rlfocal.base.names import is_gone
from rlfocal.data.loading import load_dataset
from rlfocal.evaluation.advising import Room
from rlfocal.evaluation.planning import read_dataset
from rlfocal.exchange.imports.prices import import_prices
from rlfocal.scenarios.scenario import keep_labels
from rlfocal.statistics.intervals import paired_difference, paired_over_tasks
from warehouse import Warehouse, open_warehouse


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_show_what_the_results_say(page: Path) -> None:
    assert fill_page(page) == page.read_text("utf-8"), "run `make tables`"


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_results_are_of_the_code_or_marked(path: Path) -> None:
    blocks = json.loads(path.read_text("utf-8"))
    stale = {
        row["method"]
        for block in blocks
        for row in block["rows"]
        if not is_current(block, row) and not row.get("old")
    }
    assert not stale, f"run `make results DATA=DIR ONLY={path.stem}`, or `make tables` to mark them as old"
    assert path.read_text("utf-8") == dump(blocks)


def test_every_results_file_can_be_made_anew() -> None:
    assert {path.stem for path in RESULTS.glob("*.json")} <= set(RESULTS_OF)


def test_a_revision_is_of_method_settings_and_protocol() -> None:
    assert revision("plurality") == "1"
    assert revision("rl_focal") != revision("rl_focal", (), "online")
    assert revision("knn") == revision("knn", ["rl_focal.seed_free=3"])
    assert revision("rl_focal") != revision("rl_focal", ["rl_focal.size_penalty=3"])
    assert revision("rl_focal", ["size_penalty=3"]) == revision("rl_focal", ["rl_focal.size_penalty=3"])
    assert find_current_revision("no_such_method", (), "frozen") is None
    assert find_current_revision("knn", ["knn.no_such_setting=3"], "frozen") is None


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of the import format: two tasks of unequal size, five models."""
    folder, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    documents = [("a", at) for at in range(60)] + [("b", at) for at in range(100)]
    labels = rng.integers(0, 4, len(documents)).tolist()
    docs = [
        {
            "benchmark": "toy",
            "task": task,
            "doc_id": at,
            "label": label,
            "split": "test" if at % 2 else "train",
        }
        for (task, at), label in zip(documents, labels, strict=True)
    ]
    scores = [
        {"benchmark": "toy", "task": task, "doc_id": at, "model": f"m{model}", "choice_logprobs": logits}
        for (task, at), label in zip(documents, labels, strict=True)
        for model in range(5)
        for logits in [(rng.normal(size=4) + (0.4 + 0.3 * model) * np.eye(4)[label]).tolist()]
    ]
    pq.write_table(pa.Table.from_pylist(docs), folder / "toy-docs.parquet")
    pq.write_table(pa.Table.from_pylist(scores), folder / "toy-scores.parquet")
    return folder


@pytest.fixture(scope="module")
def opened(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    with open_warehouse(tmp_path_factory.mktemp("results") / "warehouse") as warehouse:
        import_data(warehouse, data)
        yield warehouse


METHODS = ("best_single", "random_select", "best_plurality", "best_soft_vote")


@pytest.mark.parametrize("per", ["benchmark", "task"])
def test_a_row_is_the_mean_over_seeds_of_all_documents_or_of_tasks(opened: Warehouse, per: Any) -> None:
    step = EvaluationTable("toy", METHODS, per=per, budgets=("1",), above=("best_single", "best_plurality"))
    about, rows = step.rows(opened)
    assert (about["models"], about["documents"], about["tasks"]) == (5, 80, 2)
    assert about["data"] == load_dataset(opened, "toy").fingerprint()[:12]
    keys: list[tuple[str, str | None]] = [("best_single", None), ("random_select", None)]
    keys += [(method, budget) for method in METHODS[2:] for budget in (None, "1")]
    assert [(row["method"], row["budget"]) for row in rows] == keys
    hits: dict[Any, Any] = {}
    for name, budget in keys:
        runs = opened.rows(
            "SELECT DISTINCT run_id, seed FROM evaluations "
            "WHERE (method, per) = (?, ?) AND budget IS NOT DISTINCT FROM ? ORDER BY seed",
            [name, per, budget],
        )
        order = "SELECT task, correct FROM decisions WHERE run_id = ? ORDER BY task, doc_id"
        hits[name, budget] = [opened.rows(order, [run]) for run, _ in runs]
    for row in rows:
        right = np.array([[hit for _, hit in seed] for seed in hits[row["method"], row["budget"]]], float)
        tasks = np.array([task for task, _ in hits[row["method"], row["budget"]][0]])
        of = [right[:, tasks == task] for task in ("a", "b")] if per == "task" else [right]
        by_seed = np.mean([part.mean(1) for part in of], axis=0)
        assert row["accuracy"] == pytest.approx(by_seed.mean(), abs=1e-6)
        variances = [part.mean(1) * (1 - part.mean(1)) / part.shape[1] for part in of]
        assert row["stderr_docs"] == pytest.approx(
            np.sqrt(np.sum(variances, axis=0)).mean() / len(of), abs=1e-6
        )
        if row["method"] == "random_select":
            assert row["seeds"] == 3
            assert row["stderr_seeds"] == pytest.approx(by_seed.std(ddof=1) / np.sqrt(3), abs=1e-6)
        else:
            assert row["seeds"] is row["stderr_seeds"] is None
        rival = "best_plurality", row["budget"]
        if row["method"] == "best_plurality":
            assert "best_plurality" not in row["above"]
        else:
            other = np.array([[hit for _, hit in seed] for seed in hits[rival]], float)
            found = (
                paired_over_tasks(right, other, tasks) if per == "task" else paired_difference(right, other)
            )
            assert row["above"]["best_plurality"] == pytest.approx(
                [found.mean, found.low, found.high, found.p_value], abs=1e-6
            )
            over = (
                paired_over_tasks(right, other, tasks, whole=True)
                if per == "task"
                else paired_difference(right, other, clusters=tasks)
            )
            assert row["above_tasks"]["best_plurality"] == pytest.approx(
                [over.mean, over.low, over.high, over.p_value], abs=1e-6
            )


def test_changed_decisions_are_counted(opened: Warehouse) -> None:
    base = EvaluationTable("toy", ("outputs_knn",), above=())
    _, [same] = replace(base, settings=("outputs_knn.probes=1",), base=base).rows(opened)
    _, [row] = replace(base, settings=("outputs_knn.probes=3",), label="three probes", base=base).rows(opened)
    run = (
        "SELECT run_id FROM evaluations WHERE method = 'outputs_knn' "
        "AND (settings->>'probes') IS NOT DISTINCT FROM ?"
    )
    decided = [
        opened.rows(
            "SELECT prediction, pool FROM decisions WHERE run_id = ? ORDER BY task, doc_id",
            [opened.rows(run, [k])[0][0]],
        )
        for k in (None, "3")
    ]
    pairs = list(zip(*decided, strict=True))
    assert row["changed"]["answers"] == pytest.approx(np.mean([a[0] != b[0] for a, b in pairs]), abs=1e-4)
    assert row["changed"]["pools"] == pytest.approx(
        np.mean([set(a[1]) != set(b[1]) for a, b in pairs]), abs=1e-4
    )
    assert 0 < row["changed"]["answers"] < 1
    assert same["changed"] == {"answers": 0, "pools": 0}


@pytest.mark.slow
def test_results_are_kept_resumed_and_marked(opened: Warehouse, tmp_path: Path) -> None:
    path = tmp_path / "toy.json"
    study = StudyTable(
        "labels", "toy", "rl_focal", 1, ("all",), ("joint_episodes=1",), beside=("best_single",)
    )
    steps: list[Step] = [EvaluationTable("toy", ("best_single", "log_linear")), study]
    make(opened, steps, path)
    once, n_runs = path.read_text("utf-8"), opened.rows("SELECT count(*) FROM evaluations")
    make(opened, steps, path)
    assert path.read_text("utf-8") == once
    assert opened.rows("SELECT count(*) FROM evaluations") == n_runs
    assert mark(path) == []
    blocks = json.loads(once)
    assert {row["method"] for row in blocks[1]["rows"]} >= {"rl_focal", "best_single"}
    blocks[0]["rows"][1]["revision"] = "0"
    path.write_text(dump(blocks), "utf-8")
    assert mark(path) == ["log_linear"]
    assert [row.get("old") for row in json.loads(path.read_text("utf-8"))[0]["rows"]] == [None, True]


def test_rows_of_a_method_that_is_gone_outlive_new_results(opened: Warehouse, tmp_path: Path) -> None:
    path, step = tmp_path / "toy.json", EvaluationTable("toy", ("best_single",))
    gone = {"method": "rl_focal_released", "accuracy": 0.5, "revision": "1"}
    study = {"benchmark": "toy", "study": "artefacts", "protocol": "frozen", "settings": [], "rows": [gone]}
    path.write_text(dump([step.about | {"rows": [gone, gone | {"method": "plurality"}]}, study]), "utf-8")
    make(opened, [step], path)
    assert mark(path) == ["rl_focal_released"]
    first, second = json.loads(path.read_text("utf-8"))
    assert [row["method"] for row in first["rows"]] == ["best_single", "rl_focal_released"]
    assert (second["study"], second["rows"]) == ("artefacts", [gone | {"old": True}])


def test_rows_of_named_methods_are_made_and_others_stay(
    opened: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "toy.json"
    step = EvaluationTable("toy", ("best_single", "log_linear", "best_plurality"), budgets=("1",))
    [best] = [row for row in step.rows(opened)[1] if row["method"] == "best_single"]
    data = load_dataset(opened, "toy").fingerprint()[:12]
    theirs = [
        {"method": "best_single", "budget": None},
        {"method": "log_linear", "budget": None, "accuracy": 0},
    ]
    path.write_text(dump([step.about | {"command": "", "data": data, "rows": theirs}]), "utf-8")
    remake(opened, [step, replace(step, label="another")], path, ["log_linear", "best_plurality", "knn"])
    [block] = json.loads(path.read_text("utf-8"))
    assert block["command"] == step.command
    assert block["rows"][0] == theirs[0]
    made = [(row["method"], row["budget"]) for row in block["rows"][1:]]
    assert made == [("log_linear", None), ("best_plurality", None), ("best_plurality", "1")]
    assert block["rows"][1]["above"]["best_single"][0] == pytest.approx(
        block["rows"][1]["accuracy"] - best["accuracy"], abs=2e-6
    )
    path.write_text(dump([block | {"data": "other"}]), "utf-8")
    monkeypatch.setattr(EvaluationTable, "rows", None)  # refused before anything is evaluated
    with pytest.raises(InputError, match="other"):
        remake(opened, [step], path, ["log_linear"])


def test_rows_of_a_younger_method_beside_a_named_one_enter(
    opened: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the start beside `rl_focal`; rows that the file has stay unless their method is named."""
    path, step = tmp_path / "toy.json", EvaluationTable("toy", ("log_linear",))
    kept = [{"method": name, "budget": None, "accuracy": 0} for name in ("best_single", "log_linear")]
    about = step.about | {"command": "", "data": step.digest_data(opened)}
    path.write_text(dump([about | {"rows": kept}]), "utf-8")
    found = [{"method": name, "budget": None} for name in ("best_single", "log_linear", "beside")]
    monkeypatch.setattr(EvaluationTable, "rows", lambda *_: ({"seconds": 0.0}, found))
    remake(opened, [step], path, ["log_linear"])
    [block] = json.loads(path.read_text("utf-8"))
    assert block["rows"][0] == kept[0]
    assert [row["method"] for row in block["rows"] if "date" in row] == ["log_linear", "beside"]


def test_what_advise_looks_up_is_what_was_measured() -> None:
    assert GAINS.read_text("utf-8") == list_gains(RESULTS / "labels.json"), "run `make tables`"
    assert FIGURE.is_file()


@pytest.mark.slow
def test_gains_by_labels_are_paired_with_the_best_single_model_of_the_same_draw(opened: Warehouse) -> None:
    data = read_dataset(opened, "toy", None).hide_tasks()
    fewer, more = (keep_labels(data, n, 1).train.doc_ids.tolist() for n in (20, 40))
    assert len(fewer) == 20
    assert Counter(fewer) <= Counter(more)
    about, rows = LabelTable("toy", labels=(20, 80), draws=2, fits_of_all=1).rows(opened)
    assert (about["models"], about["documents"], about["train"]) == (5, 80, 80)
    assert [(row["label"], row["method"], row["seeds"]) for row in rows] == [
        (label, method, draws)
        for label, draws in (("20 labels", 2), ("all labels", 1))
        for method in (SINGLE, *GAINING)
    ]
    outcomes = [outcomes_of(data, keep_labels(data, 20, draw).train, draw) for draw in range(2)]
    for row in rows[1:5]:
        gains = [one[row["method"]].right - one[SINGLE].right for one in outcomes]
        found = paired_difference(np.array(gains), np.zeros((1, 80)))
        assert row["above"][SINGLE] == pytest.approx(
            [found.mean, found.low, found.high, found.p_value], abs=1e-6
        )
        assert row["accuracy"] - rows[0]["accuracy"] == pytest.approx(found.mean, abs=2e-6)


@pytest.mark.slow
def test_small_pools_are_told_apart_by_what_there_is_to_gain(opened: Warehouse) -> None:
    _, rows = SmallPoolTable((("toy", 2), ("toy", 4)), labels=(20,), pools=3).rows(opened)
    assert len(rows) == 2 * 3 * len(GAINING)
    for measure in Room._fields:
        of = [row for row in rows if (row["measure"], row["method"]) == (measure, "log_linear")]
        assert [row["pools"] for row in of] == [2, 2, 2]
        ends = [end for row in of for end in (row["from"], row["to"])]
        assert ends == sorted(ends)
        assert ends[0] < ends[-1]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("demo cell=accuracy", "rows"),
        ("demo cell=accuracy method=none", "no row"),
        ("demo cell=accurate method=rl_focal", "'accurate'"),
        ("dema cell=accuracy", "'dema'"),
    ],
)
def test_a_value_is_of_one_row(wrong: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        fill(f"<!-- value: {wrong} --><!-- end -->")


def test_streams_share_train_and_turn_where_they_should() -> None:
    steady, turned = make_turning_stream(3, 900), make_turning_stream(3, 300)
    assert steady.train.fingerprint() == turned.train.fingerprint()
    assert (steady.predictions[: N_TRAIN + 300] == turned.predictions[: N_TRAIN + 300]).all()
    before, after = (
        turned.correct[rows].mean(0) for rows in (slice(0, N_TRAIN + 300), slice(N_TRAIN + 300, None))
    )
    assert before[:2].min() > 0.8
    assert before[3:5].max() < 0.5
    assert after[3:5].min() > 0.8
    assert after[:2].max() < 0.5
    late = turned.test.rows(np.arange(900) >= 600)
    assert best_constant(late) >= late.correct.mean(0).max()


CELLS = 10
QUICK = 10.0
"""Seconds to fit and decide, of all seeds, that a cell may have taken."""
LONGEST = 240.0
"""Seconds after which no further cell is begun."""
FIGURES = ("accuracy", "mean_pool_size", "mean_rounds")


def is_drawn_from(block: dict[str, Any], row: dict[str, Any]) -> bool:
    """Whether a cell is of an evaluation by today's code that takes seconds, without an encoder to load."""
    takes = row.get("seconds", QUICK if row.get("seeds", 1) is None else np.inf)
    is_quick = takes <= QUICK and block["protocol"] == "frozen" and "--tune" not in block["command"]
    is_plain = not any(setting.startswith("encoder=") for setting in block["settings"])
    is_today = not row.get("old") and not is_gone(f"method {row['method']}")
    return is_quick and is_plain and is_today


def drawn_cells(warehouse: Warehouse) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """File, block and row of each, with the date as seed; none is of other data than the warehouse has."""
    known = {benchmark for (benchmark,) in warehouse.rows("SELECT DISTINCT benchmark FROM docs")}

    @cache
    def fingerprint(benchmark: str, split: str) -> str:
        return read_dataset(warehouse, benchmark, None, None, split).fingerprint()[:12]

    cells = [
        (path.stem, block, row)
        for path in sorted(RESULTS.glob("*.json"))
        for block in json.loads(path.read_text("utf-8"))
        if block.get("benchmark") in known and block["command"].startswith("rlfocal evaluate -b")
        if fingerprint(block["benchmark"], block["split"]) == block["data"]
        for row in block["rows"]
        if is_drawn_from(block, row)
    ]
    rng = np.random.default_rng(int(f"{datetime.now(UTC):%Y%m%d}"))
    return [cells[at] for at in rng.permutation(len(cells))[:CELLS]]


@pytest.fixture(scope="module")
def real(real_warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    """The three real sets with list prices, as `python -m benchmarks.results` imports them."""
    place = tmp_path_factory.mktemp("by_value") / "warehouse"
    copytree(real_warehouse, place)
    with open_warehouse(place) as warehouse:
        import_prices(warehouse)
        yield warehouse


@pytest.mark.slow
def test_a_sample_of_cells_is_what_the_code_gives(real: Warehouse) -> None:
    began, found, published = monotonic(), {}, {}
    for name, block, row in drawn_cells(real):
        if monotonic() - began > LONGEST:
            break
        _, rows = step_of(block, row).rows(real)
        [again] = [one for one in rows if (one["method"], one["budget"]) == (row["method"], row["budget"])]
        cell = f"{name}, {block['command']}: {row['method']} within {row['budget']}"
        found[cell] = [again[figure] for figure in FIGURES]
        published[cell] = pytest.approx([row[figure] for figure in FIGURES], abs=1e-4)
    assert published, "no cell is of the data at hand"
    assert found == published
