"""Tuning: one search for all methods on folds of train alone, which ends the same however often it stops."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_rel
from support.datasets import make_dataset

from rlfocal.base.errors import InputError
from rlfocal.cli import main
from rlfocal.data.calls import Answered, Calls
from rlfocal.data.dataset import Dataset
from rlfocal.evaluation import evaluate
from rlfocal.evaluation.budgets import budget_curves
from rlfocal.evaluation.leaderboard import leaderboard
from rlfocal.evaluation.tuning import FOLDS, Search, Tuned, choose, holds_out_tasks, inner_folds, tune
from rlfocal.methods import entries, make_method, settable
from rlfocal.methods.spaces import Range
from rlfocal.report import write_report
from warehouse import Warehouse, open_warehouse


@dataclass
class Fits:
    """What was fitted so far, and the fit at which to stop."""

    rows: list[tuple[list[int], ...]] = field(default_factory=list)
    stop_at: int = -1


@dataclass(frozen=True)
class Leaning:
    """Asks the first `asks` models, and answers the choice that is nearest to `lean`."""

    lean: float = 0.0
    asks: int = 1
    fits: Fits = field(default_factory=Fits)
    seeded = False

    def recipe(self, n_train: int) -> str:
        return "1"

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[Leaning]:
        if len(self.fits.rows) == self.fits.stop_at:
            raise KeyboardInterrupt
        if self.lean > 2.5:
            raise InputError("cannot lean so far")
        self.fits.rows.append((train.doc_ids.tolist(), list(seeds)))
        return [self]

    def decide(self, calls: Calls) -> Answered:
        asked = np.arange(len(calls.models)) < self.asks
        calls.call(np.broadcast_to(asked, (len(calls), len(asked))))
        nearest = round(self.lean) if self.asks == 1 else 2
        return Answered(np.full(len(calls), nearest, dtype=np.int64))


SPACE = {"lean": Range(0.0, 3.0)}


def documents(T: int = 60, share: float = 0.9, seed: int = 0) -> Dataset:
    """Train rows whose label is mostly 1, sometimes 0."""
    rng = np.random.default_rng(seed)
    labels = (rng.random(T) < share).astype(np.int64)
    return make_dataset(np.full((T, 3, 4), 0.25), labels, n_train=T)


def searching(train: Dataset, fits: Fits | None = None, **about: Any) -> Search:
    kept = fits or Fits()
    about = {"space": SPACE} | about

    def make(settings: Mapping[str, Any]) -> Leaning:
        return Leaning(**settings, fits=kept)

    return Search("leaning", make, train=train, **about)


@given(
    tasks=st.lists(st.integers(0, 4), min_size=FOLDS, max_size=40),
    whole=st.booleans(),
    seed=st.integers(0, 9),
)
def test_every_train_document_is_held_out_once_and_tasks_are_spread_evenly(
    tasks: list[int], whole: bool, seed: int
) -> None:
    names = np.array([f"t{task}" for task in tasks])
    train = replace(documents(len(tasks), seed=seed), tasks=names)
    if whole and len(set(tasks)) < FOLDS:
        with pytest.raises(InputError, match=r"too few tasks \(\d\)"):
            inner_folds(train, whole_tasks=True)
        return
    held = np.array([~fold.is_train for fold in inner_folds(train, whole_tasks=whole)])
    assert (held.sum(axis=0) == 1).all()
    assert held.any(axis=1).all()
    for task in set(tasks):
        counts = held[:, names == f"t{task}"].sum(axis=1)
        assert counts.max() == counts.sum() if whole else counts.max() - counts.min() <= 1
    assert np.ptp(held.sum(axis=1)) <= 1 or whole


def test_all_methods_are_tried_on_the_same_folds() -> None:
    train, one, other = documents(), Fits(), Fits()
    searching(train, one).judge({})
    searching(train, other, space={"asks": (1, 2)}, fixed={"lean": 1.0}).judge({"asks": 2})
    assert one.rows == other.rows
    assert len(one.rows) == FOLDS
    assert {tuple(seeds) for _, seeds in one.rows} == {(0,)}


def test_folds_hold_out_tasks_where_test_rows_are_of_other_tasks() -> None:
    data = replace(documents(6), is_train=np.array([True, True, True, True, False, False]))
    for last, whole in ((["a", "b"], False), (["a", "z"], False), (["y", "z"], True)):
        assert holds_out_tasks(replace(data, tasks=np.array(["a", "b", "a", "b", *last]))) == whole


def test_test_rows_and_too_few_rows_are_refused() -> None:
    train = documents(6)
    with pytest.raises(InputError, match="train rows only"):
        inner_folds(replace(train, is_train=np.arange(6) > 0))
    with pytest.raises(InputError, match=r"too few train documents \(2\)"):
        inner_folds(documents(2))
    with pytest.raises(InputError, match="task 's' of 'made' has one train document"):
        inner_folds(replace(train, tasks=np.array([*"ttttts"])), "task")


def test_a_search_finds_the_better_setting(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    train, fits = documents(), Fits()
    with caplog.at_level(logging.WARNING):
        found = tune(searching(train, fits), 12, tmp_path)
    assert round(found.settings["lean"]) == 1
    assert found.settings["lean"] == float(f"{found.settings['lean']:.3g}")  # as tables show it
    assert found.accuracy == pytest.approx((train.labels == 1).mean())
    assert found.default == pytest.approx((train.labels == 0).mean())
    assert "cannot lean so far" in caplog.text  # such a trial loses, the search goes on
    assert found.trials == 12


def test_the_defaults_are_the_first_trial(tmp_path: Path) -> None:
    train, fits = documents(), Fits()
    share = float((train.labels == 0).mean())
    assert tune(searching(train, fits), 1, tmp_path) == Tuned({}, share, share, 1)
    assert len(fits.rows) == FOLDS


def test_accuracy_is_not_bought_by_more_calls(tmp_path: Path) -> None:
    train = replace(documents(), labels=np.full(60, 2))  # only who asks two models is right
    found = tune(searching(train, space={"asks": (1, 2), "lean": Range(0.0, 1.0)}), 10, tmp_path)
    assert found.settings == {}
    journal = searching(train, space={"asks": (1, 2), "lean": Range(0.0, 1.0)}).journal(tmp_path).read_text()
    assert '"calls":2.0' in journal.replace(" ", "")  # it was tried


@given(data=st.data(), T=st.integers(2, 30))
def test_the_default_stays_unless_another_is_better_by_a_standard_error(data: st.DataObject, T: int) -> None:
    hits = [data.draw(st.lists(st.sampled_from("01"), min_size=T, max_size=T)) for _ in range(3)]
    trials = [
        SimpleNamespace(
            number=at,
            value=np.mean([int(hit) for hit in of]),
            user_attrs={"right": "".join(of), "settings": {"k": at}, "calls": 1.0},
        )
        for at, of in enumerate(hits)
    ]
    found = choose(trials)
    numbers = np.array(hits).astype(int)
    best = int(numbers.sum(axis=1).argmax())
    gain = numbers[best] - numbers[0]
    if not gain.any():
        expected = False
    elif np.ptp(gain) == 0:
        expected = gain[0] > 0  # no error at all
    else:
        expected = ttest_rel(numbers[best], numbers[0]).statistic > 1 + 1e-12
        if abs(ttest_rel(numbers[best], numbers[0]).statistic - 1) < 1e-9:
            return
    assert found.settings == ({"k": best} if expected else {})
    assert found.default == pytest.approx(numbers[0].mean())
    assert found.accuracy == pytest.approx(numbers[best if expected else 0].mean())


def test_a_search_that_was_killed_ends_like_any_other(tmp_path: Path) -> None:
    train, trials = documents(), 14  # the first ten draw at random, later ones learn from them
    whole, parts = Fits(), Fits()
    once = tune(searching(train, whole), trials, tmp_path / "whole")
    for stop_at in (0, 2, 10, 34):  # in the defaults, and in the middle of later trials
        parts.stop_at = stop_at
        with pytest.raises(KeyboardInterrupt):
            tune(searching(train, parts), trials, tmp_path / "parts")
        with searching(train).journal(tmp_path / "parts").open("a") as journal:
            journal.write('{"op_code": 6, "wor')  # in the middle of a line
    parts.stop_at = -1
    assert tune(searching(train, parts), 13, tmp_path / "parts").trials == 13
    assert tune(searching(train, parts), trials, tmp_path / "parts") == once
    done = len(parts.rows)
    assert done < len(whole.rows) + 4 * FOLDS
    assert tune(searching(train, parts), trials, tmp_path / "parts") == once
    assert len(parts.rows) == done  # nothing was tried again
    tune(searching(train, parts), trials, tmp_path / "parts", force=True)
    assert len(parts.rows) == done + len(whole.rows)


def test_trials_of_other_rows_or_conditions_are_not_taken_over(tmp_path: Path) -> None:
    train = documents()
    other = replace(train, labels=1 - train.labels)
    about: list[dict[str, Any]] = [{}, {"per": "task"}, {"protocol": "online"}, {"whole_tasks": True}]
    about += [{"space": {"lean": Range(0.0, 2.0)}}, {"fixed": {"asks": 2}}]
    tasks = replace(train, tasks=np.array(["s", "t", "u"] * 20))
    journals = [searching(tasks, **one).journal(tmp_path) for one in about]
    journals += [searching(replace(other, tasks=tasks.tasks)).journal(tmp_path)]
    assert len(set(journals)) == len(journals)


def test_online_settings_are_judged_prequentially() -> None:
    """Labels turn to 3 in the middle of the stream; only who learns from them keeps up."""
    T = 90
    labels = np.where(np.arange(T) < 45, 0, 3)
    said = np.stack([np.zeros(T, dtype=int), np.full(T, 3)], axis=1)
    probs = np.where(np.arange(4) == said[:, :, None], 0.7, 0.1)
    train = make_dataset(probs, labels, n_train=T)

    def judged(protocol: str, window: int) -> float:
        search = Search(
            "sliding_best",
            lambda settings: replace(make_method("sliding_best"), **settings),  # type: ignore[type-var]
            {"window": Range(1, 100)},
            train,
            protocol=protocol,
        )
        return float(search.judge({"window": window}).is_right.mean())

    assert judged("frozen", 3) == pytest.approx(0.5)
    assert judged("online", 3) > judged("online", 60) + 0.1


def test_every_space_names_settings_whose_defaults_lie_inside() -> None:
    for name, entry in entries().items():
        method = (
            make_method(f"{name}:{entry.names[0]}" if entry.names and entry.needs_argument else name)
            if (entry.space)
            else None
        )
        for setting, where in entry.space.items():
            assert method is not None
            default = settable(method)[setting]
            assert default in where, f"{name}.{setting}: {default} is not in {where}"
            assert isinstance(
                default, int if isinstance(where, Range) and where.is_whole else int | float | str
            )
            if isinstance(where, Range):
                assert where.low < where.high
                assert where.low > 0 or not where.log
    tuned = {name for name, entry in entries().items() if entry.space}
    assert {"rl_focal", "rl_focal_sequential", "log_linear", "stacking", "knn", "des", "mf"} <= tuned
    assert not {"best_single", "plurality", "oracle"} & tuned


LIKELY = 0.7
"""Share of topics on which the first model is right; the second is right on the others."""


def put_topics(folder: Path, *, permuted: bool = False) -> Path:
    """40 topics, each in words of its own: 6 train and 2 test documents on each, where one model is right.

    Of 50 neighbours most are of other topics, so that the default of `knn` asks the first model always.
    `permuted`: the test labels change places.
    """
    rng = np.random.default_rng(3)
    topics = np.repeat(np.arange(40), 8)
    n = len(topics)
    labels = rng.integers(0, 3, n)
    splits = np.tile(["train"] * 6 + ["test"] * 2, 40)
    first_knows = (rng.random(40) < LIKELY)[topics]
    said = np.stack([np.where(k, labels, (labels + 1) % 3) for k in (first_knows, ~first_knows)], axis=1)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = [f"{letters[t % 26]}{letters[t // 26]}x " * 3 for t in range(40)]
    if permuted:
        labels[splits == "test"] = rng.permutation(labels[splits == "test"])
    keys = {"benchmark": ["b"] * n, "task": ["t"] * n, "doc_id": list(range(n))}
    with open_warehouse(folder) as warehouse, warehouse.transaction("fill"):
        about = {"label": pa.array(labels, pa.int32()), "split": splits.tolist()}
        text = {"question": [words[topic] for topic in topics], "choices": [["p", "q", "r"]] * n}
        warehouse.append("docs", pa.table(keys | about | text))
        warehouse.append("models", pa.table({"model": ["k", "m"]}))
        for model, of in zip(("k", "m"), said.T, strict=True):
            for choice in range(3):
                row = {
                    "model": [model] * n,
                    "choice": [choice] * n,
                    "logprob": np.where(of == choice, 0, -1.0),
                }
                warehouse.append("choice_logprobs", pa.table(keys | row))
    return folder


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Evaluated as they are, and tuned."""
    folder = put_topics(tmp_path_factory.mktemp("tuning") / "warehouse")
    with open_warehouse(folder) as warehouse:
        evaluate(warehouse, "b", methods=["knn", "best_single"])
        evaluate(warehouse, "b", methods=["knn", "best_single"], tune=8, budgets=["1"])
    return folder


@pytest.fixture
def opened(tuned: Path) -> Iterator[Warehouse]:
    with open_warehouse(tuned) as warehouse:
        yield warehouse


def settings_of(warehouse: Warehouse, **about: Any) -> Mapping[str, Any]:
    report = evaluate(warehouse, "b", methods=["knn"], **about)
    [row] = [row for row in report.rows if row.task == "*" and row.budget is None]
    return row.settings


def test_bad_defaults_do_better_on_test_once_they_are_tuned(opened: Warehouse) -> None:
    plain, better = leaderboard(opened)
    assert (plain.trials, better.trials) == (0, 8)
    before = next(s for s in plain.standings if s.method == "knn")
    after = next(s for s in better.standings if s.method == "knn")
    assert before.accuracy < 0.8
    assert after.accuracy > 0.95
    assert after.settings["k"] < 12
    assert after.mean_pool_size == before.mean_pool_size == 1
    assert after.chosen == f"k={after.settings['k']}"


def test_tuned_rows_stand_beside_those_with_nothing_to_tune_alone(opened: Warehouse) -> None:
    plain, better = leaderboard(opened)
    assert (
        {s.method for s in plain.standings} == {s.method for s in better.standings} == {"knn", "best_single"}
    )
    best = next(s for s in better.standings if s.method == "best_single")
    assert best.chosen == "no settings to tune"
    [(method, settings)] = opened.rows(
        "SELECT method, settings FROM current_evaluations "
        "WHERE task = '*' AND (settings->>'$.tuned') = '8' AND budget IS NULL"
    )
    assert method == "knn"
    assert json.loads(settings).keys() == {"k", "tuned"}
    assert opened.rows("SELECT count(*) FROM evaluations WHERE method = 'best_single' AND task = '*'") == [
        (1,)
    ]
    assert [curve.method for curve in budget_curves(opened, better)] == ["knn"]
    assert budget_curves(opened, plain) == ()


def test_tuned_runs_are_stored_once(opened: Warehouse) -> None:
    before = opened.snapshot()
    report = evaluate(opened, "b", methods=["knn", "best_single"], tune=8, budgets=["1"])
    assert report.ran == ()
    assert opened.snapshot() == before
    assert evaluate(opened, "b", methods=["knn"], tune=2).ran  # another search


def test_test_labels_choose_no_settings(opened: Warehouse, tmp_path: Path) -> None:
    with open_warehouse(put_topics(tmp_path / "other", permuted=True)) as other:
        assert other.rows("SELECT label FROM docs ORDER BY doc_id") != opened.rows(
            "SELECT label FROM docs ORDER BY doc_id"
        )
        assert settings_of(other, tune=8) == settings_of(opened, tune=8)


def test_given_settings_are_not_tuned_and_stay_off_the_leaderboard(opened: Warehouse) -> None:
    assert settings_of(opened, tune=2, settings=["knn.k=7"]) == {"k": "7"}
    assert {
        row.study for row in evaluate(opened, "b", methods=["knn"], tune=2, settings=["knn.k=7"]).rows
    } == {"settings"}


@pytest.mark.slow
def test_methods_are_tuned_side_by_side_as_one_after_the_other(opened: Warehouse, tmp_path: Path) -> None:
    names = ["knn", "log_linear"]
    seen: list[tuple[str, float]] = []
    with open_warehouse(put_topics(tmp_path / "other")) as other:
        report = evaluate(
            other,
            "b",
            methods=names,
            tune=8,
            at_once=2,
            on_progress=lambda title, share: seen.append((title, share)),
        )
        by_method = {row.method: row.settings for row in report.rows if row.task == "*"}
    assert by_method["knn"] == settings_of(opened, tune=8)
    assert by_method["log_linear"]["tuned"] == 8
    assert {("b knn tuning", 1 / 8), ("b log_linear tuning", 1.0)} <= set(seen)


def exit_code(monkeypatch: pytest.MonkeyPatch, *words: str) -> object:
    monkeypatch.setattr("sys.argv", ["rlfocal", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code or 0


@pytest.mark.slow
def test_the_terminal_and_the_report_say_what_is_tuned(
    tuned: Path,
    opened: Warehouse,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    words = ["evaluate", "-b", "b", "--methods", "knn,best_single", "--tune", "8", "-w", str(tuned), "--all"]
    assert exit_code(monkeypatch, *words) == 0
    shown = " ".join(capsys.readouterr().out.split())
    k = settings_of(opened, tune=8)["k"]
    assert "settings tuned by 8 trials on folds of train" in shown
    assert f"Chosen: knn k={k}. No settings to tune: best_single." in shown
    assert "default settings" not in shown
    page = write_report(opened, tmp_path / "report.html").read_text()
    assert f'<td class="members">k={k}</td>' in page
    assert "default settings" in page
    assert '<td class="members">no settings to tune</td>' in page


def test_what_cannot_be_tuned_ends_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = put_topics(tmp_path / "w")
    with open_warehouse(folder) as warehouse, pytest.raises(InputError, match="at least 0, got -1"):
        evaluate(warehouse, "b", methods=["knn"], tune=-1)
    with open_warehouse(folder) as warehouse, warehouse.transaction("fewer"):
        warehouse.connection.execute("UPDATE docs SET split = 'test' WHERE doc_id > 1")
    words = ["evaluate", "-b", "b", "--methods", "knn", "--tune", "2", "-w", str(folder)]
    assert exit_code(monkeypatch, *words) == 2
    assert "too few train documents (2)" in capsys.readouterr().err
