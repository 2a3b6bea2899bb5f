"""What a new model's first answers, errors and pools say about it: by hand, against oracles, on real data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest
from scipy.stats import t as student
from statsmodels.stats.proportion import proportion_confint
from support.rows import put_choices

from rlfocal.data.dataset import Dataset
from rlfocal.data.loading import load_dataset
from rlfocal.evaluation.notes import note_graded, note_guessing
from rlfocal.exchange.imports.predictions import import_predictions
from rlfocal.new_model.model_record import (
    CommonErrors,
    ErrorCorrelation,
    PairedAnswers,
    count_common_errors,
    most_like,
)
from warehouse import Warehouse, open_warehouse

# Copies


def found_like(errors: Mapping[tuple[str, str], CommonErrors], model: str = "m") -> ErrorCorrelation:
    found = most_like(model, errors)
    assert found is not None
    return found


def test_the_limit_by_hand() -> None:
    shares = dict(zip(combinations("abcd", 2), (40, 42, 44, 46, 48, 50), strict=True))
    pairs = {pair: CommonErrors(100, same) for pair, same in shares.items()} | {
        ("a", "e"): CommonErrors(10, 9)
    }
    found = found_like(pairs | {("a", "m"): CommonErrors(200, 190), ("b", "m"): CommonErrors(3, 3)})
    odds = [math.log((same + 0.5) / (100 - same + 0.5)) for same in shares.values()]  # too few of (a, e)
    reach = student.ppf(0.999, 5) * np.std(odds, ddof=1) * math.sqrt(1 + 1 / 6)
    assert found.n_pairs == 6
    assert found.limit == pytest.approx(1 / (1 + math.exp(-np.mean(odds) - reach)))
    assert found.limit < 0.9
    assert found.model == "a"  # three alike of three are less sure
    low, _ = proportion_confint(190, 200, alpha=0.001, method="wilson")
    assert found.low == pytest.approx(low)
    assert found.is_copy
    assert not found_like(pairs | {("a", "m"): CommonErrors(200, 110)}).is_copy
    wide = {pair: CommonErrors(100, same) for pair, same in zip(shares, (5, 95, 5, 95, 5, 95), strict=True)}
    assert found_like(wide | {("a", "m"): CommonErrors(200, 190)}).limit == 0.8
    few = found_like({("a", "m"): CommonErrors(200, 199)})
    assert (few.limit, few.n_pairs, few.is_copy) == (0.8, 0, True)
    assert most_like("m", {("a", "m"): CommonErrors(0, 0)}) is None


def test_errors_in_common_by_hand() -> None:
    said = np.array([[0, 0], [1, 1], [1, 2], [-1, -1], [2, 0], [1, 1]])
    whole = PairedAnswers(("b", "a"), said, np.array([0, 0, 0, 0, 0, -1]), np.ones(6, dtype=np.bool_))
    # Both wrong: 1, 2, 3 and 5. The same: 1 and 5; saying nothing is not the same.
    assert count_common_errors([whole]) == {("a", "b"): CommonErrors(4, 2)}
    assert count_common_errors([whole, whole]) == {("a", "b"): CommonErrors(8, 4)}
    two_choices = replace(whole, has_several_wrong=np.array([True, False, True, True, True, True]))
    assert count_common_errors([two_choices]) == {("a", "b"): CommonErrors(3, 1)}


def with_copy(data: Dataset, model: str, sigma: float) -> PairedAnswers:
    """With one more model, `~copy`: the log-probs of `model` with normal noise."""
    own = data.logprobs[:, data.models.index(model)]
    copy = (own + np.random.default_rng(0).normal(0, sigma, own.shape)).argmax(axis=1)
    said = PairedAnswers.from_dataset(data)
    return replace(
        said, models=(*said.models, "~copy"), predictions=np.column_stack([said.predictions, copy])
    )


@pytest.mark.slow
def test_real_models_are_not_mistaken_for_copies(real_warehouse: Path) -> None:
    with open_warehouse(real_warehouse, read_only=True) as warehouse:
        of_name = {name: load_dataset(warehouse, name) for name in ("mmlu", "bbh", "gsm8k")}
    for name, data in of_name.items():
        errors = count_common_errors([PairedAnswers.from_dataset(data)])
        alarms = [m for m in data.models if (f := most_like(m, errors)) is not None and f.is_copy]
        assert alarms == [], name
    data = of_name["mmlu"]
    for model in data.models[::5]:
        found = found_like(count_common_errors([with_copy(data, model, 0.05)]), "~copy")
        assert (found.model, found.is_copy) == (model, True)


def test_a_model_near_guessing_is_told(warehouse: Warehouse) -> None:
    for name, right in (("guesses", [True, False] * 50), ("knows", [True] * 100)):
        put_choices(warehouse, {"m": right}, benchmark=name)
    assert "m, is right on" in (note_guessing(warehouse, "guesses", ["m"]) or "")
    assert note_guessing(warehouse, "knows", ["m"]) is None


def test_answers_that_are_only_graded_are_told(tmp_path: Path) -> None:
    rows = [(doc, model, doc % 3 != at) for doc in range(6) for at, model in enumerate("ab")]
    frame = pd.DataFrame(
        {"doc_id": doc, "model": model, "gold": f"{doc}", "answer": f"{doc}" if right else "wrong"}
        for doc, model, right in rows
    )
    with open_warehouse(tmp_path / "w") as warehouse:
        import_predictions(warehouse, frame, benchmark="graded")
        worded = frame.assign(answer=frame.answer.where(frame.answer != "wrong", frame.model))
        import_predictions(warehouse, worded, benchmark="told")
        assert "only graded" in (note_graded(warehouse, "graded", ["a", "b"]) or "")
        assert note_graded(warehouse, "told", ["a", "b"]) is None
