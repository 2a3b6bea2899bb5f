"""Tuning: one search for all methods on folds of train alone, which ends the same however often it stops."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_rel
from support.datasets import make_dataset

from rlfocal.base.errors import InputError
from rlfocal.data.calls import Answers, Calls
from rlfocal.data.dataset import Dataset
from rlfocal.evaluation.tuning import (
    TUNING_FOLDS,
    Search,
    TunedSettings,
    choose,
    holds_out_tasks,
    inner_folds,
    tune,
)
from rlfocal.methods import entries, list_settings, make_method
from rlfocal.methods.checking import Range


@dataclass
class Fits:
    """What was fitted so far, and the fit at which to stop."""

    rows: list[tuple[list[int], ...]] = field(default_factory=list)
    stop_at: int = -1


@dataclass(frozen=True)
class LeaningMethod:
    """Asks the first `asks` models, and answers the choice that is nearest to `lean`."""

    lean: float = 0.0
    asks: int = 1
    fits: Fits = field(default_factory=Fits)
    seeded = False

    def recipe(self, n_train: int) -> str:
        return "1"

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[LeaningMethod]:
        if len(self.fits.rows) == self.fits.stop_at:
            raise KeyboardInterrupt
        if self.lean > 2.5:
            raise InputError("cannot lean so far")
        self.fits.rows.append((train.doc_ids.tolist(), list(seeds)))
        return [self]

    def decide(self, calls: Calls) -> Answers:
        asked = np.arange(len(calls.models)) < self.asks
        calls.call(np.broadcast_to(asked, (len(calls), len(asked))))
        nearest = round(self.lean) if self.asks == 1 else 2
        return Answers(np.full(len(calls), nearest, dtype=np.int64))


SPACE = {"lean": Range(0.0, 3.0)}


def documents(T: int = 60, share: float = 0.9, seed: int = 0) -> Dataset:
    """Train rows whose label is mostly 1, sometimes 0."""
    rng = np.random.default_rng(seed)
    labels = (rng.random(T) < share).astype(np.int64)
    return make_dataset(np.full((T, 3, 4), 0.25), labels, n_train=T)


def searching(train: Dataset, fits: Fits | None = None, **about: Any) -> Search:
    kept = fits or Fits()
    about = {"space": SPACE} | about

    def make(settings: Mapping[str, Any]) -> LeaningMethod:
        return LeaningMethod(**settings, fits=kept)

    return Search("leaning", make, train=train, **about)


@given(
    tasks=st.lists(st.integers(0, 4), min_size=TUNING_FOLDS, max_size=40),
    whole=st.booleans(),
    seed=st.integers(0, 9),
)
def test_every_train_document_is_held_out_once_and_tasks_are_spread_evenly(
    tasks: list[int], whole: bool, seed: int
) -> None:
    names = np.array([f"t{task}" for task in tasks])
    train = replace(documents(len(tasks), seed=seed), tasks=names)
    if whole and len(set(tasks)) < TUNING_FOLDS:
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
    searching(train, other, space={"asks": (1, 2)}, fixed_settings={"lean": 1.0}).judge({"asks": 2})
    assert one.rows == other.rows
    assert len(one.rows) == TUNING_FOLDS
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
    assert tune(searching(train, fits), 1, tmp_path) == TunedSettings({}, share, share, 1)
    assert len(fits.rows) == TUNING_FOLDS


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
    assert done < len(whole.rows) + 4 * TUNING_FOLDS
    assert tune(searching(train, parts), trials, tmp_path / "parts") == once
    assert len(parts.rows) == done  # nothing was tried again
    tune(searching(train, parts), trials, tmp_path / "parts", force=True)
    assert len(parts.rows) == done + len(whole.rows)


def test_a_damaged_journal_is_named(tmp_path: Path) -> None:
    search = searching(documents())
    tune(search, 1, tmp_path)
    journal = search.journal(tmp_path)
    whole = journal.read_text()
    for damaged in (whole.replace(":", ";", 1), whole.replace('"op_code"', '"op-code"', 1), "\xff" + whole):
        journal.write_text(damaged, encoding="latin-1")
        with pytest.raises(InputError, match=r"journal is damaged .*; delete it, and the search starts"):
            tune(search, 1, tmp_path)


def test_trials_of_other_rows_or_conditions_are_not_taken_over(tmp_path: Path) -> None:
    train = documents()
    other = replace(train, labels=1 - train.labels)
    about: list[dict[str, Any]] = [{}, {"per": "task"}, {"protocol": "online"}, {"whole_tasks": True}]
    about += [{"space": {"lean": Range(0.0, 2.0)}}, {"fixed_settings": {"asks": 2}}]
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
        if not entry.space:
            continue
        argument = f":{entry.names[0]}" if entry.names and entry.needs_argument else ""
        defaults = list_settings(make_method(name + argument))
        for setting, where in entry.space.items():
            default = defaults[setting]
            assert default in where, f"{name}.{setting}: {default} is not in {where}"
            kind = int if isinstance(where, Range) and where.is_whole else int | float | str
            assert isinstance(default, kind)
            if isinstance(where, Range):
                assert where.low < where.high
                assert where.low > 0 or not where.log
    tuned = {name for name, entry in entries().items() if entry.space}
    assert {"rl_focal", "rl_focal_sequential", "log_linear", "stacking", "knn", "des", "mf"} <= tuned
    assert not {"best_single", "plurality", "oracle"} & tuned
