"""What the statistics must also stand: literal oracles, wide pools, all kinds of ties, blocks."""

from __future__ import annotations

import math
from collections import Counter
from importlib import import_module
from itertools import combinations

import duckdb
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.metrics import brier_score_loss
from support.pool_oracles import FEW, METRICS, Answers, answers, column, fill, insert, pool_oracle, same

import rlfocal
from benchmarks.speed.diversity import focal_diversity_of_pool
from rlfocal.base.errors import InputError
from rlfocal.data.dataset import Kind
from rlfocal.statistics import diversity, votes
from rlfocal.statistics.calibration import brier_score, reliability
from rlfocal.statistics.votes import plurality, soft_vote
from warehouse import Warehouse


def whole(kind: Kind, predictions: np.ndarray, labels: np.ndarray) -> Answers:
    return Answers(kind, predictions, labels, np.ones(predictions.shape, bool))


def constant(code: int, label: int) -> Answers:
    """Two models that always say the same, over three documents."""
    return whole("choices", np.full((3, 2), code), np.full(3, label))


@FEW
@given(data=answers(gaps=False), window=st.integers(1, 16), block=st.integers(1, 200))
def test_every_pool_at_every_document(data: Answers, window: int, block: int) -> None:
    """Blocks of any length give what each pool gives alone."""
    n_models = data.predictions.shape[1]
    pools = diversity.every_pool(n_models, n_models)
    if not len(pools):
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(votes, "_BLOCK_ENTRIES", block * 8)
        blocks = list(diversity.focal_diversity_over_time(data.correct, pools, window))
    assert [t for at, _ in blocks for t in range(len(data.labels))[at]] == list(range(len(data.labels)))
    found = np.vstack([values for _, values in blocks])
    assert found.shape == (len(data.labels), len(pools))
    for i, pool in enumerate(pools):
        alone = diversity.pool_diversity_over_time(
            data.predictions, data.labels, pool, window, kind=data.kind
        )
        same(found[:, i], alone.focal_diversity)
        for t in range(len(data.labels)):
            same(found[t, i], focal_diversity_of_pool(data.correct[max(0, t - window) : t, pool]))


@settings(FEW, max_examples=60)
@given(data=answers(gaps=False), block=st.integers(1, 64))
@example(data=constant(0, 0), block=1)
@example(data=constant(0, 1), block=1)
@example(data=whole("answers", np.full((3, 2), -1), np.zeros(3, int)), block=1)
def test_blocks_and_ways_agree(data: Answers, block: int) -> None:
    """Votes in blocks of documents, and focal diversity by both of its ways."""
    n_models = data.predictions.shape[1]
    pools = diversity.every_pool(n_models, n_models)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(votes, "_BLOCK_ENTRIES", block)
        accuracy = diversity.plurality_accuracy(data.predictions, data.labels, pools, data.kind)
    failed, times = diversity._count_failure_patterns(data.correct)
    joint = diversity._sum_triples(diversity._count_triples(failed, times), pools.astype(float))
    by_pool = diversity._pool_by_pool(failed, times, pools)
    for ways in zip(joint, by_pool, strict=True):
        same(*(np.where(pools, beside, 0) for beside in ways))
    focal = diversity.focal_diversity(data.correct, pools)
    for i, pool in enumerate(pools):
        oracle = pool_oracle(data, tuple(np.flatnonzero(pool).tolist()))
        same(accuracy[i], oracle["plurality_accuracy"])
        same(focal[i], oracle["focal_diversity"])


@pytest.mark.parametrize("kind", ["choices", "answers"])
def test_a_batch_of_pools_of_a_hundred_models(sql: duckdb.DuckDBPyConnection, kind: Kind) -> None:
    rng = np.random.default_rng(5)
    data = whole(kind, rng.integers(0 if kind == "choices" else -1, 4, (40, 100)), rng.integers(0, 4, 40))
    pools = rng.random((6, 100)).argsort(axis=1) < np.array([2, 3, 10, 45, 99, 100])[:, None]
    batch = diversity.pool_diversity(data.predictions, data.labels, pools, kind=kind)
    models = fill(sql, data)
    for i, pool in enumerate(pools):
        oracle = pool_oracle(data, tuple(np.flatnonzero(pool).tolist()))
        chosen = [models[m] for m in np.flatnonzero(pool)]
        (row,) = sql.execute("FROM pool_diversity('b', ?)", [chosen]).to_arrow_table().to_pylist()
        for name in METRICS:
            same(getattr(batch, name)[i], oracle[name])
            same(column([row[name]])[0], oracle[name])


@pytest.mark.parametrize("kind", ["choices", "answers"])
def test_pairs_of_more_models_than_a_word_has_bits(sql: duckdb.DuckDBPyConnection, kind: Kind) -> None:
    rng = np.random.default_rng(6)
    data = whole(kind, rng.integers(0, 3, (10, 70)), rng.integers(0, 3, 10))
    fill(sql, data)
    found = sql.execute("FROM all_pools('b', 2)").to_arrow_table().to_pylist()
    pairs = list(combinations(range(70), 2))
    assert [r["models"] for r in found] == [[f"m{a:02}", f"m{b:02}"] for a, b in pairs]
    for i in (0, 1, 68, 69, 1000, 2000, len(pairs) - 1):
        oracle = pool_oracle(data, pairs[i])
        same(column([found[i]["focal_diversity"]])[0], oracle["focal_diversity"])
        same(found[i]["plurality_accuracy"], oracle["plurality_accuracy"])


def test_more_rivals_than_three(sql: duckdb.DuckDBPyConnection) -> None:
    """Six answers among seven models: the right one is beaten, ties or wins in turn."""
    rng = np.random.default_rng(7)
    data = whole("answers", rng.integers(0, 6, (60, 7)), rng.integers(0, 6, 60))
    models = fill(sql, data)
    found = sql.execute("FROM all_pools('b', 7)").to_arrow_table().to_pylist()
    assert len(found) == 2**7 - 8
    for row in found:
        pool = tuple(models.index(m) for m in row["models"])
        same(row["plurality_accuracy"], pool_oracle(data, pool)["plurality_accuracy"])


@FEW
@given(
    scores=st.lists(
        st.lists(st.sampled_from([-2.0, -1.0, -0.0, 0.0, 1.0]), min_size=2, max_size=6),
        min_size=1,
        max_size=6,
    ),
    seed=st.integers(0, 99),
)
def test_ties_go_to_the_lowest_choice(
    sql: duckdb.DuckDBPyConnection, scores: list[list[float]], seed: int
) -> None:
    """Whatever order rows are stored in; the pool of one says what the view says."""
    fill(sql, whole("choices", np.zeros((0, 1), int), np.zeros(0, int)))
    key = {"benchmark": "b", "task": "t"}
    insert(sql, "docs", [{**key, "doc_id": i, "label": 0, "split": "test"} for i in range(len(scores))])
    rows: list[dict[str, object]] = [
        {**key, "model": "m00", "doc_id": i, "choice": c, "logprob": score}
        for i, row in enumerate(scores)
        for c, score in enumerate(row)
    ]
    np.random.default_rng(seed).shuffle(rows)
    insert(sql, "choice_logprobs", rows)
    best = [row.index(max(row)) for row in scores]
    said = sql.execute("SELECT prediction, correct FROM predictions ORDER BY doc_id").fetchall()
    assert said == [(choice, choice == 0) for choice in best]
    right = sql.execute("SELECT plurality_accuracy FROM pool_diversity('b', ['m00'])").fetchall()
    same(right[0][0], sum(choice == 0 for choice in best) / len(best))


def test_several_passes_of_one_answer(sql: duckdb.DuckDBPyConnection) -> None:
    """A pool reads answers as the view does: most passes, then the earliest."""
    fill(sql, whole("answers", np.zeros((0, 2), int), np.zeros(0, int)))
    key = {"benchmark": "b", "task": "t", "doc_id": 0}
    insert(sql, "docs", [{**key, "gold": "7", "split": "test"}])
    passes: dict[str, list[str | None]] = {"m00": ["9", "7", "7", "9"], "m01": [None, None, None, "7"]}
    insert(
        sql,
        "answer_passes",
        [
            {**key, "model": m, "pass": i, "answer": a}
            for m, said in passes.items()
            for i, a in enumerate(said)
        ],
    )
    assert sql.execute("SELECT model, answer FROM outcomes ORDER BY model").fetchall() == [
        ("m00", "9"),
        ("m01", "7"),
    ]
    (row,) = sql.execute("FROM pool_diversity('b', ['m00', 'm01'])").to_arrow_table().to_pylist()
    assert (row["n"], row["focal_diversity"], row["disagreement"]) == (1, 1.0, 1.0)
    assert row["plurality_accuracy"] == 0  # a tie: the first model's answer, which is wrong


def test_an_unknown_model_is_named(warehouse: Warehouse) -> None:
    """Also where nothing was ever stored."""
    for call in ("pool_diversity('nowhere', ['m00'])", "pool_diversity_over_time('nowhere', ['m00'], 3)"):
        with pytest.raises(duckdb.Error, match="no benchmark nowhere"):
            warehouse.rows(f"FROM {call}")


def test_the_names_of_the_sql_guide() -> None:
    for name in ("agreement", "calibration", "ceiling", "diversity", "normalised"):
        assert getattr(rlfocal, name) is import_module(f"rlfocal.statistics.{name}")


def test_a_fused_probability_by_hand() -> None:
    """In one bin 0.1 and 0.4, one of them right; in the other 0.5, 0.8 and 1, two of them right."""
    confidence = np.array([0.5, 0.1, 1.0, np.nan, 0.4, 0.8])
    correct = np.array([False, False, True, False, True, True])
    found = reliability(confidence, correct, bins=2)
    assert (found.bin.tolist(), found.n.tolist()) == ([0, 1], [2, 3])
    assert found.confidence == pytest.approx([0.25, 2.3 / 3])
    assert found.accuracy == pytest.approx([1 / 2, 2 / 3])
    assert found.expected_error == pytest.approx((2 * 0.25 + 3 * 0.1) / 5)
    assert brier_score(confidence, correct) == pytest.approx((0.25 + 0.01 + 0 + 0.36 + 0.04) / 5)


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=30))
def test_the_brier_score_is_scikit_learns(answers: list[tuple[float, bool]]) -> None:
    confidence, correct = np.array([p for p, _ in answers]), np.array([right for _, right in answers])
    assert brier_score(confidence, correct) == pytest.approx(
        brier_score_loss(correct, confidence, pos_label=True)
    )


def test_confidence_without_decisions_or_probabilities() -> None:
    nobody = np.array([np.nan]), np.array([False])
    assert math.isnan(brier_score(*nobody))
    assert math.isnan(reliability(*nobody).expected_error)
    rounded = np.array([1 + 1e-12, -1e-12])
    assert reliability(rounded, np.array([True, False])).confidence.tolist() == [0, 1]
    assert brier_score(rounded, np.array([True, False])) == 0
    for wrong in ([0.5, 1.2], [0.5, -3.0], [0.5, np.inf], [0.5]):
        for figure in (brier_score, reliability):
            with pytest.raises(InputError, match="confidence"):
                figure(np.array(wrong), np.array([True, True]))


# Votes against a literal count


@given(st.integers(0, 2**32 - 1), st.sampled_from(["choices", "answers"]))
def test_plurality_counts_votes(seed: int, kind: Kind) -> None:
    rng = np.random.default_rng(seed)
    n_models = int(rng.integers(1, 7))
    predictions = rng.integers(-1, 4, size=(12, n_models))
    pools = rng.random((12, n_models)) < 0.6
    got = plurality(predictions, pools, kind)
    for row, pool, winner in zip(predictions, pools, got, strict=True):
        votes = [v for v in row[pool].tolist() if v >= 0]
        if not votes:
            assert winner == -1
            continue
        counts = Counter(votes)
        tied = [slot for slot, n in counts.items() if n == max(counts.values())]
        assert winner == (min(tied) if kind == "choices" else next(v for v in votes if v in tied))


def test_soft_vote_takes_the_highest_mean() -> None:
    probs = np.array([[[0.6, 0.4, 0.0], [0.1, 0.9, 0.0], [0.0, 0.0, 1.0]]])
    assert soft_vote(probs, np.array([True, True, False]), "choices") == [1]
    assert soft_vote(probs, np.array([True, False, False]), "choices") == [0]
    assert soft_vote(probs, np.array([True, True, True]), "choices") == [1]
    assert soft_vote(probs, np.array([False, False, False]), "choices") == [-1]


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0], [1, 2, 0]])
def test_soft_vote_ties_do_not_hang_on_rounding(order: list[int]) -> None:
    shares = np.array([0.1, 0.2, 0.3])[order]  # 0.1 + 0.2 is not 0.3 in binary
    probs = np.zeros((1, 4, 2))
    probs[0, :3, 0] = shares
    probs[0, 3, 1] = 0.6
    assert soft_vote(probs, np.ones(4, dtype=bool), "answers") == [0]
