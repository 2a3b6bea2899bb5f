"""What a new model's first answers, errors and pools say about it: by hand, against oracles, on real data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest
from scipy.stats import t as student
from statsmodels.stats.proportion import proportion_confint
from support.rows import put_choices

from rlfocal.evaluation.notes import note_graded, note_guessing
from rlfocal.exchange.imports.predictions import import_predictions
from rlfocal.new_model.copies import (
    Errors,
    Likeness,
    PairedAnswers,
    count_common_errors,
    most_like,
    read_paired_answers,
)
from rlfocal.new_model.standing import (
    BestPools,
    Pool,
    Tried,
    best_pools,
    every_pool_of,
)
from rlfocal.statistics.intervals import Difference
from warehouse import Warehouse, open_warehouse

LAB = ("lab-mmlu", "lab-bbh", "lab-musr", "lab-gpqa", "lab-gsm8k")


# Copies


def found_like(errors: Mapping[tuple[str, str], Errors], model: str = "m") -> Likeness:
    found = most_like(model, errors)
    assert found is not None
    return found


def test_the_limit_by_hand() -> None:
    shares = dict(zip(combinations("abcd", 2), (40, 42, 44, 46, 48, 50), strict=True))
    pairs = {pair: Errors(100, same) for pair, same in shares.items()} | {("a", "e"): Errors(10, 9)}
    found = found_like(pairs | {("a", "m"): Errors(200, 190), ("b", "m"): Errors(3, 3)})
    odds = [math.log((same + 0.5) / (100 - same + 0.5)) for same in shares.values()]  # too few of (a, e)
    reach = student.ppf(0.999, 5) * np.std(odds, ddof=1) * math.sqrt(1 + 1 / 6)
    assert found.n_pairs == 6
    assert found.limit == pytest.approx(1 / (1 + math.exp(-np.mean(odds) - reach)))
    assert found.limit < 0.9
    assert found.model == "a"  # three alike of three are less sure
    low, _ = proportion_confint(190, 200, alpha=0.001, method="wilson")
    assert found.low == pytest.approx(low)
    assert found.is_copy
    assert not found_like(pairs | {("a", "m"): Errors(200, 110)}).is_copy
    wide = {pair: Errors(100, same) for pair, same in zip(shares, (5, 95, 5, 95, 5, 95), strict=True)}
    assert found_like(wide | {("a", "m"): Errors(200, 190)}).limit == 0.8
    few = found_like({("a", "m"): Errors(200, 199)})
    assert (few.limit, few.n_pairs, few.is_copy) == (0.8, 0, True)
    assert most_like("m", {("a", "m"): Errors(0, 0)}) is None


def beside(predictions: Any, labels: Any, model: str = "a", **given: Any) -> PairedAnswers:
    said = np.array(predictions, dtype=np.int64)
    T, N = said.shape
    whole: dict[str, Any] = {
        "benchmark": "b",
        "kind": "choices",
        "model": model,
        "models": tuple("abcdefgh"[:N]),
        "tasks": np.full(T, "t"),
        "is_train": np.ones(T, dtype=np.bool_),
        "predictions": said,
        "labels": np.array(labels, dtype=np.int64),
        "has_several_wrong": np.ones(T, dtype=np.bool_),
    }
    return PairedAnswers(**whole | given)


def test_errors_in_common_by_hand() -> None:
    said = [[0, 0], [1, 1], [1, 2], [-1, -1], [2, 0], [1, 1]]
    labels = [0, 0, 0, 0, 0, -1]
    whole = beside(said, labels)
    # Both wrong: 1, 2, 3 and 5. The same: 1 and 5; saying nothing is not the same.
    assert count_common_errors([whole]) == {("a", "b"): Errors(4, 2)}
    assert count_common_errors([whole, whole]) == {("a", "b"): Errors(8, 4)}
    two_choices = replace(whole, has_several_wrong=np.array([True, False, True, True, True, True]))
    assert count_common_errors([two_choices]) == {("a", "b"): Errors(3, 1)}


@pytest.fixture(scope="module")
def lab(lab_warehouse: Path) -> list[PairedAnswers]:
    with open_warehouse(lab_warehouse, read_only=True) as warehouse:
        return read(warehouse, LAB)


def read(warehouse: Warehouse, benchmarks: Sequence[str]) -> list[PairedAnswers]:
    found = []
    for name in benchmarks:
        of = "SELECT DISTINCT model FROM outcomes WHERE benchmark = ? ORDER BY 1"
        models = [m for (m,) in warehouse.rows(of, [name])]
        said = read_paired_answers(warehouse, name, models[0], models)
        assert said is not None
        found.append(said)
    return found


def noised(warehouse: Warehouse, said: PairedAnswers, model: str, sigma: float) -> PairedAnswers:
    """With one more model, `~copy`: the log-probs of `model` with normal noise."""
    rows = warehouse.rows(
        "SELECT list(logprob ORDER BY choice) FROM choice_logprobs WHERE benchmark = ? AND model = ? "
        "GROUP BY task, doc_id ORDER BY task, doc_id",
        [said.benchmark, model],
    )
    rng = np.random.default_rng(0)
    copy = [int(np.argmax(np.array(row) + rng.normal(0, sigma, len(row)))) for (row,) in rows]
    predictions = np.column_stack([said.predictions, copy])
    return replace(said, model="~copy", models=(*said.models, "~copy"), predictions=predictions)


@pytest.mark.slow
def test_real_models_are_not_mistaken_for_copies(real_warehouse: Path) -> None:
    with open_warehouse(real_warehouse, read_only=True) as warehouse:
        for name in ("mmlu", "bbh", "gsm8k"):
            [said] = read(warehouse, [name])
            errors = count_common_errors([said])
            alarms = [m for m in said.models if (f := most_like(m, errors)) is not None and f.is_copy]
            assert alarms == [], name
        [said] = read(warehouse, ["mmlu"])
        for model in said.models[::5]:
            found = found_like(count_common_errors([noised(warehouse, said, model, 0.05)]), "~copy")
            assert (found.model, found.is_copy) == (model, True)


# Pools


@pytest.mark.parametrize("benchmark", ["lab-gpqa", "lab-gsm8k"])
@pytest.mark.slow
def test_best_pools_are_those_of_sql(lab: list[PairedAnswers], lab_warehouse: Path, benchmark: str) -> None:
    [said] = [replace(one, model="lab-phi") for one in lab if one.benchmark == benchmark]
    pools = tried(said)
    with open_warehouse(lab_warehouse, read_only=True) as warehouse:
        every = warehouse.rows(
            "SELECT models, size, plurality_accuracy FROM all_pools(?, 4, split := 'train')", [benchmark]
        )
        test = "SELECT plurality_accuracy FROM pool_diversity(?, ?, split := 'test')"
        for best in best_pools(pools)[1:4]:
            for has_it, pool in ((True, best.with_it), (False, best.without)):
                assert pool is not None
                ranked = [
                    (-accuracy, sorted(m))
                    for m, size, accuracy in every
                    if size == best.size and ("lab-phi" in m) == has_it
                ]
                accuracy, models = min(ranked)
                assert pool.train == pytest.approx(-accuracy, abs=1e-12)
                assert list(pool.models) == models  # of equals the alphabetically first
                assert warehouse.rows(test, [benchmark, models]) == [(pytest.approx(pool.test, abs=1e-12),)]


def tried(said: PairedAnswers) -> Tried:
    found = every_pool_of(said)
    assert found is not None
    return found


def best(low: float | None, *, train: float = 0.6) -> BestPools:
    gain = None if low is None else Difference(mean=low + 0.1, low=low, high=low + 0.2, p_value=0.5)
    return BestPools(2, Pool(("a", "b"), 0.5, 0.5), Pool(("a", "new"), train, 0.5), gain)


@pytest.mark.parametrize(
    ("found", "gains"),
    [(best(0.01), True), (best(0.0), False), (best(None), False), (best(0.1, train=0.5), False)],
)
def test_a_pool_gains_where_the_interval_excludes_0(found: BestPools, gains: bool) -> None:
    assert found.gains is gains


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


def test_nothing_to_compare_with() -> None:
    alone = beside([[0], [1]], [0, 0])
    [best] = best_pools(tried(alone))
    assert (best.size, best.without, best.gain, best.enters) == (1, None, None, True)
    assert every_pool_of(replace(alone, is_train=np.zeros(2, dtype=np.bool_))) is None
