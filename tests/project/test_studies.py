"""Studies from end to end on a small made-up benchmark, and what each must and must not do."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from xml.dom import minidom

import numpy as np
import pytest
from support.cli import Cli
from support.studies import FAST, conditions, run

from benchmarks.studies import STUDIES, Conditions, Point
from benchmarks.studies.__main__ import main
from benchmarks.studies.study import find_changes, format_settings, parse, tuned_arm
from benchmarks.studies.sweeps import decisions, points_by_right_members
from benchmarks.studies.switch import furthest_apart, stream, stretches
from rlfocal.base.errors import InputError
from rlfocal.data.loading import load_dataset
from rlfocal.evaluation import EvaluationRequest, Setup, evaluate
from rlfocal.evaluation.leaderboard import leaderboard
from rlfocal.methods import MethodArguments, RLFocal, make_method
from rlfocal.methods.checking import write_value
from rlfocal.methods.rl_focal.config import rl_focal_config
from rlfocal.methods.trained import recipe
from warehouse import Warehouse


@pytest.mark.slow
def test_a_sweep_fills_evaluations_once(studied: Warehouse) -> None:
    found = run(studied, "size-penalty", 1, 3)
    assert [p.label for p in found.points] == ["α = 1", "α = 3", "best_single"]
    runs = studied.rows(
        "SELECT study, settings, count(*) FROM evaluations WHERE task = '*' AND method = 'rl_focal' "
        "GROUP BY ALL ORDER BY settings"
    )
    common = FAST["rl_focal"] | {"decider_hidden": [8]}
    assert [(study, json.loads(told), n) for study, told, n in runs] == [
        ("size-penalty", common | {"size_penalty": alpha}, 2) for alpha in (1, 3)
    ]
    for p in found.points:
        rows = studied.rows(
            "SELECT avg(accuracy), avg(mean_pool_size) FROM evaluations "
            "WHERE task = '*' AND list_contains(?, run_id)",
            [list(p.runs)],
        )
        assert rows == [(pytest.approx(p.accuracy), pytest.approx(p.mean_pool_size))]
    before = studied.snapshot()
    assert run(studied, "size-penalty", 1, 3) == found
    assert studied.snapshot() == before  # nothing was run or written again


def test_the_defaults_are_the_run_that_evaluate_makes(studied: Warehouse) -> None:
    config = {"window": 160}  # its own for as few train rows
    assert find_changes("rl_focal", config, [160]) == {}
    assert find_changes("rl_focal", config, [160, 5_000]) == config
    assert find_changes("rl_focal", config | {"epochs": 3}, [160]) == {"epochs": 3}
    setup = Setup(studied, load_dataset(studied, "b"), EvaluationRequest("b"))
    plain = tuned_arm(Conditions(setup, study="discount"), "the defaults")
    assert (plain.candidate.study, plain.candidate.settings) == (None, {})


@pytest.mark.slow
def test_evaluate_takes_every_setting_and_trains_what_a_study_does(studied: Warehouse) -> None:
    words = parse("rl_focal", [f"{name}={write_value(value)}" for name, value in FAST["rl_focal"].items()])
    assert words == FAST["rl_focal"]
    given = [f"rl_focal.{name}={write_value(value)}" for name, value in FAST["rl_focal"].items()]
    made = evaluate(studied, "b", methods=["rl_focal", "best_single"], settings=given, seeds=1)
    of_settings = [row for row in made.rows if row.study == "settings"]
    assert {row.method for row in of_settings} == {"rl_focal"}
    method = make_method("rl_focal", MethodArguments(settings={"epochs": "3"}))
    assert method.recipe(160) == recipe(replace(rl_focal_config(160), epochs=3))
    assert make_method("rl_focal").recipe(160) == recipe(rl_focal_config(160))
    found = run(studied, "size-penalty", rl_focal_config(160).size_penalty, seeds=1)
    [arm] = [p for p in found.points if p.x is not None]
    [row] = [row for row in of_settings if row.task == "*"]
    assert (row.accuracy, row.mean_pool_size) == (arm.accuracy, arm.mean_pool_size)
    asked = make_method("rl_focal_sequential", MethodArguments(settings={"mean_pool": "2"}))
    assert asked.recipe(160) != make_method("rl_focal_sequential").recipe(160)
    assert asked.recipe(160) == RLFocal("rl_focal_sequential", changes={"mean_pool": 2.0}).recipe(160)


def test_the_page_lists_every_study() -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "studies.md"
    listed = re.findall(r"^\| `([\w-]+)` \|", page.read_text("utf-8").split("\n## ")[0], re.MULTILINE)
    assert listed == list(STUDIES)


def test_thinking_needs_models_that_think_differently(studied: Warehouse) -> None:
    with pytest.raises(InputError, match="think for different lengths"):
        run(studied, "thinking")


@pytest.mark.slow
def test_the_arms_of_a_study(studied: Warehouse) -> None:
    found = run(studied, "discount", 0, 0.9, seeds=1)
    assert [p.label for p in found.points] == ["γ = 0", "γ = 0.9", "best_single"]


@pytest.mark.slow
def test_teams_have_the_size_they_are_held_to(studied: Warehouse) -> None:
    found = run(studied, "pool-size", 2, 3, seeds=1)
    asked = {(p.series, p.x): p.mean_pool_size for p in found.points}
    assert asked == {
        ("RL-Focal", 2.0): 2.0,
        ("RL-Focal", 3.0): 3.0,
        **{("random_select", k): 1.0 for k in (2.0, 3.0)},
        **{("latest_correct", k): k for k in (2.0, 3.0)},
    }
    protocols = studied.rows("SELECT DISTINCT method, protocol FROM evaluations ORDER BY 1")
    assert ("latest_correct:2", "online") in protocols
    with pytest.raises(InputError, match="pool of 5 models"):
        run(studied, "pool-size", 5)
    own = run(studied, "pool-size", seeds=1)  # of which a pool of four models has not all
    assert {p.x for p in own.points} == {2.0, 3.0, 4.0}


def test_success_is_counted_by_right_members(studied: Warehouse) -> None:
    found = run(studied, "success")
    data = load_dataset(studied, "b").test
    ours = [p for p in found.points if p.series == "RL-Focal"]
    of_ours = "SELECT run_id FROM evaluations WHERE method = 'rl_focal' AND task = '*'"
    runs = [run_id for (run_id,) in studied.rows(of_ours)]
    assert len(runs) == 2
    by_hand: dict[int, list[list[bool]]] = {}
    for seed, run_id in enumerate(runs):
        for task, doc, pool, correct in studied.rows(
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
    decided = decisions(studied, runs[0], data)
    assert decided.pools.any(axis=1).all()


def test_rates_by_members_leave_out_seeds_without_such_documents() -> None:
    right = [np.array([0, 1, 1]), np.array([1, 1, 1])]
    correct = [np.array([True, True, False]), np.array([True, True, True])]
    zero, one = points_by_right_members("s", right, correct)
    assert (zero.accuracy, zero.seeds, zero.stderr_seeds) == (1.0, 1, None)
    assert (one.accuracy, one.seeds) == (0.75, 2)


def test_studies_stand_on_no_leaderboard(studied: Warehouse) -> None:
    run(studied, "discount", 0.1, seeds=1)
    [board] = leaderboard(studied)
    assert [s.method for s in board.rows] == ["best_single"]
    some = load_dataset(studied, "b", ["a", "b"])
    shared = conditions(studied, seeds=1)
    restricted = replace(shared, setup=replace(shared.setup, dataset=some), chose_models=True)
    STUDIES["pool-size"].run(restricted, [1])
    of = studied.rows("SELECT DISTINCT study FROM evaluations WHERE models = ['a', 'b']")
    assert of == [("pool-size",)]
    assert len(leaderboard(studied)) == 1


def test_settings_are_written_as_they_are_read() -> None:
    words = ["metrics=kappa+correlation", "branching=false", "window=50", "fusion_gamma=0.25"]
    words += ["fusion_hidden=8+4"]  # a tuple that is empty by default
    assert format_settings(parse("rl_focal", words)) == ",".join(sorted(words))
    assert parse("rl_focal", ["metrics=none", "fusion_hidden=8"]) == {"metrics": (), "fusion_hidden": (8,)}
    for words, message in (
        (["window"], "not NAME=VALUE"),
        (["windows=3"], "windows"),
        (["window=x"], "cannot be read"),
        (["branching=maybe"], "cannot be read"),
    ):
        with pytest.raises(InputError, match=message):
            parse("rl_focal", words)


@pytest.mark.slow
def test_the_command(study_template: Path, tmp_path: Path, cli: Cli) -> None:
    shutil.copytree(study_template, tmp_path / "own")
    place = ["-b", "b", "-w", str(tmp_path / "own"), "-o", str(tmp_path / "figures"), "--seeds", "1"]
    fast = [word for name in ("decider", "fusion") for word in ("--set", f"{name}_episodes=1")]
    swept = ("size-penalty", *place, *fast, "--values", "0,1")
    made = cli(*swept, "--json", main=main)
    assert made.code == 0
    assert [p["label"] for p in json.loads(made.out)["points"]] == ["α = 0", "α = 1", "best_single"]
    minidom.parse(str(tmp_path / "figures" / "size-penalty-b.svg"))
    again = cli(*(word for word in swept if word not in ("-o", place[5])), main=main)
    assert again.code == 0
    assert (tmp_path / "studies" / "size-penalty-b.svg").exists()  # beside the warehouse's report
    assert list(Path().glob("*.svg")) == []
    help_text = cli("--help", main=main).out
    assert all(name in help_text for name in STUDIES)
    for words, message in (
        (["discount", *place, "--method", "rl_focal_sequential"], "fusion_gamma"),
        (["size-penalty", *place, "--values", "much"], "cannot be read"),
        (["success", *place, "--values", "3"], "takes no values"),
        (["succes", *place], "unknown study 'succes'; did you mean 'success'"),
    ):
        refused = cli(*words, main=main)
        assert refused.code == 2
        assert message in refused.err


# The switch from one task to another, and its stream


def test_a_stream_turns_from_one_task_to_the_other(studied: Warehouse) -> None:
    data = load_dataset(studied, "b")
    turned = stream(data, "t", "s")
    assert turned.tasks.tolist() == ["t"] * 100 + ["s"] * 100
    assert turned.is_train.tolist() == [True] * 80 + [False] * 120
    assert np.array_equal(turned.labels[:100], data.labels[data.tasks == "t"])
    assert np.array_equal(turned.probs[100:], data.probs[data.tasks == "s"])


def test_the_tasks_furthest_apart_are_those_where_the_best_models_differ_most(studied: Warehouse) -> None:
    data = load_dataset(studied, "b")
    predictions = np.where(data.labels == 0, 1, 0)[:, None].repeat(4, axis=1)
    for task, model in (("s", 0), ("t", 3)):
        rows = data.tasks == task
        predictions[rows, model] = data.labels[rows]
    rows = (data.tasks == "t") & (data.doc_ids < 40)
    predictions[rows, 0] = data.labels[rows]
    # d is never right on s; a is right on half of t: turning to s costs more.
    assert furthest_apart(replace(data, predictions=predictions).train) == ("t", "s")


def test_no_stretch_lies_across_the_switch() -> None:
    for n_before, total in ((50, 300), (20, 120), (1, 2), (75, 80)):
        parts = stretches(n_before, total)
        assert [a for a, _ in parts] == [0, *(b for _, b in parts[:-1])]
        assert parts[-1][1] == total
        assert n_before in {a for a, _ in parts}
        assert max(b - a for a, b in parts) <= 75


def test_a_switch_shows_frozen_and_online_along_one_stream(studied: Warehouse) -> None:
    found = run(studied, "switch", "s", "t", seeds=1)
    shown: dict[str, list[Point]] = {}
    for p in found.points:
        shown.setdefault(p.series, []).append(p)
    assert set(shown) == {"frozen", "online", "best_single"}
    for points in shown.values():
        assert sum(p.n for p in points) == 120  # the test rows of s, all rows of t
        assert [(p.x or 0) < 0 for p in points] == [True, False, False]
    for protocol in ("frozen", "online"):
        runs = studied.rows(
            "SELECT avg(accuracy) FROM evaluations WHERE protocol = ? AND task = '*' AND method = 'rl_focal' "
            "AND (settings->'$.switch')::VARCHAR[] = ['s', 't']",
            [protocol],
        )
        weighted = sum(p.n * p.accuracy for p in shown[protocol]) / 120
        assert runs == [(pytest.approx(weighted),)]
    sizes = "SELECT protocol, avg(mean_pool_size) FROM evaluations WHERE task = '*' AND method = 'rl_focal'"
    asked = dict(studied.rows(f"{sizes} GROUP BY protocol"))
    assert asked["frozen"] != asked["online"]  # online, the Decider goes on trying teams
    with pytest.raises(InputError, match="'u'"):
        run(studied, "switch", "s", "u")
    with pytest.raises(InputError, match="two tasks"):
        run(studied, "switch", "s")
