"""The study of a switch from one task to another, and its stream."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.studies import run

from rlfocal.base.errors import InputError
from rlfocal.data.loading import load_dataset
from rlfocal.evaluation.studies import Point
from rlfocal.evaluation.studies.switch import furthest_apart, stream, stretches
from warehouse import Warehouse


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
