"""The paper's tables, with its figures and ours, and its study of large pools of repeated models."""

from __future__ import annotations

import numpy as np
import pytest
from support.rows import put_choices, put_extractions
from support.studies import conditions

from benchmarks.results.paper import paper_parts
from benchmarks.studies import STUDIES
from benchmarks.studies.scale import repeat_models
from benchmarks.studies.study import StudyFindings, point, save
from rlfocal.data.loading import load_dataset
from rlfocal.data.policy import decide
from rlfocal.evaluation import evaluate
from rlfocal.methods import make_method
from warehouse import Warehouse


def test_ours_stand_beside_theirs(warehouse: Warehouse) -> None:
    says = {"Phi-2b": [True, True, True, False], "Gemma-2b": [False, True, True, True]}
    put_choices(warehouse, says, benchmark="mmlu")
    put_choices(warehouse, {"Llama-2-70b": [False] * 4, "Llama-2-70b-chat": [True] * 4}, benchmark="bbh")
    put_extractions(warehouse)
    evaluate(warehouse, "mmlu", methods=["best_single", "plurality"], seeds=1)
    evaluate(warehouse, "bbh", methods=["best_single", "plurality"], seeds=1)
    first, *_ = paper_parts(warehouse)
    by_label = {row.label: {cell.column: cell for cell in row.cells} for row in first.rows}
    assert by_label["Phi-2b"]["mmlu"].theirs == 55.82
    assert by_label["Phi-2b"]["mmlu"].ours == 50
    assert by_label["Gemma-2b"]["mmlu"].ours == 100
    assert by_label["RL-Focal"]["mmlu"].ours is None
    assert by_label["Llama-2-70b"]["bbh"].ours == 100, "of the chat model, as theirs"
    assert by_label["Gemma-2b"]["gsm8k"].theirs is None


def test_ours_of_a_figure_come_from_its_study(warehouse: Warehouse) -> None:
    points = tuple(
        point("RL-Focal", f"{n} models", float(n), 100, [0.5 + n / 1000], mean_pool_size=2.0, seconds=n / 2)
        for n in (8, 16)
    )
    about = ("pool-scale", "How many?", "models", "gsm8k", "rl_focal", "benchmark", ("a",), "")
    found = StudyFindings(*about, points, beside="seconds")
    save(found, warehouse.location.studies)
    [part] = [part for part in paper_parts(warehouse) if part.name == "figure-6"]
    ours = {row.label: [cell.ours for cell in row.cells] for row in part.rows}
    assert ours["8 models"] == pytest.approx([50.8, 4.0])
    assert ours["16 models"] == pytest.approx([51.6, 8.0])
    assert ours["24 models"] == [None, None]


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
    found = STUDIES["pool-scale"].run(conditions(studied, seeds=1), (2, 6))
    ours = [p for p in found.points if p.series == "RL-Focal"]
    assert [p.x for p in ours] == [2.0, 6.0]
    assert all(p.seconds is not None and p.seconds > 0 for p in ours)
    models = studied.rows(
        "SELECT DISTINCT models FROM evaluations WHERE method = 'rl_focal' ORDER BY len(models) DESC LIMIT 1"
    )
    assert models == [(["a", "a#2", "b", "b#2", "c", "d"],)]
