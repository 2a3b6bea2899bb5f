"""Studies from end to end on a small made-up benchmark, and what each must and must not do."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.dom import minidom

import numpy as np
import pyarrow as pa
import pytest

from rlfocal.base.errors import InputError
from rlfocal.cli import main
from rlfocal.data.dataset import load_dataset
from rlfocal.data.policy import decide
from rlfocal.evaluation import EvaluationRequest, Setup, evaluate
from rlfocal.evaluation.studies import STUDIES, Conditions, Findings, Point, load
from rlfocal.evaluation.studies.arms import find_changes, tuned_arm
from rlfocal.evaluation.studies.artefacts import counted_as_released
from rlfocal.evaluation.studies.pools import repeat_models
from rlfocal.evaluation.studies.study import parse, written
from rlfocal.evaluation.studies.success import by_members, decisions
from rlfocal.evaluation.studies.switch import furthest_apart, stream, stretches
from rlfocal.methods import Making, RLFocal, make_method
from rlfocal.methods.rl_focal.config import rl_focal_config
from rlfocal.methods.trained.settings import recipe, shown
from rlfocal.report import leaderboard, write_report
from rlfocal.report.figures.style import svg
from rlfocal.report.studies import figure
from warehouse import Warehouse, open_warehouse

FAST: dict[str, dict[str, Any]] = {
    "rl_focal": {
        "joint_episodes": 1,
        "decider_episodes": 1,
        "fusion_episodes": 1,
        "window": 20,
        "decider_hidden": (8,),
    },
    "rl_focal_sequential": {},
    "rl_focal_released": {"decider_episodes": 1, "fusion_episodes": 1, "window": 10},
}
DRAWN: set[str] = set()
"""Studies whose figure was drawn: drawing takes a second."""
SKILL = {"a": 0.75, "b": 0.65, "c": 0.55, "d": 0.4}


@pytest.fixture(scope="module")
def filled(empty_warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four models on two tasks of 100 documents with three choices, 80 of them train."""
    folder = tmp_path_factory.mktemp("studies") / "warehouse"
    shutil.copytree(empty_warehouse, folder)
    rng = np.random.default_rng(0)
    with open_warehouse(folder) as opened, opened.transaction("fill"):
        opened.append("models", pa.table({"model": list(SKILL), "price": [1.0, 2.0, 3.0, 4.0]}))
        for task in ("s", "t"):
            n = 100
            keys = {"benchmark": ["b"] * n, "task": [task] * n, "doc_id": list(range(n))}
            labels = rng.integers(0, 3, n)
            split = ["train"] * 80 + ["test"] * 20
            opened.append("docs", pa.table(keys | {"label": pa.array(labels, pa.int32()), "split": split}))
            for model, skill in SKILL.items():
                right = rng.random(n) < skill
                given = np.where(right, labels, (labels + rng.integers(1, 3, n)) % 3)
                for choice in range(3):
                    scores = np.where(given == choice, 1.0, rng.random(n) * 0.5)
                    row = {"model": [model] * n, "choice": [choice] * n, "logprob": scores}
                    opened.append("choice_logprobs", pa.table(keys | row))
    return folder


@pytest.fixture
def opened(filled: Path, tmp_path: Path) -> Iterator[Warehouse]:
    shutil.copytree(filled, tmp_path / "own")
    with open_warehouse(tmp_path / "own") as warehouse:
        yield warehouse


def conditions(warehouse: Warehouse, method: str = "rl_focal", seeds: int = 2) -> Conditions:
    return Conditions(
        Setup(warehouse, load_dataset(warehouse, "b"), EvaluationRequest("b", seeds=seeds)),
        method,
        FAST[method],
    )


def run(warehouse: Warehouse, name: str, *values: object, seeds: int = 2) -> Findings:
    study = STUDIES[name]
    found = study.run(conditions(warehouse, study.method, seeds), values or None)
    if name not in DRAWN:
        minidom.parseString(svg(figure(found).spec))
        DRAWN.add(name)
    assert load(warehouse.location.studies / f"{name}-b-{study.method}.json") == found
    return found


def n_runs(warehouse: Warehouse) -> int:
    [(n,)] = warehouse.rows("SELECT count(DISTINCT run_id) FROM evaluations")
    return int(n)


@pytest.mark.slow
def test_a_sweep_fills_evaluations_once(opened: Warehouse) -> None:
    found = run(opened, "size-penalty", 0, 3)
    assert [p.label for p in found.points] == ["α = 0", "α = 3", "best_single"]
    runs = opened.rows(
        "SELECT study, settings, count(*) FROM evaluations WHERE task = '*' AND method = 'rl_focal' "
        "GROUP BY ALL ORDER BY settings"
    )
    common = FAST["rl_focal"] | {"decider_hidden": [8]}
    assert [(study, json.loads(told), n) for study, told, n in runs] == [
        ("size-penalty", common | {"size_penalty": alpha}, 2) for alpha in (0, 3)
    ]
    for p in found.points:
        rows = opened.rows(
            "SELECT avg(accuracy), avg(mean_pool_size) FROM evaluations "
            "WHERE task = '*' AND list_contains(?, run_id)",
            [list(p.runs)],
        )
        assert rows == [(pytest.approx(p.accuracy), pytest.approx(p.mean_pool_size))]
    before = opened.snapshot()
    assert run(opened, "size-penalty", 0, 3) == found
    assert opened.snapshot() == before  # nothing was run or written again


@pytest.mark.slow
def test_a_study_that_was_cut_short_goes_on(opened: Warehouse) -> None:
    run(opened, "discount", 0.1, seeds=1)
    done = n_runs(opened)
    found = run(opened, "discount", 0.1, 0.9, seeds=1)
    assert n_runs(opened) == done + 1  # the seed of the new value
    assert {p.seeds for p in found.points if p.x is not None} == {1}


def test_the_defaults_are_the_run_that_evaluate_makes(opened: Warehouse) -> None:
    config = {"window": 160}  # its own for as few train rows
    assert find_changes("rl_focal", config, [160]) == {}
    assert find_changes("rl_focal", config, [160, 5_000]) == config
    assert find_changes("rl_focal", config | {"epochs": 3}, [160]) == {"epochs": 3}
    setup = Setup(opened, load_dataset(opened, "b"), EvaluationRequest("b"))
    plain = tuned_arm(Conditions(setup, study="window"), "the defaults")
    assert (plain.candidate.study, plain.candidate.settings) == (None, {})


@pytest.mark.slow
def test_evaluate_takes_every_setting_and_trains_what_a_study_does(opened: Warehouse) -> None:
    words = parse("rl_focal", [f"{name}={shown(value)}" for name, value in FAST["rl_focal"].items()])
    assert words == FAST["rl_focal"]
    given = [f"rl_focal.{name}={shown(value)}" for name, value in FAST["rl_focal"].items()]
    made = evaluate(opened, "b", methods=["rl_focal", "best_single"], settings=given, seeds=1)
    of_settings = [row for row in made.rows if row.study == "settings"]
    assert {row.method for row in of_settings} == {"rl_focal"}
    method = make_method("rl_focal", Making(settings={"epochs": "3"}))
    assert method.recipe(160) == recipe("rl_focal", replace(rl_focal_config(160), epochs=3))
    assert make_method("rl_focal").recipe(160) == recipe("rl_focal", rl_focal_config(160))
    found = run(opened, "size-penalty", rl_focal_config(160).size_penalty, seeds=1)
    [arm] = [p for p in found.points if p.x is not None]
    [row] = [row for row in of_settings if row.task == "*"]
    assert (row.accuracy, row.mean_pool_size) == (arm.accuracy, arm.mean_pool_size)
    for wrong, told in (("epoch=3", "unknown setting 'epoch'"), ("epochs=x", "epochs='x' cannot be read")):
        with pytest.raises(InputError, match=told):
            evaluate(opened, "b", methods=["rl_focal"], settings=[f"rl_focal.{wrong}"], seeds=1)
    asked = make_method("rl_focal_sequential", Making(settings={"mean_pool": "2"}))
    assert asked.recipe(160) != make_method("rl_focal_sequential").recipe(160)
    assert asked.recipe(160) == RLFocal("rl_focal_sequential", changes={"mean_pool": 2.0}).recipe(160)


def test_the_page_lists_every_study() -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "studies.md"
    listed = re.findall(r"^\| `([\w-]+)` \|", page.read_text("utf-8").split("\n## ")[0], re.MULTILINE)
    assert listed == list(STUDIES)


def test_thinking_needs_models_that_think_differently(opened: Warehouse) -> None:
    with pytest.raises(InputError, match="no two models of 'b' have the same weights and think differently"):
        run(opened, "thinking")


def test_windows_beyond_train_are_one(opened: Warehouse) -> None:
    found = run(opened, "window", 20, 500, "all", seeds=1)
    assert [p.label for p in found.points] == ["20", "all", "best_single"]


@pytest.mark.slow
def test_metrics_against_none_and_all_models(opened: Warehouse) -> None:
    found = run(opened, "metrics", "none", "kappa", seeds=1)
    labels = [p.label for p in found.points]
    assert labels == ["no metric", "kappa", "the default metrics", "soft_vote", "plurality", "best_single"]
    with pytest.raises(InputError, match="kappas"):
        run(opened, "metrics", "kappas")


def test_branching(opened: Warehouse) -> None:
    found = run(opened, "branching", seeds=1)
    assert [p.label for p in found.points[:2]] == ["a branch per model", "a single branch"]


def test_models_are_repeated_under_names_of_their_own(opened: Warehouse) -> None:
    data = load_dataset(opened, "b")
    large = repeat_models(data, 10)
    assert large.models == ("a", "a#2", "a#3", "b", "b#2", "b#3", "c", "c#2", "d", "d#2")
    for at, name in enumerate(large.models):
        original = data.models.index(name.partition("#")[0])
        assert np.array_equal(large.probs[:, at], data.probs[:, original])
        assert np.array_equal(large.predictions[:, at], data.predictions[:, original])
        assert large.prices[at] == data.prices[original]
    twice = repeat_models(data, 8)
    one, other = (decide(make_method("soft_vote").fit(d.train, [0])[0], d.test) for d in (data, twice))
    assert np.array_equal(one.predictions, other.predictions)  # everybody twice votes as everybody once
    assert repeat_models(data, 2).models == ("a", "b")


def test_pool_scale_measures_time(opened: Warehouse) -> None:
    found = run(opened, "pool-scale", 2, 6, seeds=1)
    ours = [p for p in found.points if p.series == "RL-Focal"]
    assert [p.x for p in ours] == [2.0, 6.0]
    assert all(p.seconds is not None and p.seconds > 0 for p in ours)
    models = opened.rows(
        "SELECT DISTINCT models FROM evaluations WHERE method = 'rl_focal' ORDER BY len(models) DESC LIMIT 1"
    )
    assert models == [(["a", "a#2", "b", "b#2", "c", "d"],)]


def test_teams_have_the_size_they_are_held_to(opened: Warehouse) -> None:
    found = run(opened, "pool-size", 2, 3, seeds=1)
    asked = {(p.series, p.x): p.mean_pool_size for p in found.points}
    assert asked == {
        ("RL-Focal", 2.0): 2.0,
        ("RL-Focal", 3.0): 3.0,
        **{("random_select", k): 1.0 for k in (2.0, 3.0)},
        **{("latest_correct", k): k for k in (2.0, 3.0)},
    }
    protocols = opened.rows("SELECT DISTINCT method, protocol FROM evaluations ORDER BY 1")
    assert ("latest_correct:2", "online") in protocols
    with pytest.raises(InputError, match="pool of 5 models"):
        run(opened, "pool-size", 5)
    own = run(opened, "pool-size", seeds=1)  # of which a pool of four models has not all
    assert {p.x for p in own.points} == {2.0, 3.0, 4.0}


def test_success_is_counted_by_right_members(opened: Warehouse) -> None:
    found = run(opened, "success")
    data = load_dataset(opened, "b").test
    ours = [p for p in found.points if p.series == "RL-Focal"]
    runs = [
        run_id
        for (run_id,) in opened.rows(
            "SELECT run_id FROM evaluations WHERE method = 'rl_focal' AND task = '*'"
        )
    ]
    assert len(runs) == 2
    by_hand: dict[int, list[list[bool]]] = {}
    for seed, run_id in enumerate(runs):
        for task, doc, pool, correct in opened.rows(
            "SELECT task, doc_id, pool, correct FROM decisions WHERE run_id = ?", [run_id]
        ):
            [row] = np.flatnonzero((data.tasks == task) & (data.doc_ids == doc))
            j = sum(bool(data.correct[row, data.models.index(m)]) for m in pool)
            by_hand.setdefault(j, [[], []])[seed].append(correct)
    assert [p.x for p in ours] == sorted(by_hand)
    for p in ours:
        rates = [np.mean(hits) for hits in by_hand[int(p.x or 0)] if hits]
        assert p.accuracy == pytest.approx(np.mean(rates))
    plurality = {p.x: p.accuracy for p in found.points if p.series.startswith("plurality")}
    assert plurality.get(0.0, 0.0) == 0.0  # a vote is never right where no member is
    decided = decisions(opened, runs[0], data)
    assert decided.pools.any(axis=1).all()


def test_rates_by_members_leave_out_seeds_without_such_documents() -> None:
    right = [np.array([0, 1, 1]), np.array([1, 1, 1])]
    correct = [np.array([True, True, False]), np.array([True, True, True])]
    zero, one = by_members("s", right, correct)
    assert (zero.accuracy, zero.seeds, zero.stderr_seeds) == (1.0, 1, None)
    assert (one.accuracy, one.seeds) == (0.75, 2)


def released_by_hand(warehouse: Warehouse, run_id: str) -> float:
    """All test documents but the first two, the right ones divided by one less than their number."""
    rows = warehouse.rows("SELECT correct FROM decisions WHERE run_id = ? ORDER BY task, doc_id", [run_id])
    scored = [hit for (hit,) in rows][2:]
    return float(sum(scored) / (len(scored) - 1))


def test_artefacts_are_switched_off_one_by_one(opened: Warehouse) -> None:
    found = run(opened, "artefacts", "no_critic", seeds=1)
    assert [p.label for p in found.points] == [
        "as released",
        "without no_critic",
        "best_single",
        "soft_vote",
    ]
    switched = opened.rows(
        "SELECT DISTINCT settings->'$.artefacts' FROM evaluations WHERE method = 'rl_focal_released'"
    )
    assert len(switched) == 2
    assert counted_as_released(conditions(opened, "rl_focal_released"), found.points[0]) == pytest.approx(
        released_by_hand(opened, found.points[0].runs[0])
    )
    with pytest.raises(InputError, match="no_critics"):
        run(opened, "artefacts", "no_critics")


def test_a_damaged_journal_is_named(opened: Warehouse) -> None:
    run(opened, "search", 1, seeds=1)
    [journal] = (opened.location.studies / "tuning").glob("b-rl_focal-*.journal")
    whole = journal.read_text()
    for damaged in (whole.replace(":", ";", 1), whole.replace('"op_code"', '"op-code"', 1), "\xff" + whole):
        journal.write_text(damaged, encoding="latin-1")
        with pytest.raises(InputError, match=r"journal is damaged .*; delete it, and the search starts"):
            run(opened, "search", 1, seeds=1)


def test_the_search_study_evaluates_what_it_found(opened: Warehouse) -> None:
    found = run(opened, "search", 2, seeds=1)
    assert "best_single" in {p.label for p in found.points}
    assert "By 2 trials on 3 folds of train" in found.notes[0]


def test_a_search_of_nothing_is_refused(opened: Warehouse) -> None:
    with pytest.raises(InputError, match="at least 1 trial, got 0"):
        run(opened, "search", 0)


def test_studies_stand_in_the_report_but_on_no_leaderboard(opened: Warehouse, tmp_path: Path) -> None:
    run(opened, "discount", 0.1, seeds=1)
    [board] = leaderboard(opened)
    assert [s.method for s in board.standings] == ["best_single"]
    some = load_dataset(opened, "b", ["a", "b"])
    shared = conditions(opened, seeds=1)
    restricted = replace(shared, setup=replace(shared.setup, dataset=some), chose_models=True)
    STUDIES["pool-size"].run(restricted, [1])
    of = opened.rows("SELECT DISTINCT study FROM evaluations WHERE models = ['a', 'b']")
    assert of == [("pool-size",)]
    assert len(leaderboard(opened)) == 1
    page = write_report(opened, tmp_path / "report.html").read_text()
    assert STUDIES["discount"].question in page
    assert "discount on b, rl_focal" in page


def test_settings_are_written_as_they_are_read() -> None:
    words = ["metrics=kappa+correlation", "branching=false", "window=50", "fusion_gamma=0.25"]
    assert written(parse("rl_focal", words)) == ",".join(sorted(words))
    assert parse("rl_focal", ["metrics=none"]) == {"metrics": ()}
    for words, message in (
        (["window"], "not NAME=VALUE"),
        (["windows=3"], "windows"),
        (["window=x"], "cannot be read"),
        (["branching=maybe"], "cannot be read"),
    ):
        with pytest.raises(InputError, match=message):
            parse("rl_focal", words)


@pytest.mark.slow
def test_the_command(
    filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(filled, tmp_path / "own")
    place = ["-b", "b", "-w", str(tmp_path / "own"), "-o", str(tmp_path / "figures"), "--seeds", "1"]
    fast = [word for name in ("decider", "fusion") for word in ("--set", f"{name}_episodes=1")]

    def call(*words: str) -> int:
        monkeypatch.setattr(sys, "argv", ["rlfocal", "study", *words])
        capsys.readouterr()
        try:
            main()
        except SystemExit as stop:
            return int(stop.code or 0)
        return 0

    assert call("size-penalty", *place, *fast, "--values", "0,1", "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert [p["label"] for p in shown["points"]] == ["α = 0", "α = 1", "best_single"]
    minidom.parse(str(tmp_path / "figures" / "size-penalty-b.svg"))
    assert call("size-penalty", *place, *fast, "--values", "0,1") == 0
    assert "±docs" in capsys.readouterr().out
    assert call("--help") == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in STUDIES)
    for words, message in (
        (["window", *place, "--method", "rl_focal_sequential"], "window"),
        (["size-penalty", *place, "--values", "much"], "cannot be read"),
        (["success", *place, "--values", "3"], "takes no values"),
        (["success", "-b", "bb", *place[2:]], "bb"),
    ):
        assert call(*words) == 2
        assert message in capsys.readouterr().err


def test_a_stream_turns_from_one_task_to_the_other(opened: Warehouse) -> None:
    data = load_dataset(opened, "b")
    turned = stream(data, "t", "s")
    assert turned.tasks.tolist() == ["t"] * 100 + ["s"] * 100
    assert turned.is_train.tolist() == [True] * 80 + [False] * 120
    assert np.array_equal(turned.labels[:100], data.labels[data.tasks == "t"])
    assert np.array_equal(turned.probs[100:], data.probs[data.tasks == "s"])


def test_the_tasks_furthest_apart_are_those_where_the_best_models_differ_most(opened: Warehouse) -> None:
    data = load_dataset(opened, "b")
    predictions = np.where(data.labels == 0, 1, 0)[:, None].repeat(4, axis=1)
    for task, model in (("s", 0), ("t", 3)):
        rows = data.tasks == task
        predictions[rows, model] = data.labels[rows]
    predictions[(data.tasks == "t") & (data.doc_ids < 40), 0] = data.labels[
        (data.tasks == "t") & (data.doc_ids < 40)
    ]
    # d is never right on s; a is right on half of t: turning to s costs more.
    assert furthest_apart(replace(data, predictions=predictions).train) == ("t", "s")


def test_no_stretch_lies_across_the_switch() -> None:
    for n_before, total in ((50, 300), (20, 120), (1, 2), (75, 80)):
        parts = stretches(n_before, total)
        assert [a for a, _ in parts] == [0, *(b for _, b in parts[:-1])]
        assert parts[-1][1] == total
        assert n_before in {a for a, _ in parts}
        assert max(b - a for a, b in parts) <= 75


def test_a_switch_shows_frozen_and_online_along_one_stream(opened: Warehouse) -> None:
    found = run(opened, "switch", "s", "t", seeds=1)
    shown: dict[str, list[Point]] = {}
    for p in found.points:
        shown.setdefault(p.series, []).append(p)
    assert set(shown) == {"frozen", "online", "best_single"}
    for points in shown.values():
        assert sum(p.n for p in points) == 120  # the test rows of s, all rows of t
        assert [(p.x or 0) < 0 for p in points] == [True, False, False]
    for protocol in ("frozen", "online"):
        runs = opened.rows(
            "SELECT avg(accuracy) FROM evaluations WHERE protocol = ? AND task = '*' AND method = 'rl_focal' "
            "AND (settings->'$.switch')::VARCHAR[] = ['s', 't']",
            [protocol],
        )
        weighted = sum(p.n * p.accuracy for p in shown[protocol]) / 120
        assert runs == [(pytest.approx(weighted),)]
    asked = dict(
        opened.rows(
            "SELECT protocol, avg(mean_pool_size) FROM evaluations WHERE task = '*' AND method = 'rl_focal' "
            "GROUP BY protocol"
        )
    )
    assert asked["frozen"] != asked["online"]  # online, the Decider goes on trying teams
    with pytest.raises(InputError, match="'u'"):
        run(opened, "switch", "s", "u")
    with pytest.raises(InputError, match="two tasks"):
        run(opened, "switch", "s")
