"""The study pool-scale: repeated models are the same under other names, and time is measured."""

from __future__ import annotations

import numpy as np
import pytest
from support.studies import conditions

from benchmarks.results.scale import POOL_SCALE, repeat_models
from rlfocal.data.loading import load_dataset
from rlfocal.data.policy import decide
from rlfocal.methods import make_method
from warehouse import Warehouse


def test_models_are_repeated_under_names_of_their_own(studied: Warehouse) -> None:
    data = load_dataset(studied, "b")
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


@pytest.mark.slow
def test_pool_scale_measures_time(studied: Warehouse) -> None:
    found = POOL_SCALE.run(conditions(studied, seeds=1), (2, 6))
    ours = [p for p in found.points if p.series == "RL-Focal"]
    assert [p.x for p in ours] == [2.0, 6.0]
    assert all(p.seconds is not None and p.seconds > 0 for p in ours)
    models = studied.rows(
        "SELECT DISTINCT models FROM evaluations WHERE method = 'rl_focal' ORDER BY len(models) DESC LIMIT 1"
    )
    assert models == [(["a", "a#2", "b", "b#2", "c", "d"],)]
