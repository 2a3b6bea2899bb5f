"""What a diversity metric adds to choosing a team: a constructed case in which it must win, and the study."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.cli import Cli
from support.datasets import make_dataset
from support.studies import run

from benchmarks.studies.__main__ import main
from benchmarks.studies.choosing import (
    MAX_TEAMS,
    _fit_weights,
    candidate_teams,
    log_linear_hits,
    vote_hits,
)
from benchmarks.studies.diversity import (
    HINDSIGHT,
    WITHOUT,
    Candidates,
    compare,
    cut,
    draw_benchmark_occasions,
    draw_task_occasions,
)
from benchmarks.studies.diversity import _stack_occasions as stacked
from benchmarks.studies.study import Point
from rlfocal.base.errors import InputError
from rlfocal.data.dataset import Dataset
from rlfocal.methods.log_linear import fit_log_linear
from rlfocal.statistics import metrics
from rlfocal.statistics.votes import plurality
from warehouse import Warehouse

TEAMS = np.array([[1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1]], dtype=bool)
TASKS = 24


def _two_teams() -> Dataset:
    """Six models of one accuracy, 60 %. In each task one team of three fails together, the other does not."""
    rng = np.random.default_rng(1)
    tasks = np.repeat(np.arange(TASKS), 140)
    labels = rng.integers(0, 4, len(tasks))
    together = np.where((tasks % 2 == 0)[:, None], TEAMS[0], TEAMS[1])
    shared, own = rng.random((2, len(tasks), 6))
    shared[:] = shared[:, :1]
    follows = together & (rng.random(together.shape) < 0.85)
    right = np.where(follows, shared, own) < 0.6
    wrong = (labels[:, None] + rng.integers(1, 4, right.shape)) % 4
    predictions = np.where(right, labels[:, None], wrong)
    probs = np.where(np.arange(4) == predictions[:, :, None], 0.7, 0.1)
    made = make_dataset(probs, labels, 1)
    return replace(made, tasks=tasks.astype(str), is_train=np.arange(len(tasks)) % 140 < 40)


def _found(n: int = 10) -> dict[str, Point]:
    data = _two_teams()
    candidates = Candidates(data, TEAMS, vote_hits(data, TEAMS))
    learned, asked = (stacked(draw_task_occasions(candidates, is_train, n)) for is_train in (True, False))
    return {p.series: p for p in compare("", float(n), candidates, learned, asked)}


def test_focal_diversity_tells_equal_teams_apart_from_few_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    found = _found()
    room = found[HINDSIGHT].gain
    for name in ("focal_diversity", "disagreement", "correlation"):
        mean, low, _ = found[name].gain or (0.0, 0.0, 0.0)
        assert low > 0, name
        assert room is not None
        assert mean > 0.4 * room[0], name  # chosen clearly more often
    noise = found["noise"].gain
    assert noise is not None
    assert noise[1] < 0.003
    # A metric that is always 0 must not pass.
    zero = {name: (lambda counts: 0.0 * counts.size) for name in metrics.METRICS}
    for name in ("focal_diversity", "disagreement", "correlation"):
        monkeypatch.setitem(metrics.METRICS, name, zero[name])
    without = _found()
    assert without["focal_diversity"].gain == (0.0, 0.0, 0.0)
    assert without[WITHOUT].accuracy == found[WITHOUT].accuracy


def test_no_test_label_reaches_a_choice() -> None:
    data = _two_teams()
    flipped = replace(data, labels=np.where(data.is_train, data.labels, 0))
    for way in (draw_benchmark_occasions, draw_task_occasions):
        one, other = (
            [
                stacked(way(Candidates(d, TEAMS, vote_hits(d, TEAMS)), is_train, 20))
                for is_train in (True, False)
            ]
            for d in (data, flipped)
        )
        assert np.array_equal(one[0].features, other[0].features, equal_nan=True)
        assert np.array_equal(one[0].accuracies, other[0].accuracies)
        assert np.array_equal(one[1].features, other[1].features, equal_nan=True)
        assert not np.array_equal(one[1].accuracies, other[1].accuracies)


def test_votes_and_log_linear_pools_are_those_of_the_methods() -> None:
    data = _two_teams()
    votes, pools = vote_hits(data, TEAMS), log_linear_hits(data, TEAMS)
    for at, team in enumerate(TEAMS):
        right = data.is_right(plurality(data.predictions, team, data.kind))
        assert np.array_equal(votes[:, at], right)
        assert pools[~data.is_train, at].mean() == pytest.approx(right[~data.is_train].mean(), abs=0.03)
    train = data.train
    x = train.logprobs[:, TEAMS[0]]
    weights = _fit_weights(x, np.zeros((len(train), 4)), train.labels)
    assert weights == pytest.approx(fit_log_linear(train, TEAMS[0]).weights, abs=0.1)


def test_candidates_are_all_teams_or_a_draw_of_each_size() -> None:
    assert len(candidate_teams(3)) == 4
    assert len(candidate_teams(5)) == 25
    drawn = candidate_teams(16)
    assert len(drawn) == MAX_TEAMS
    assert np.unique(drawn.sum(axis=1), return_counts=True)[1].tolist() == [100, 100, 100]
    assert len(np.unique(drawn, axis=0)) == MAX_TEAMS


def test_pieces_stand_for_tasks_where_there_are_few(studied: Warehouse) -> None:
    found = run(studied, "diversity", 10)
    assert "10 pieces of consecutive test documents" in found.notes[1]
    assert {p.label for p in found.points} == {
        f"{way}; {fusion}"
        for fusion in ("vote", "log-linear")
        for way in ("any tasks' labels, 10", "another task's labels")
    }
    compared = [p for p in found.points if p.p_value is not None]
    assert len(compared) == 4 * len(metrics.METRICS)
    assert all(p.gain is not None and p.gain[1] <= p.gain[0] <= p.gain[2] for p in compared)
    data = _two_teams()
    assert cut(data) is data
    with pytest.raises(InputError, match="2 or more"):
        run(studied, "diversity", 1)


def test_the_command_refuses_what_it_does_not_use(study_template: Path, cli: Cli) -> None:
    words = ("diversity", "-b", "b", "-w", str(study_template), "--values", "10")
    for more in (("--method", "rl_focal"), ("--set", "epochs=3")):
        refused = cli(*words, *more, main=main)
        assert refused.code == 2
        assert "fits no method" in refused.err


def test_the_command_prints_a_row_for_each_choice(study_template: Path, tmp_path: Path, cli: Cli) -> None:
    shutil.copytree(study_template, tmp_path / "own")
    words = ("diversity", "-b", "b", "-w", str(tmp_path / "own"), "--values", "10")
    made = cli(*words, "-o", str(tmp_path), main=main)
    assert made.code == 0, made.err
    assert "any tasks'" in made.out
    assert "corrected by Holm's method" in " ".join(made.out.split())
    assert (tmp_path / "diversity-b.svg").exists()
    points = json.loads(cli(*words, "-o", str(tmp_path), "--json", main=main).out)["points"]
    assert {p["series"] for p in points} == {WITHOUT, *metrics.METRICS, "noise", HINDSIGHT}
