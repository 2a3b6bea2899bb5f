"""Replays: unchanged they are evaluations to the bit, and each condition does what it says and no more."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.cli import Cli
from support.rows import put_choices

import rlfocal
from rlfocal.base.errors import InputError
from rlfocal.data.dataset import Dataset
from rlfocal.data.loading import load_dataset
from rlfocal.data.policy import decide
from rlfocal.evaluation import evaluate
from rlfocal.evaluation.leaderboard import leaderboard
from rlfocal.exchange.imports.prices import import_prices
from rlfocal.methods import make_method
from rlfocal.methods.trained import load_checkpoint, save_checkpoint
from rlfocal.scenarios.replaying import replay
from rlfocal.scenarios.scenario import corrupt_labels, drop_answers, keep_labels
from warehouse import Warehouse, open_warehouse

FAMILIES = (
    "single:c", "soft_vote", "constant_choice", "random_select", "oracle", "log_linear", "cascade",
    "outputs_knn", "best_single+task",
)  # fmt: skip
DECIDED = (
    "SELECT task, doc_id, pool, prediction, answer, correct, rounds, probability FROM decisions "
    "WHERE run_id = ? ORDER BY task, doc_id"
)


@pytest.fixture(scope="module")
def agents(study_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of the study benchmark."""
    with open_warehouse(shutil.copytree(study_template, tmp_path_factory.mktemp("agents") / "w")) as trained:
        return rlfocal.train(trained, "b", method="rl_focal_sequential", seeds=1).checkpoints[0]


def decided(warehouse: Warehouse, run_id: str) -> list[tuple[object, ...]]:
    rows = warehouse.rows(DECIDED, [run_id])
    assert rows
    return rows


def test_unchanged_it_is_the_evaluation_to_the_bit(studied: Warehouse, agents: Path) -> None:
    evaluated = evaluate(studied, "b", methods=[*FAMILIES, "rl_focal_sequential"], seeds=1).rows
    for row in evaluated:
        if row.task == "*":
            found = replay(studied, row.method, "b", seed=row.seed or 0)
            assert found.before == found.after
            assert found.conditions == found.tasks == {}
            assert (found.after.study, found.after.accuracy) == ("replay", row.accuracy)
            assert (found.after.cost, found.after.data) == (row.cost, row.data)
            assert decided(studied, found.after.run_id) == decided(studied, row.run_id)
    [trained] = [r for r in evaluated if (r.method, r.seed, r.task) == ("rl_focal_sequential", 0, "*")]
    found = replay(studied, str(agents), "b")
    assert decided(studied, found.after.run_id) == decided(studied, trained.run_id)
    assert found.after.settings.keys() == {"checkpoint"}


@settings(deadline=None, max_examples=3, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(method=st.sampled_from(FAMILIES), model=st.sampled_from("abcd"), priced=st.booleans())
def test_what_changes_nothing_is_the_same_run(
    studied: Warehouse, tmp_path: Path, method: str, model: str, priced: bool
) -> None:
    (tmp_path / "same.csv").write_text("model,price\na,1\nb,2\nc,3\nd,4\n")
    prices = str(tmp_path / "same.csv") if priced else None
    usual = replay(studied, method, "b")
    found = replay(studied, method, "b", swap=[f"{model}={model}"], models=list("abcd"), prices=prices)
    assert found == usual


def test_the_same_conditions_are_one_run_off_the_leaderboard(studied: Warehouse) -> None:
    evaluate(studied, "b", methods=["best_single"], seeds=1)
    [before] = leaderboard(studied)
    found = replay(studied, "best_single", "b", down=["a"])
    snapshot = studied.snapshot()
    assert replay(studied, "best_single", "b", models=["b", "c", "d"]) == found
    assert studied.snapshot() == snapshot
    [board] = leaderboard(studied)
    assert board == before
    assert studied.rows("SELECT count(*) FROM current_evaluations WHERE study = 'replay'") == [(0,)]
    [other] = studied.rows(
        "SELECT DISTINCT settings->>'as_evaluated' FROM runs WHERE run_id = ?", [found.after.run_id]
    )
    assert other == (found.before.run_id,)
    was, now = ({row[:2]: row for row in decided(studied, one.run_id)} for one in (found.before, found.after))
    changed = [(was[at][5], now[at][5]) for at in was if was[at][3] != now[at][3]]
    assert changed.count((True, False)) == found.right_to_wrong
    assert changed.count((False, True)) == found.wrong_to_right
    assert changed.count((False, False)) == found.wrong_to_other
    assert found.difference.mean == pytest.approx(found.after.accuracy - found.before.accuracy)
    for task, pair in found.tasks.items():
        for run, accuracy in zip((was, now), pair, strict=True):
            assert np.mean([row[5] for at, row in run.items() if at[0] == task]) == accuracy


def test_if_the_favourite_is_down_the_next_best_on_train_answers_and_is_paid(studied: Warehouse) -> None:
    correct = load_dataset(studied, "b").train.correct.mean(axis=0)
    first, second, *_ = (load_dataset(studied, "b").models[at] for at in np.argsort(-correct))
    found = replay(studied, "best_single", "b", down=[first])
    assert {str(row[2]) for row in decided(studied, found.before.run_id)} == {str([first])}
    assert {str(row[2]) for row in decided(studied, found.after.run_id)} == {str([second])}
    alone = replay(studied, f"single:{second}", "b").after
    assert [found.after.accuracy, found.after.cost] == [alone.accuracy, alone.cost]
    assert found.after.mean_rounds == 1


def test_swapped_a_model_answers_as_the_other_at_its_own_price(studied: Warehouse) -> None:
    alone, voted = (replay(studied, method, "b", swap=["a=d"]) for method in ("single:a", "soft_vote"))
    data, test = load_dataset(studied, "b"), load_dataset(studied, "b").test
    said = dict(zip(zip(test.tasks, test.doc_ids, strict=True), test.predictions.tolist(), strict=True))
    rows = decided(studied, alone.after.run_id)
    assert [row[3] for row in rows] == [said[row[:2]][3] for row in rows]  # type: ignore[index]
    swapped = load_dataset(studied, "b", swaps={"a": "d"})
    for field in ("probs", "logprobs", "predictions"):
        assert (getattr(swapped, field)[:, 0] == getattr(data, field)[:, 3]).all()
        assert (getattr(swapped, field)[:, 1:] == getattr(data, field)[:, 1:]).all()
    for found in (alone, voted):
        assert found.after.mean_pool_size == found.before.mean_pool_size
        assert found.after.cost == found.before.cost


def test_who_answers_for_another_need_not_be_in_the_pool(studied: Warehouse, tmp_path: Path) -> None:
    path = rlfocal.train(studied, "b", method="rl_focal_sequential", models=["a", "b"], seeds=1).checkpoints[
        0
    ]
    found = replay(studied, str(path), "b", swap=["a=d"])
    assert found.after.models == ["a", "b"]
    assert found.conditions == {"swap": {"a": "d"}}
    assert found.right_to_wrong
    other = tmp_path / "elsewhere.safetensors"
    save_checkpoint(load_checkpoint(path), other)
    assert replay(studied, str(other), "b", swap=["a=d"]) == found


def put_passes(warehouse: Warehouse, said: dict[str, str]) -> None:
    """Free answers of a letter a pass, two passes a document, to documents of which every second is train."""
    n = len(next(iter(said.values()))) // 2
    keys = {"benchmark": ["f"] * n, "task": ["t"] * n, "doc_id": list(range(n))}
    with warehouse.transaction("fill"):
        warehouse.append("docs", pa.table(keys | {"gold": ["1"] * n, "split": ["train", "test"] * (n // 2)}))
        for model, letters in said.items():
            for at in (0, 1):
                given = {"model": [model] * n, "pass": [at] * n, "answer": list(letters[at::2])}
                warehouse.append("answer_passes", pa.table(keys | given))


def test_free_answers_swapped_are_as_if_the_other_had_given_them(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    said = {
        "a": "1212334455661111",
        "b": "2131121212126512",
        "c": "3121134421211212",
        "d": "2211312112131415",
    }
    put_passes(warehouse, said)
    pool = ["a", "b", "c"]
    with open_warehouse(tmp_path / "other") as other:
        put_passes(other, {"a": said["d"], "b": said["b"], "c": said["b"]})
        expected = load_dataset(other, "f")
    swapped = load_dataset(warehouse, "f", pool, {"a": "d", "c": "b"})
    assert swapped.fingerprint() == expected.fingerprint()
    assert swapped.slots == expected.slots
    assert replay(warehouse, "soft_vote", "f", swap=["a=d", "c=b"]).conditions["swap"] == {"a": "d", "c": "b"}


def test_other_prices_change_money_and_what_is_bought_for_it(studied: Warehouse, tmp_path: Path) -> None:
    file = tmp_path / "prices.csv"
    file.write_text("model,price\na,9\nb,1\nc,1\nd,1\nnobody,5\n")
    whole = replay(studied, "soft_vote", "b", prices=str(file))
    assert [whole.before.cost, whole.after.cost] == [10.0, 12.0]
    assert decided(studied, whole.before.run_id) == decided(studied, whole.after.run_id)
    for method in ("best_soft_vote", "cascade"):
        held = replay(studied, method, "b", prices=str(file), budget="4c")
        asked = {name for row in decided(studied, held.after.run_id) for name in row[2]}  # type: ignore[attr-defined]
        assert held.before.budget == held.after.budget == "4c"
        assert held.after.cost is not None
        assert held.after.cost <= 4.5
        assert "a" not in asked or method == "cascade"
    import_prices(studied, file)
    assert replay(studied, "soft_vote", "b").after.cost == 12.0


def test_prices_of_tokens_are_those_that_an_import_would_make(studied: Warehouse, tmp_path: Path) -> None:
    with studied.transaction("tokens"):
        studied.connection.execute(
            "UPDATE choice_logprobs SET n_prompt_tokens = 100 + doc_id, n_tokens = 7, logprob = logprob - 9"
        )
    file = tmp_path / "prices.csv"
    file.write_text("model,price,price_input,price_output\na,,5,50\nb,,1,2\nc,3,,\nd,4,,\n")
    found = replay(studied, "soft_vote", "b", prices=str(file))
    import_prices(studied, file)
    assert replay(studied, "soft_vote", "b").after.cost == found.after.cost
    assert replay(studied, "soft_vote", "b", prices=str(file)).conditions == {}


def test_fewer_models_and_other_settings_are_what_evaluate_makes_of_them(studied: Warehouse) -> None:
    of_pool = evaluate(studied, "b", methods=["stacking"], models=["a", "b", "d"], seeds=1).rows[0]
    found = replay(studied, "stacking", "b", scenario="drop=c")
    assert found.conditions == {"drop": ["c"]}
    assert found.after.models == ["a", "b", "d"]
    assert decided(studied, found.after.run_id) == decided(studied, of_pool.run_id)
    of_setting = evaluate(
        studied, "b", methods=["stacking"], settings=["stacking.inverse_ridge=1e-6"], seeds=1
    ).rows[0]
    found = replay(studied, "stacking", "b", scenario="set=inverse_ridge=1e-6")
    assert found.conditions == {"inverse_ridge": "1e-6"}
    assert decided(studied, found.after.run_id) == decided(studied, of_setting.run_id)
    assert decided(studied, found.before.run_id) != decided(studied, found.after.run_id)


@pytest.mark.parametrize(
    ("scenario", "changed"),
    [
        ("labels=20", lambda data: keep_labels(data, 20)),
        ("label-noise=0.4", lambda data: corrupt_labels(data, 0.4)),
        ("missing=0.3", lambda data: drop_answers(data, 0.3)),
        ("labels=20,label-noise=0.4", lambda data: corrupt_labels(keep_labels(data, 20), 0.4)),
    ],
)
def test_harder_data_is_fitted_and_decided(
    studied: Warehouse, scenario: str, changed: Callable[[Dataset], Dataset]
) -> None:
    found = replay(studied, "log_linear", "b", scenario=scenario)
    data = changed(load_dataset(studied, "b"))
    [policy] = make_method("log_linear").fit(data.train, [0])
    by_hand = decide(policy, data.test.hide_labels())
    rows = {row[:2]: row[3] for row in decided(studied, found.after.run_id)}
    keys = zip(data.test.tasks.tolist(), data.test.doc_ids.tolist(), strict=True)
    assert [rows[key] for key in keys] == [
        None if slot < 0 else slot for slot in by_hand.predictions.tolist()
    ]
    snapshot = studied.snapshot()
    assert replay(studied, "log_linear", "b", scenario=scenario) == found
    assert studied.snapshot() == snapshot


def test_changes_of_one_scenario_hold_together(studied: Warehouse, tmp_path: Path) -> None:
    with studied.transaction("tokens"):
        studied.connection.execute(
            "UPDATE choice_logprobs SET n_prompt_tokens = 100 + doc_id, n_tokens = 7, logprob = logprob - 9"
        )
    file = tmp_path / "prices.csv"
    file.write_text("model,price,price_input,price_output\na,,5,50\nb,,1,2\nc,3,,\n")
    found = replay(studied, "soft_vote", "b", scenario=f"drop=d,labels=20,prices={file},down=a")
    assert found.conditions.keys() == {"drop", "labels", "prices", "down"}
    assert {str(row[2]) for row in decided(studied, found.after.run_id)} == {"['b', 'c']"}
    usual = replay(studied, "soft_vote", "b", scenario="drop=d,down=a", prices=str(file))
    assert found.after.cost == usual.after.cost  # labels change no test document's tokens
    assert replay(studied, "soft_vote", "b", scenario="labels=160").conditions == {}  # it has no more


def test_an_earlier_snapshot_is_replayed_as_it_was(studied: Warehouse) -> None:
    then, found = studied.snapshot(), replay(studied, "soft_vote", "b", down=["a"])
    with studied.transaction("turn"):
        studied.connection.execute("UPDATE choice_logprobs SET logprob = -logprob")
    assert replay(studied, "soft_vote", "b", down=["a"], snapshot=then) == found
    assert replay(studied, "soft_vote", "b", down=["a"]).after.accuracy != found.after.accuracy


def test_what_cannot_be_is_refused_before_any_work(
    studied: Warehouse, agents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_choices(studied, {"p": [True, False] * 4, "q": [False, True] * 4}, benchmark="else")
    (tmp_path / "short.csv").write_text("model,price\na,9\nb,1\n")
    monkeypatch.setattr("rlfocal.scenarios.replaying.fit_groups", pytest.fail)
    before = studied.snapshot()
    for policy, benchmark, conditions, words in (
        ("soft_votes", "b", {}, "unknown method 'soft_votes'; did you mean 'soft_vote'"),
        ("no.safetensors", "b", {}, r"no\.safetensors: the file cannot be read"),
        ("./checkpoints", "b", {}, r"\./checkpoints is no checkpoint"),
        ("soft_vote", "c", {}, "unknown benchmark 'c'"),
        (str(agents), "else", {}, "its models answered: unknown model 'a' in benchmark 'else'"),
        ("soft_vote", "b", {"down": ["z"]}, r"unknown model 'z' in the policy's pool \(--down\)"),
        ("soft_vote", "b", {"models": ["z"]}, r"unknown model 'z' in the policy's pool \(--models\)"),
        ("soft_vote", "b", {"down": list("abcd")}, "no model of 4 is left"),
        ("soft_vote", "b", {"models": ["a"], "down": ["a"]}, "no model of 4 is left"),
        ("soft_vote", "b", {"swap": ["a"]}, "'a' is not A=B"),
        ("soft_vote", "b", {"swap": ["a="]}, "'a=' is not A=B"),
        ("soft_vote", "b", {"swap": ["z=a"]}, r"unknown model 'z' in the policy's pool \(--swap z=a\)"),
        ("soft_vote", "b", {"swap": ["a=z"]}, "unknown model 'z' in benchmark 'b'"),
        ("soft_vote", "b", {"swap": ["a=b", "a=c"]}, "'a' is swapped twice"),
        ("soft_vote", "b", {"budget": "1"}, "--budget 1: soft_vote cannot be held to a budget"),
        ("cascade", "b", {"budget": "no"}, "'no' is not a budget"),
        ("soft_vote", "b", {"prices": str(tmp_path / "short.csv")}, r"short\.csv has no price of c, d"),
        ("soft_vote", "b", {"prices": "none.csv"}, r"none\.csv"),
        ("soft_vote", "b", {"seed": -1}, "seed must be at least 0, got -1"),
        ("soft_vote", "b", {"scenario": "drop=z"}, r"unknown model 'z' in the policy's pool"),
        ("single:a", "b", {"scenario": "drop=a"}, "unknown model 'a' in method 'single:a'"),
        ("outputs_knn", "b", {"scenario": "set=k"}, "set=k has no value; write set=NAME=VALUE"),
        ("outputs_knn", "b", {"scenario": "set=q=3"}, "'q'"),
        (
            str(agents),
            "b",
            {"scenario": "labels=9"},
            "is a checkpoint, but.*rl_focal_sequential",
        ),
    ):
        with pytest.raises(InputError, match=words) as refused:
            replay(studied, policy, benchmark, **conditions)
        assert "\n" not in str(refused.value)
    assert studied.snapshot() == before
    monkeypatch.undo()
    with pytest.raises(InputError, match=r"--budget 0\.5: cascade cannot keep to it; give a larger one"):
        replay(studied, "cascade", "b", budget="0.5")
    with studied.transaction("unpriced"):
        studied.connection.execute("UPDATE models SET price = NULL")
    with pytest.raises(InputError, match="cannot keep to it; `rlfocal import prices` sets unknown prices"):
        replay(studied, "cascade", "b", budget="9c")


def test_the_command_shows_both_sides(cli: Cli, toy: object) -> None:
    shown = cli("replay", "soft_vote", "-b", "toy", "--down", "strong")
    assert shown.code == 0, shown.err
    for words in ("as evaluated", "without strong", "accuracy %", "right to wrong", "models asked"):
        assert words in shown.out
    found = json.loads(cli("replay", "soft_vote", "-b", "toy", "--down", "strong", "--json").out)
    assert found["conditions"] == {"down": ["strong"]}
    assert found["after"]["run_id"] in shown.out
    assert found["after"]["settings"]["as_evaluated"] == found["before"]["run_id"]
    assert cli("replay", "soft_vote", "-b", "toy", "--down", "stron").code == 2
    asked = ["replay", "soft_vote", "best_single", "-b", "toy"]
    asked += ["--scenario", "drop=weak", "--scenario", "labels=5"]
    listed = json.loads(cli(*asked, "--json").out)
    assert [(one["before"]["method"], one["conditions"]) for one in listed] == [
        (method, told)
        for method in ("soft_vote", "best_single")
        for told in ({"drop": ["weak"]}, {"labels": 5})
    ]
    compared = cli(*asked)
    assert compared.code == 0, compared.err
    for name in ("soft_vote", "best_single", "drop=weak", "labels=5"):
        assert compared.out.count(name) == 2
