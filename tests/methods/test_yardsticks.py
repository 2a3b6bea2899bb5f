"""The methods RL-Focal is measured by: literal readings of their definitions, and figures of real logits."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from support.datasets import datasets, make_answers, make_dataset, make_logits, only, texts
from support.rows import put_choices
from support.worded_data import slope

from rlfocal.base.errors import InputError
from rlfocal.base.names import RL_FOCAL
from rlfocal.data.calls import Calls, Stream, Turn
from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import Decisions, OnlineLearner, decide, decide_online
from rlfocal.evaluation import evaluate
from rlfocal.methods import check_methods, entries, find_methods, make_method, methods_for, with_references
from rlfocal.methods.log_linear import LogLinearPool, fit_log_linear
from rlfocal.methods.reference import SoftVote
from rlfocal.methods.stacking import StackedRegression
from warehouse import Warehouse


def decided_by(name: str, data: Dataset, seed: int = 0) -> Decisions:
    [policy] = make_method(name).fit(data.train, [seed])
    if entries()[name.partition(":")[0]].protocols == ("online",):
        assert isinstance(policy, OnlineLearner)
        return decide_online(policy, data.test)
    return decide(policy, data.test)


def slots_by(name: str, data: Dataset) -> list[int]:
    return [int(slot) for slot in decided_by(name, data).predictions]


@given(datasets())
def test_reference_policies_equal_their_definitions(data: Dataset) -> None:
    train, test = data.train, data.test
    right = [int((train.predictions[:, i] == train.labels).sum()) for i in range(len(data.models))]
    best = [i for i, n in enumerate(right) if n == max(right)]
    assert slots_by("best_single", data) in [test.predictions[:, i].tolist() for i in best]
    votes = [Counter(row) for row in test.predictions.tolist()]
    assert slots_by("plurality", data) == [min(c for c in v if v[c] == max(v.values())) for v in votes]
    weights = right if any(right) else [1] * len(right)
    for slot, row in zip(slots_by("weighted_vote", data), test.predictions.tolist(), strict=True):
        weighed: Counter[int] = Counter()
        for said, weight in zip(row, weights, strict=True):
            weighed[said] += weight
        assert slot == min(said for said in weighed if weighed[said] == max(weighed.values()))
    counts = Counter(train.labels.tolist())
    assert set(slots_by("constant_choice", data)) == {
        min(c for c in counts if counts[c] == max(counts.values()))
    }
    assert slots_by("soft_vote", data) == [int(np.mean(p, axis=0).argmax()) for p in test.probs]
    oracle = np.array(slots_by("oracle", data)) == test.labels
    assert oracle.tolist() == [
        label in row for label, row in zip(test.labels, test.predictions.tolist(), strict=True)
    ]


@given(datasets(), st.data())
def test_models_that_are_down_lower_no_probability_of_the_soft_vote(
    data: Dataset, drawn: st.DataObject
) -> None:
    n = len(data.models)
    down = np.arange(n) < drawn.draw(st.integers(0, n - 1))
    answers = SoftVote().decide(Calls(data.test, down))
    assert answers.probability == pytest.approx(data.test.probs[:, ~down].mean(axis=1).max(axis=1))


def test_answers_break_ties_by_the_first_model_of_the_pool() -> None:
    # m00 says slot 1, m01 says slot 0, m02 has no answer: one vote each, so m00's answer stands.
    answers = replace(
        make_answers(*[("ab-", "a")] * 2),
        probs=np.array([[[0.0, 1.0], [1.0, 0.0], [0.0, 0.0]]] * 2),
        predictions=np.array([[1, 0, -1]] * 2),
    )
    assert slots_by("plurality", answers) == [1]
    assert slots_by("soft_vote", answers) == [1]


@pytest.mark.parametrize("members", [[True] * 4, [False, True, True, False]])
def test_a_log_linear_pool_is_the_minimum_of_its_loss(members: list[bool]) -> None:
    train = make_logits(0).train
    found = fit_log_linear(train, np.array(members))
    positions = np.flatnonzero(members)

    def loss(parameters: NDArray[np.float64]) -> float:
        weights, biases = parameters[: len(positions)], parameters[len(positions) :]
        total = 1e-3 / 2 * float(weights @ weights)
        for t in range(len(train)):
            if train.labels[t] >= 0:
                scores = [
                    weights @ train.logprobs[t, positions, c] + biases[c] for c in range(train.n_choices[t])
                ]
                total -= scores[train.labels[t]] - np.log(np.sum(np.exp(scores)))
        return total

    solution = np.concatenate([found.weights, found.biases])
    assert np.abs(slope(loss, solution)).max() < 1e-3 * len(train) / 100
    others = np.random.default_rng(0).normal(size=(20, len(solution))) / 10
    assert all(loss(solution) < loss(solution + other) for other in others)


def test_log_probs_of_certain_models_are_fitted_too() -> None:
    """Of 0 and -10,000: gradients are as large as the log-probs."""
    rng = np.random.default_rng(59)
    labels = rng.integers(4, size=160)
    said = np.where(rng.random((160, 2)) < 0.5, labels[:, None], rng.integers(4, size=(160, 2)))
    certain = np.eye(4)[said]
    data = replace(make_dataset(np.full((160, 2, 4), 0.25), labels, 160), logprobs=1e4 * (certain - 1))
    pool = fit_log_linear(data, np.array([True, True]))
    plain = fit_log_linear(replace(data, logprobs=certain - 1), np.array([True, True]))
    np.testing.assert_allclose(pool.weights * 1e4, plain.weights, rtol=0.01)


def test_a_log_linear_pool_answers_choices_that_exist() -> None:
    data = make_logits(1)
    pool = fit_log_linear(data.train, np.array([True, False, False, True]))
    assert (decide(pool, data.test).pools == [True, False, False, True]).all()
    eager = replace(pool, biases=np.array([0.0, 0.0, 100.0]))
    assert set(decide(eager, data.test).predictions[data.test.n_choices == 2]) <= {0, 1}


def test_a_log_linear_pool_of_answers_learns_each_models_weight() -> None:
    # m00 is always right, m01 and m02 always agree on something else.
    data = make_answers(*[("abb", "a")] * 4, *[("cdd", "c")] * 4)
    assert texts(data.test, decided_by("plurality", data)) == ["d"] * 4
    assert texts(data.test, decided_by("log_linear", data)) == ["c"] * 4


def test_a_pool_of_answers_sees_only_its_members() -> None:
    rng = np.random.default_rng(2)
    said = ["".join(rng.choice(list("abc-"), 3)) for _ in range(40)]
    gold = rng.choice(list("abc"), 40).tolist()
    for members in ([True, True, False], [False, True, True]):
        heard = [make_answers(*zip(said, gold, strict=True))]
        silenced = ["".join(x if m else "-" for x, m in zip(s, members, strict=True)) for s in said]
        heard.append(make_answers(*zip(silenced, gold, strict=True)))
        pools = [fit_log_linear(data.train, np.array(members)) for data in heard]
        assert pools[0].weights == pytest.approx(pools[1].weights, abs=1e-5)
        one, other = (texts(d.test, decide(p, d.test)) for d, p in zip(heard, pools, strict=True))
        assert one == other


def test_ties_between_answers_go_to_the_first_model() -> None:
    [row] = [make_answers(("ba", "b"), ("ba", "b")).test]
    flipped = replace(row, probs=row.probs[:, :, ::-1], slots=(("a", "b"),))
    for data in (row, flipped):
        even = LogLinearPool(np.ones(2, dtype=np.bool_), np.array([0.1, 0.1]), np.zeros(2))
        assert texts(data, decide(even, data)) == ["b"]


def test_stacking_is_scikit_learns_regression_on_standardised_log_probs() -> None:
    data = make_logits(4, T=400)
    [stacked] = StackedRegression().fit(data.train, [0])
    x = np.where(np.isfinite(data.logprobs), data.logprobs, 0).reshape(len(data), -1)
    taught = data.is_train & (data.labels >= 0)
    whole = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, tol=1e-8, max_iter=10_000))
    chances = whole.fit(x[taught], data.labels[taught]).predict_proba(x[~data.is_train])
    expected = np.where(np.arange(3) < data.test.n_choices[:, None], chances, 0).argmax(axis=1)
    assert (decide(stacked, data.test).predictions == expected).all()


def test_stacking_answers_what_exists_and_refuses_free_answers() -> None:
    data = make_logits(5)
    third = np.where(np.arange(len(data)) % 9 == 0, 0, 2)  # is nearly always right where there is one
    skewed = replace(data, labels=np.where(data.n_choices == 3, third, -1))
    assert (decided_by("stacking", skewed).predictions < skewed.test.n_choices).all()
    assert not {"stacking", "constant_choice"} & set(methods_for(3, "answers"))
    always = replace(data, labels=np.zeros(len(data), dtype=np.int64))
    assert set(decided_by("stacking", always).predictions) == {0}


def test_a_pool_of_many_models_grows_one_by_one() -> None:
    data = make_logits(6, T=60, N=12)
    asked = decided_by("best_log_linear:3", data).pools[0]
    assert asked.sum() == 3
    pool: list[int] = []
    for _ in range(3):
        scores = {}
        for model in set(range(12)) - set(pool):
            part = only(data.train, np.sort([*pool, model]))
            [policy] = make_method("log_linear").fit(part, [0])
            scores[model] = -int((decide(policy, part).predictions == part.labels).sum())
        pool.append(min(scores, key=lambda model: (scores[model], model)))
    assert sorted(pool) == np.flatnonzero(asked).tolist()


def test_a_random_model_is_one_of_the_best_on_train() -> None:
    data = make_logits(7, T=2000, N=5)
    best = np.argsort(-data.train.correct.sum(axis=0), kind="stable")
    for size in (1, 3):
        pools = decided_by(f"random_select:{size}", data).pools
        assert (pools.sum(axis=1) == 1).all()
        share = pools.mean(axis=0)[best]
        assert share[:size] == pytest.approx([1 / size] * size, abs=0.06)
        assert not share[size:].any()
    again = [decided_by("random_select", data, seed).pools for seed in (0, 0, 1)]
    assert (again[0] == again[1]).all()
    assert (again[0] != again[2]).any()


def test_latest_correct_follows_the_last_right_model(monkeypatch: pytest.MonkeyPatch) -> None:
    data = make_logits(8, T=2000, N=5)
    best = np.argsort(-data.train.correct.sum(axis=0), kind="stable")[:3]
    [policy] = make_method("latest_correct").fit(data.train, [0])
    assert isinstance(policy, OnlineLearner)
    stream, asked = Stream(data.test), []
    answer = Turn.answer

    def noted(turn: Turn, slot: int) -> None:
        asked.append(int(turn.calls.called[0].argmax()))
        assert turn.calls.called.sum() == 1
        answer(turn, slot)

    monkeypatch.setattr(Turn, "answer", noted)
    policy.decide_along(stream)
    assert (stream.answers == data.test.predictions[np.arange(len(asked)), asked]).all()
    # Who was right among the others is known of those alone that are called too, which delays nothing.
    assert (stream.rounds == np.isin(np.arange(5), best)).all()
    assert set(asked) == set(best)
    chances = {model: [0.0, 0.0] for model in best.tolist()}
    for t in range(1, len(asked)):
        right = [model for model in best.tolist() if data.test.correct[t - 1, model]]
        candidates = right or best.tolist()
        assert asked[t] in candidates
        for model in candidates:
            chances[model][0] += 1 / len(candidates)
            chances[model][1] += asked[t] == model
    for expected, counted in chances.values():
        assert counted == pytest.approx(expected, abs=5 * expected**0.5)


def test_names_and_sizes_are_checked() -> None:
    data = make_logits(0, N=3)
    sized = [name for name, entry in entries().items() if entry.argument == "size"]
    assert len(sized) >= 5
    tasks = np.where(np.arange(len(data.labels)) % 2, "one", "other")  # +task methods need two
    check_methods([f"{name}:3" for name in sized], replace(data, tasks=tasks), "online")
    for wrong in ("0", "4", "", "two", "-1"):
        with pytest.raises(InputError, match="is not a valid pool size; use 1 to 3"):
            check_methods([f"best_log_linear:{wrong}"], data)
    for wrong in ("single", "plurality:2", "rl_focal:3"):
        with pytest.raises(InputError, match=f"unknown method '{wrong}'"):
            check_methods([wrong], data)
    for wrong, told in (("soft_vot", "did you mean 'soft_vote'"), ("single:b", "unknown model 'b'")):
        with pytest.raises(InputError, match=told):
            check_methods([wrong], data)


@pytest.mark.slow
def test_rl_focal_runs_beside_its_baselines(warehouse: Warehouse) -> None:
    rights = {name: [bool((i * k) % 3) for i in range(40)] for k, name in enumerate("klmn", 1)}
    asked = replace(make_logits(5), questions=("which?",) * len(make_logits(5)))
    told = [name for name in find_methods("reference") if name != "best_single+task"]  # there is one task
    start = ["rl_focal_start", "log_linear_team"]
    for name in RL_FOCAL:
        beside = start if name == "rl_focal" else []
        assert with_references([name, "oracle"], asked) == [name, "oracle", *beside, *told]
    assert with_references(["stacking"], asked) == ["stacking"]
    put_choices(warehouse, rights)
    rows = [row for row in evaluate(warehouse, "b", seeds=2).rows if row.task == "*"]
    of_its_size: set[str] = set()
    for ours in RL_FOCAL[:2]:
        size = round(np.mean([row.mean_pool_size for row in rows if row.method == ours]))
        pools = {f"{name}:{size}" for name in find_methods("constant_pool")}
        assert {row.mean_pool_size for row in rows if row.method in pools} == {float(size)}
        of_its_size |= pools
    assert {row.method for row in rows} == {*methods_for(4), *start, *of_its_size}
