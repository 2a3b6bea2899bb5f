"""Evaluation from a real warehouse: figures of real data, idempotence, snapshots, no leak of test labels."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.datasets import make_dataset
from support.rows import put_choices

from rlfocal.base.errors import InputError, RunError
from rlfocal.base.names import Protocol
from rlfocal.data.calls import Answers, Calls
from rlfocal.data.dataset import Dataset
from rlfocal.data.loading import load_dataset
from rlfocal.data.policy import decide
from rlfocal.evaluation import Candidate, Evaluation, EvaluationRequest, Setup, evaluate
from rlfocal.evaluation.candidates import make_candidate, run_methods
from rlfocal.evaluation.planning import group_rows
from rlfocal.evaluation.running import evaluate_apart
from rlfocal.evaluation.storing import read_runs
from rlfocal.methods import make_method, methods_for
from rlfocal.methods.reference import Plurality
from warehouse import Warehouse, open_warehouse

DETERMINISTIC = ["best_single", "plurality", "soft_vote", "constant_choice", "oracle"]


@pytest.fixture(scope="module")
def real(real_warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The three real data sets, in a copy that tests may write to."""
    return Path(shutil.copytree(real_warehouse, tmp_path_factory.mktemp("real") / "warehouse"))


def pooled(rows: tuple[Evaluation, ...]) -> dict[str, float]:
    return {row.method: round(100 * row.accuracy, 2) for row in rows if row.task == "*"}


def task_means(rows: tuple[Evaluation, ...]) -> dict[str, float]:
    methods = dict.fromkeys(row.method for row in rows)
    return {
        m: round(100 * float(np.mean([r.accuracy for r in rows if r.method == m and r.task != "*"])), 2)
        for m in methods
    }


def test_reference_figures_of_mmlu16(real: Path) -> None:
    with open_warehouse(real) as warehouse:
        rows = evaluate(warehouse, "mmlu", methods=[*DETERMINISTIC, "stacking", "log_linear"]).rows
        figures = pooled(rows)
        assert figures == figures | {
            "best_single": 73.74,
            "soft_vote": 69.93,
            "plurality": 68.88,
            "oracle": 97.15,
            "stacking": 76.59,
        }
        assert 75.4 <= figures["log_linear"] <= 76.2
        asked = (
            "SELECT DISTINCT d.pool FROM decisions d JOIN evaluations e USING (run_id) "
            "WHERE e.method = 'best_single'"
        )
        assert warehouse.rows(asked) == [(["01-ai/Yi-34B"],)]
        data = load_dataset(warehouse, "mmlu")
        best = [data.models[at] for at in np.argsort(-data.train.correct.sum(axis=0), kind="stable")]
        for method, size, figure in (("log_linear", 5, 76.44), ("soft_vote", 4, 75.69)):
            some = evaluate(warehouse, "mmlu", methods=[method], models=best[:size]).rows
            assert pooled(some) == {method: figure}


def test_reference_figures_of_bbh5(real: Path) -> None:
    learned = ["log_linear", "weighted_vote", "best_plurality", "stacking"]
    with open_warehouse(real) as warehouse:
        rows = evaluate(warehouse, "bbh", methods=[*DETERMINISTIC, *learned], per="task").rows
        drawn = evaluate(warehouse, "bbh", methods=["random_select"], seeds=20, per="task").rows
    figures = task_means(rows)
    assert figures == figures | {
        "best_single": 55.65,
        "plurality": 50.38,
        "soft_vote": 52.88,
        "oracle": 83.06,
        "log_linear": 61.44,
        "weighted_vote": 53.71,
        "best_plurality": 55.40,
        "stacking": 60.33,
    }
    assert task_means(drawn)["random_select"] == pytest.approx(50.29, abs=0.6)


def test_answers_of_gsm8k44_are_ordered_sensibly(real: Path) -> None:
    with open_warehouse(real) as warehouse:
        with pytest.raises(InputError, match="constant_choice"):
            evaluate(warehouse, "gsm8k", methods=DETERMINISTIC)
        assert warehouse.rows("FROM evaluations WHERE benchmark = 'gsm8k'") == []
        named = [name for name in DETERMINISTIC if name != "constant_choice"]
        figures = pooled(evaluate(warehouse, "gsm8k", methods=named).rows)
        data = load_dataset(warehouse, "gsm8k")
    best = 100 * data.test.correct.mean(axis=0)
    assert figures["best_single"] == round(float(best[data.train.correct.sum(axis=0).argmax()]), 2)
    assert figures["oracle"] == round(100 * float(data.test.correct.any(axis=1).mean()), 2)


@pytest.mark.slow
def test_rl_focal_beats_plurality_on_mmlu16_and_learns_nothing_from_shuffled_labels(real: Path) -> None:
    with open_warehouse(real) as warehouse:
        name = "rl_focal_sequential"
        report = evaluate(warehouse, "mmlu", methods=[name, "plurality", "constant_choice"], seeds=1)
        [ours] = [row for row in report.rows if row.method == name and row.task == "*"]
        figures = pooled(report.rows)
        assert ours.accuracy * 100 > figures["plurality"]
        # Close to a log-linear pool (76.44) and stacking (76.59) of the same rows.
        assert ours.accuracy >= 0.76
        assert ours.mean_pool_size <= 6
        data = load_dataset(warehouse, "mmlu")
    train = data.train
    shuffled = np.random.default_rng(0).permutation(train.labels)
    policy = make_method("rl_focal").fit(replace(train, labels=shuffled), [0])[0]
    decided = decide(policy, data.test)
    # The model that would be the best by these labels, as it is: nothing that was learned from them.
    best = (train.predictions == shuffled[:, None]).mean(axis=0).argmax()
    assert decided.pools.sum(axis=0).argmax() == best
    np.testing.assert_array_equal(decided.predictions, data.test.predictions[:, best])


def test_runs_are_stored_once_and_found_again(real: Path) -> None:
    with open_warehouse(real) as warehouse:
        first = evaluate(warehouse, "bbh", methods=["plurality", "soft_vote"])
        again = evaluate(warehouse, "bbh", methods=["soft_vote", "plurality"])
        assert not again.ran
        assert {r.run_id for r in first.rows} == {r.run_id for r in again.rows}
        forced = evaluate(warehouse, "bbh", methods=["plurality"], force=True)
        assert len(forced.ran) == 1
        twice = (
            "SELECT count(*) FROM evaluations WHERE task = '*' AND method = 'plurality' AND per = 'benchmark'"
        )
        assert warehouse.rows(twice + " AND benchmark = 'bbh'") == [(1,)]
        by_hand = (
            "SELECT avg(d.correct::DOUBLE), count(*) FROM decisions d JOIN evaluations e USING (run_id) "
            "WHERE e.task = '*' AND e.run_id = ?"
        )
        [row] = [r for r in forced.rows if r.task == "*"]
        assert warehouse.rows(by_hand, [row.run_id]) == [(pytest.approx(row.accuracy), row.n)]


def test_a_snapshot_is_evaluated_as_it_was(real: Path) -> None:
    with open_warehouse(real) as warehouse:
        then = warehouse.snapshot()
        before = pooled(evaluate(warehouse, "bbh", methods=["soft_vote"]).rows)
        turn = (
            "UPDATE choice_logprobs SET logprob = -logprob WHERE benchmark = 'bbh' AND model LIKE 'google%'"
        )
        with warehouse.transaction("break a model"):
            warehouse.connection.execute(turn)
        after = pooled(evaluate(warehouse, "bbh", methods=["soft_vote"]).rows)
        assert after != before
        restored = evaluate(warehouse, "bbh", methods=["soft_vote"], snapshot=then)
        assert pooled(restored.rows) == before
        with warehouse.transaction("mend it"):
            warehouse.connection.execute(turn)


class PeekingMethod:
    """A method that answers whatever the label is of the document it decides on."""

    seeded = False

    def recipe(self, n_train: int) -> str:
        return "1"

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[PeekingMethod]:
        return [self]

    def decide(self, calls: Calls) -> Answers:
        documents = calls.call_all()
        assert not documents.correct.any()
        return Answers(documents.labels)


@pytest.mark.parametrize("protocol", ["frozen", "online"])
def test_a_method_that_looks_for_labels_finds_none(warehouse: Warehouse, protocol: Protocol) -> None:
    put_choices(warehouse, {"m": [True, True, False, True], "k": [False, False, False, True]})
    data = load_dataset(warehouse, "b")
    setup = Setup(warehouse, data, EvaluationRequest("b", seeds=1, protocol=protocol))
    runs, _ = run_methods(setup, [Candidate("peeking", PeekingMethod())])
    [run_id] = runs["peeking"]
    assert [row.accuracy for row in read_runs(warehouse, [run_id])] == [0.0, 0.0]
    assert {row.accuracy for row in evaluate(warehouse, "b", methods=["oracle"]).rows} == {1.0}


class FailingMethod(PeekingMethod):
    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[PeekingMethod]:
        raise ZeroDivisionError


def test_quick_methods_are_stored_in_one_transaction_even_if_a_later_one_fails(warehouse: Warehouse) -> None:
    put_choices(warehouse, {"m": [True, True, False, True], "k": [False, False, False, True]})
    setup = Setup(warehouse, load_dataset(warehouse, "b"), EvaluationRequest("b", seeds=1))
    quick, before = ["plurality", "soft_vote", "best_single"], warehouse.snapshot()
    with pytest.raises(ZeroDivisionError):
        run_methods(
            setup, [*(make_candidate(setup, name) for name in quick), Candidate("failing", FailingMethod())]
        )
    stored = warehouse.rows("SELECT DISTINCT method FROM evaluations ORDER BY 1")
    assert stored == [(name,) for name in sorted(quick)]
    assert warehouse.snapshot() == before + 1


def test_a_benchmark_that_cannot_be_split_is_refused(warehouse: Warehouse) -> None:
    put_choices(warehouse, {"m": [True, False]})
    warehouse.connection.execute("UPDATE docs SET split = 'test'")
    with pytest.raises(InputError, match="'b' has no train rows"):
        evaluate(warehouse, "b", methods=["plurality"])
    assert warehouse.rows("SELECT count(*) FROM evaluations") == [(0,)]


def test_a_task_without_train_rows_is_named_as_it_is_called() -> None:
    data = make_dataset(np.full((4, 2, 2), 0.5), np.zeros(4, dtype=np.int64), n_train=2)
    with pytest.raises(InputError, match=r"^task 'late' of 'made' has no train rows"):
        group_rows(replace(data, tasks=np.array(["early", "early", "late", "late"])), "task")


def test_a_pool_of_one_model_is_evaluated_without_a_team(warehouse: Warehouse) -> None:
    put_choices(warehouse, {"m": [True, True, False, False]})
    assert {row.method for row in evaluate(warehouse, "b").rows} == set(methods_for(1))
    assert not {"rl_focal", "rl_focal_sequential"} & set(methods_for(1))
    with pytest.raises(InputError, match="at least 2"):
        evaluate(warehouse, "b", methods=["rl_focal"])


def test_gold_answers_that_are_no_choice_are_wrong_everywhere(warehouse: Warehouse) -> None:
    put_choices(warehouse, {"m": [True] * 4, "k": [False] * 4}, label=-1)
    rows = evaluate(warehouse, "b", methods=DETERMINISTIC).rows
    assert {row.accuracy for row in rows} == {0.0}


def test_an_unknown_price_is_no_cost_of_zero(warehouse: Warehouse) -> None:
    put_choices(warehouse, {"m": [True, True, False, True], "k": [False, False, False, True]})
    assert [r.cost for r in evaluate(warehouse, "b", methods=["soft_vote"]).rows] == [None, None]
    with warehouse.transaction("price one"):
        warehouse.connection.execute("UPDATE models SET price = 2 WHERE model = 'm'")
    report = evaluate(warehouse, "b", methods=["soft_vote", "best_single"])
    costs = {row.method: row.cost for row in report.rows}
    assert costs == {"soft_vote": None, "best_single": 2.0}
    assert len(report.ran) == 2  # the same rows at other prices are another run


def test_a_method_that_is_defined_anew_runs_again(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Online alone, if it is only there that it decides otherwise."""
    put_choices(warehouse, {"m": [True] * 4, "k": [False] * 4})

    def ran() -> list[int]:
        protocols: tuple[Protocol, ...] = ("frozen", "online")
        return [len(evaluate(warehouse, "b", methods=["plurality"], protocol=one).ran) for one in protocols]

    assert ran() == [1, 1]
    assert ran() == [0, 0]
    monkeypatch.setattr(Plurality, "online_recipe", " online 2", raising=False)
    assert ran() == [0, 1]
    monkeypatch.setattr(Plurality, "recipe", lambda self, n_train: "2")
    assert ran() == [1, 1]


def test_all_seeds_of_a_method_are_stored_in_one_snapshot(warehouse: Warehouse) -> None:
    put_choices(warehouse, {"m": [True, True, False, True], "k": [False, False, False, True]})
    before = warehouse.snapshot()
    assert len(evaluate(warehouse, "b", methods=["random_select"], seeds=3).ran) == 3
    assert warehouse.snapshot() == before + 1


def test_what_was_found_before_a_failure_is_stored(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_choices(warehouse, {"m": [True, True, False, True], "k": [False, False, False, True]})

    def fail(*_: object) -> None:
        raise RuntimeError("out of order")

    monkeypatch.setattr(Plurality, "fit", fail)
    with pytest.raises(RuntimeError, match="out of order"):
        evaluate(warehouse, "b", methods=["best_single", "plurality"])
    assert warehouse.rows("SELECT DISTINCT method FROM evaluations") == [("best_single",)]


def test_a_process_of_its_own_finds_the_same_and_says_how_far_it_is(warehouse: Warehouse) -> None:
    put_choices(warehouse, {"m": [True, True, False, True], "k": [False, False, False, True]})
    told: list[tuple[str, float]] = []
    request = EvaluationRequest(
        "b", methods=["rl_focal"], settings=["rl_focal.decider_episodes=1"], seeds=2,
        on_progress=lambda *event: told.append(event),
    )  # fmt: skip
    decided = "SELECT * FROM decisions ORDER BY run_id, doc_id"
    apart = evaluate_apart(warehouse.location.name, request)
    assert told[-1] == ("b rl_focal", 1.0)
    found = warehouse.query(decided)
    here = evaluate(warehouse, "b", methods=["rl_focal"], settings=request.settings, seeds=2, force=True)
    assert (here.ran, warehouse.query(decided)) == (apart.ran, found)
    assert set(apart.ran) == {row.run_id for row in apart.rows}
    with pytest.raises(RunError, match="unknown benchmark 'absent'"):
        evaluate_apart(warehouse.location.name, replace(request, benchmark="absent"))


def test_runs_that_are_asked_for_again_become_the_newest(warehouse: Warehouse) -> None:
    put_choices(warehouse, {"m": [True] * 4, "k": [False] * 4, "l": [True, False] * 2})
    newest = "SELECT arg_max(data, created_at) FROM evaluations"
    for models in (["k", "m"], None, ["k", "m"]):
        [first, *_] = evaluate(warehouse, "b", methods=["plurality"], models=models).rows
        assert warehouse.rows(newest) == [(first.data,)]
    assert warehouse.rows("SELECT count(DISTINCT run_id) FROM evaluations") == [(2,)]


def test_models_with_gaps_are_named(warehouse: Warehouse) -> None:
    put_choices(warehouse, {"m": [True] * 4, "k": [False] * 4})
    with warehouse.transaction("lose an answer"):
        warehouse.connection.execute("DELETE FROM choice_logprobs WHERE model = 'k' AND doc_id = 3")
    why = "answered 3 of 4 documents of 'b'"
    assert evaluate(warehouse, "b", methods=["plurality"]).left_out == (("k", why),)


def test_a_dataset_is_one_snapshot(warehouse: Warehouse) -> None:
    put_choices(warehouse, {"m": [True] * 4, "k": [False] * 4})
    with open_warehouse(warehouse.location) as other, warehouse.hold_snapshot():
        seen = warehouse.rows("SELECT count(*) FROM docs"), warehouse.snapshot()
        with other.transaction("meanwhile"):
            other.connection.execute("DELETE FROM docs WHERE doc_id > 1")
        assert (warehouse.rows("SELECT count(*) FROM docs"), warehouse.snapshot()) == seen
    assert warehouse.rows("SELECT count(*) FROM docs") == [(2,)]
